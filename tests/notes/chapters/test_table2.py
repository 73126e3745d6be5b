"""Claims about Table 2 fail when a figure or a formula is changed."""

import pytest
from claims import ClaimBreaks

from polyhead.cost import breakdown, published
from polyhead.cost.formulas import Cost
from polyhead.notes.chapters import table2_claims as table2
from polyhead.notes.claims import find_claim

breaks = ClaimBreaks("table2")
ROWS = dict(zip([f"J{n}" for n in range(1, 11)], published.TABLE_2, strict=True))


@pytest.mark.parametrize(("id", "name"), ROWS.items())
@pytest.mark.parametrize("field", published.PublishedSystem._fields[1:])
def test_a_mistyped_figure_is_detected(monkeypatch, id, name, field):
    row = published.TABLE_2[name]
    figure = getattr(row, field)
    changed = row._replace(**{field: 1.0 if figure is None else figure * 1.01})
    monkeypatch.setitem(published.TABLE_2, name, changed)
    assert not find_claim(id).check().holds


@breaks(table2, "estimated_flops", exactly="J11")
def cost_without_number_of_devices(seconds, _devices, sustained):
    return seconds * sustained


breaks.add(
    "cost_without_output_layer", (breakdown, "output_layer", lambda *_: Cost()), exactly="J12"
)
test_breaks_are_detected = breaks.test()
