"""The recurrent parts against PyTorch's cells, loops over single sentences and sums by hand."""

import pytest
import torch

from polyhead.layers.recurrent import Recurrence, turned

LENGTHS = torch.tensor([5, 2, 4])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_is_never_read(cell, bidirectional):
    """As if every sentence had been alone; the direction from the right begins at its last word."""
    reader = Recurrence(cell, 6, 2, 0.0, bidirectional=bidirectional)
    x = torch.randn(3, 5, 6)
    states, last = reader.encode(x, LENGTHS)
    for row, n in enumerate(LENGTHS.tolist()):
        alone, state = reader.cells(x[row : row + 1, :n])
        torch.testing.assert_close(states[row, :n], alone[0])
        assert (states[row, n:] == 0).all()
        parts = state if cell == "lstm" else (state,)
        for ours, theirs in zip(last, parts, strict=True):
            by_layer = theirs[:, 0].view(2, 2 if bidirectional else 1, -1).flatten(1)
            torch.testing.assert_close(ours[:, row], by_layer)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_reading_in_two_parts_is_reading_at_once(cell):
    writer, x = Recurrence(cell, 4, 2, 0.0), torch.randn(2, 5, 4)
    whole, last = writer.encode(x, torch.tensor([5, 5]))
    first, state = writer.encode(x[:, :3], torch.tensor([3, 3]))
    second, state = writer(x[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one, other)


def test_two_directions_need_an_even_width():
    with pytest.raises(ValueError, match="even d_model to share, got 5"):
        Recurrence("gru", 5, 1, 0.0, bidirectional=True)


def test_sentences_are_turned_and_their_padding_stays():
    x = torch.tensor([[1.0, 2, 3, 0], [4, 5, 6, 7], [8, 0, 0, 0]])[..., None]
    lengths = torch.tensor([3, 4, 1])
    expected = torch.tensor([[3.0, 2, 1, 0], [7, 6, 5, 4], [8, 0, 0, 0]])[..., None]
    assert torch.equal(turned(x, lengths), expected)
    assert torch.equal(turned(expected, lengths), x)
