"""The chapter on Table 2 holds, and falls when a figure or a formula is changed."""

import pytest
import torch

from polyhead.cost import breakdown, published
from polyhead.cost.formulas import Cost
from polyhead.notes.chapters import table2
from polyhead.notes.claims import CLAIMS

IDS = [id for id, check in CLAIMS.items() if check.chapter == table2.__name__.rsplit(".", 1)[-1]]
ROWS = dict(zip([f"J{n}" for n in range(1, 11)], published.TABLE_2, strict=True))


def found(id):
    torch.manual_seed(0)
    return CLAIMS[id].check()


def test_every_row_but_the_remarks_has_a_check():
    assert sorted(IDS) == sorted(f"J{n}" for n in range(1, 13))


@pytest.mark.parametrize("id", IDS)
def test_the_claim_holds(id):
    finding = found(id)
    assert finding.holds, finding


@pytest.mark.parametrize(("id", "name"), ROWS.items())
@pytest.mark.parametrize("field", published.PublishedSystem._fields[1:])
def test_a_mistyped_figure_is_noticed(monkeypatch, id, name, field):
    row = published.TABLE_2[name]
    figure = getattr(row, field)
    monkeypatch.setitem(
        published.TABLE_2, name, row._replace(**{field: 1.0 if figure is None else figure * 1.01})
    )
    assert not found(id).holds


def test_another_estimate_of_the_cost_is_noticed(monkeypatch):
    monkeypatch.setattr(table2, "estimated_flops", lambda s, n, speed: s * speed)  # noqa: ARG005
    assert not found("J11").holds


def test_a_forgotten_part_of_the_model_is_noticed(monkeypatch):
    monkeypatch.setattr(breakdown, "output_layer", lambda *_: Cost())
    assert not found("J12").holds
