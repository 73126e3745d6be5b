"""The comparison by distance: its task, its counting and its pictures."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import ladder
import pytest
import torch
from torch import nn

from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.special_tokens import BOS, EOS


def test_the_task_is_to_write_different_letters_backwards():
    task = ladder.QUICK
    batches = task.sequences(1)
    lengths = set()
    for source, target, labels in (next(batches) for _ in range(20)):
        lengths.add(source.size(1) - 1)
        assert torch.equal(labels[:, :-1], source[:, :-1].flip(1))
        assert (source[:, -1] == EOS).all()
        assert (target[:, 0] == BOS).all()
        assert all(len(set(row.tolist())) == source.size(1) for row in source)
    assert lengths == {3, 4, 5, 6}


def test_the_judge_has_every_length_and_sequences_of_its_own():
    task = replace(ladder.QUICK, letters=26, shortest=10, longest=12)
    unseen = {tuple(row.tolist()) for batch in task.unseen() for row in batch.source}
    seen = task.sequences(ladder.SEEN_SEED)
    assert {len(row) - 1 for row in unseen} == {10, 11, 12}
    assert not unseen & {tuple(row.tolist()) for _ in range(20) for row in next(seen).source}


class Mirror(nn.Module):
    """Knows everything but the letters that stand further than `reach` from the end."""

    def __init__(self, vocab, reach):
        super().__init__()
        self.reach = reach
        self.to_logits = nn.Linear(vocab, vocab, bias=False)
        self.to_logits.weight.data = 20 * torch.eye(vocab)

    def hidden(self, source, target):
        said = torch.cat([source[:, :-1].flip(1), source[:, -1:]], dim=1)
        said[:, self.reach : source.size(1) - 1] = 0
        return nn.functional.one_hot(said, len(self.to_logits.weight)).float()[:, : target.size(1)]

    def forward(self, source, target):
        return self.to_logits(self.hidden(source, target))

    def begin(self, source, *, width, max_length):
        del width, max_length
        return Walk(source, 0)

    def step(self, last, state):
        state.place += 1
        return self(state.source, last.expand(-1, state.place))[:, -1:]


class Walk:
    def __init__(self, source, place):
        self.source, self.place = source, place

    def select(self, parents):
        pass

    def keep(self, sentences):
        self.source = self.source[sentences]


def test_accuracy_is_counted_by_distance():
    """One who knows the last four letters is right up to distance eight, and never beyond."""
    found = ladder.judge(Mirror(ladder.QUICK.vocab, 4), ladder.QUICK)
    assert found.by_distance == {2: 1.0, 4: 1.0, 6: 1.0, 8: 1.0, 10: 0.0, 12: 0.0}
    assert found.exact == 0.5  # of the lengths 3, 4, 5, 6
    assert found.accuracy == pytest.approx((3 + 4 + 4 + 4) / (3 + 4 + 5 + 6))


def test_the_gradient_of_a_linear_network_is_a_power_of_its_weight():
    """tanh near 0 is a line: with W_h = ½, each place further back halves the gradient."""
    task = ladder.QUICK
    config = LadderConfig(task.vocab, task.vocab, cell="rnn", d_model=8, context="none")
    model = Ladder(config).eval()
    for part in (model.encoder.cells, model.embed_source):
        for parameter in part.parameters():
            nn.init.normal_(parameter, std=1e-4) if parameter.dim() > 1 else nn.init.zeros_(
                parameter
            )
    nn.init.eye_(model.encoder.cells.weight_ih_l0)
    model.encoder.cells.weight_hh_l0.data = 0.5 * torch.eye(8)
    found = ladder.arriving(model, task)
    assert found == pytest.approx({n: 0.5**n for n in range(task.longest)}, rel=1e-3)


def test_all_contestants_have_about_the_same_size():
    counts = [
        sum(p.numel() for p in build().parameters())
        for build in ladder.builders(ladder.Task()).values()
    ]
    assert len(counts) == 6
    assert max(counts) / min(counts) < 1.2


def test_a_quick_run_prints_both_tables_and_draws(tmp_path, capsys):
    picture = tmp_path / "ladder.svg"
    assert ladder.main(["--quick", "--picture", str(picture)]) == 0
    printed = capsys.readouterr().out
    for name in (*ladder.RUNGS.values(), "Transformer"):
        assert f"| {name} |" in printed
        assert name in picture.read_text(encoding="utf-8")
    assert "| Transformer, untrained | 1 |" in printed
    tree = ET.fromstring(picture.read_text(encoding="utf-8"))
    assert len(tree.findall(".//{*}polyline")) == 6 + 6
