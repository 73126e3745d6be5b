"""The claims about the Vision Transformer hold, and stop to hold when something is broken."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch.nn import functional as F

from polyhead.models import vit

MINE = claims_of("vision")
broken = partial(failing, MINE)


def test_every_row_that_can_be_computed_has_one_check():
    assert [check.id for check in MINE] == ["L1", "L2", "L4", "L5"]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_patches_read_column_by_column_are_noticed(monkeypatch):
    def by_columns(self, images):
        return self.project(images).transpose(2, 3).flatten(2).transpose(1, 2)

    monkeypatch.setattr(vit.PatchEmbed, "forward", by_columns)
    assert {"L1", "L4", "L5"} <= broken()


def test_a_rest_that_is_dropped_silently_is_noticed(monkeypatch):
    monkeypatch.setattr(vit, "cut", lambda height, width, patch: (height // patch, width // patch))
    assert broken() == {"L5"}


def test_missing_positions_are_noticed(monkeypatch):
    def nowhere(self, grid):
        return torch.zeros(grid[0] * grid[1] + int(self.class_token is not None), 64)

    monkeypatch.setattr(vit.ViT, "places", nowhere)
    assert broken() == {"L2", "L4"}


def test_the_wrong_activation_or_the_wrong_token_is_noticed(monkeypatch):
    def last_token(self, images):
        return self.to_logits(self.hidden(images)[:, -1])

    monkeypatch.setattr(vit.ViT, "forward", last_token)
    assert broken() == {"L4"}
    monkeypatch.undo()
    monkeypatch.setattr(torch.nn.GELU, "forward", lambda _, x: F.relu(x))
    assert broken() == {"L4"}
