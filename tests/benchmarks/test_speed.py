"""The benchmarks compare like with like: peers compute what we compute, clocks are read right."""

import copy
import json
from pathlib import Path

import decoding_speed as decoding
import measuring
import multi30k
import peers
import pytest
import torch
import training_speed as speed

from polyhead.data.batches.base import pad
from polyhead.data.batches.translation import collate
from polyhead.errors import ConfigError, PolyheadError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tasks.losses import TranslationLoss

PAD, BOS, EOS = 0, 1, 2
VOCAB = 23
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def need_transformers():
    pytest.importorskip("transformers")


def small(**changes):
    stack = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 32, **changes}
    return TransformerConfig(VOCAB, VOCAB, tie="all", max_length=64, stack=StackConfig(**stack))


def opinionated(config):
    """Random weights, but far from their beginnings: norms and biases count, outputs are varied."""
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def sentences(lengths, *, end=False):
    rows = [torch.randint(4, VOCAB, (n,)).tolist() for n in lengths]
    return [[*row[:-1], EOS] if end else row for row in rows]


def batch_with_padding():
    source = pad(sentences([9, 4, 6], end=True))
    target = pad([[BOS, *row] for row in sentences([5, 8, 3])])
    return source, target


# --- the peers ---


def n_learned(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def assert_equal_where_real(found, expected, target):
    real = target != PAD
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_marian_with_our_weights_gives_our_logits(attention, activation):
    need_transformers()
    config = small(activation=activation)
    model, (source, target) = opinionated(config), batch_with_padding()
    marian = peers.to_marian(model, config, attention=attention)
    assert n_learned(marian) == n_learned(model)
    theirs = marian(
        input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target
    ).logits
    assert_equal_where_real(theirs, model(source, target), target)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_torch_with_our_weights_gives_our_logits(norm):
    config = small(norm=norm)
    model, (source, target) = opinionated(config), batch_with_padding()
    theirs = peers.to_torch(model, config).train()  # not the fast path of inference …
    for part in theirs.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # … but without its chance
    assert n_learned(theirs) == n_learned(model)
    for rows in (slice(None), slice(0, 1)):  # with padding in the source, and without
        read = source[rows], target[rows]
        assert_equal_where_real(theirs(*read), model(*read), target[rows])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_as_built_differs_only_by_the_norm_after_the_last_norm():
    config = small()
    model, (source, target) = opinionated(config), batch_with_padding()
    theirs = peers.to_torch(model, config, as_built=True)
    for side in (theirs.transformer.encoder, theirs.transformer.decoder):
        assert isinstance(side.norm, torch.nn.LayerNorm)
        side.norm = None
    with torch.no_grad():
        assert_equal_where_real(theirs(source, target), model(source, target), target)


def test_peers_drop_out_where_we_do():
    """Not on attention weights and activations, unless it is meant to be as its users have it."""
    config = small(dropout=0.1)
    model = Transformer(config)
    for as_built, expected in ((False, 0.0), (True, 0.1)):
        transformer = peers.to_torch(model, config, as_built=as_built).transformer
        for layer in transformer.decoder.layers:
            assert layer.self_attn.dropout == layer.multihead_attn.dropout == expected
            assert layer.dropout.p == expected
            assert layer.dropout1.p == layer.dropout2.p == layer.dropout3.p == 0.1


@pytest.fixture(scope="module")
def beginner():
    """Return a model trained to copy its source."""
    torch.manual_seed(1)
    model = Transformer(small(dropout=0.0))
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        rows = sentences(torch.randint(2, 10, (16,)).tolist(), end=True)
        loss = TranslationLoss(PAD)(model, collate([(row, row) for row in rows]))
        (loss.total / loss.count).backward()
        adam.step()
        adam.zero_grad()
    return model.eval()


@pytest.mark.parametrize("beam", [1, 5])
def test_both_searches_write_the_same(beam, beginner):
    need_transformers()
    config = small()
    batches = decoding.batches_of(sentences([3, 5, 5, 7, 2, 9, 4, 4, 6, 6], end=True), 4)
    ends = {}
    for model in (beginner, opinionated(config)):
        ours = decoding.decode_ours(model, batches, beam)
        theirs, marian = [], peers.to_marian(model, config)
        for source in batches:
            limit = 2 * source.size(1) + 10
            found = peers.generate(marian, source, beam=beam, limit=limit, exact=True)
            theirs += [decoding.written(row) for row in found.tolist()]
        assert theirs == ours
        assert len({tuple(ids) for ids in ours}) > 3  # who always says the same proves little
        ends[model] = sum(EOS in ids for ids in ours)
    assert ends[beginner] > 6 > min(ends.values())  # both were seen: ended, and cut off


def test_forbidding_the_special_tokens_by_the_bias_is_as_good(beginner):
    need_transformers()
    batches = decoding.batches_of(sentences([3, 5, 5, 7, 2, 9], end=True), 4)
    beginner = copy.deepcopy(beginner)
    words = beginner.embed_target.tokens.weight
    liked = decoding.decode_ours(beginner, batches, 1)[0][0]
    with torch.no_grad():
        words[PAD] = 3 * words[liked]  # a model that would like to write PAD
    marian = peers.to_marian(beginner, small())
    free = peers.generate(marian, batches[0], beam=1, limit=20)
    assert PAD in free[:, 0]
    peers.forbid_specials(marian)
    assert decoding.decode_theirs(marian, batches, 1) == decoding.decode_ours(beginner, batches, 1)


# --- training speed ---


def task(**changes):
    lengths = [3, 4, 5, 6, 7, 8] * 4
    pairs = list(zip(sentences(lengths, end=True), sentences(lengths, end=True), strict=True))
    values = {"max_tokens": 64, "steps": 2, **changes}
    return speed.Task(pairs, small(dropout=0.1), **values)


@pytest.mark.parametrize("name", speed.CONTESTANTS)
def test_every_contestant_learns_and_counts_real_tokens(name, monkeypatch):
    if name.startswith("marian"):
        need_transformers()
    one = task(steps=3)
    models = []
    remember(monkeypatch, models)
    contestant = speed.CONTESTANTS[name](one, name)
    assert contestant.name == name
    batches = one.random_batches() if name == "marian" else one.our_batches()
    real = [
        int((b.source != PAD).sum() + (b.labels != PAD).sum())
        for _, b in zip(range(6), batches, strict=False)
    ]
    (model,) = models
    before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    assert contestant.work() == sum(real[:3])
    assert contestant.work() == sum(real[3:])  # it continues
    same = [n for n, p in model.named_parameters() if n in before and torch.equal(p, before[n])]
    assert same == []


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_peers_lose_what_we_lose(smoothing):
    config = small(dropout=0.0)
    model, batch = opinionated(config), next(task().random_batches())
    assert PAD in batch.labels
    expected = TranslationLoss(PAD, smoothing)(model, batch)
    loss = speed.torch_loss(peers.to_torch(model, config), smoothing, batch)
    torch.testing.assert_close(loss, expected.total / expected.count)
    if not smoothing:
        need_transformers()
        marian = peers.to_marian(model, config)
        torch.testing.assert_close(speed.marian_loss(marian, batch), loss)


def remember(monkeypatch, models):
    """Keep hold of whichever model a contestant trains: the last one that is made."""

    def wrapped(make):
        def remembering(*arguments, **options):
            model = make(*arguments, **options)
            models[:] = [model]
            return model

        return remembering

    monkeypatch.setattr(speed.Task, "fresh_model", wrapped(speed.Task.fresh_model))
    monkeypatch.setattr(peers, "to_marian", wrapped(peers.to_marian))
    monkeypatch.setattr(peers, "to_torch", wrapped(peers.to_torch))


def test_random_batches_fill_the_budget_on_average():
    """Compared with the definition: draw batches of that size, and pad them."""
    one = task(max_tokens=100)
    size = speed.random_batch_size(one.pairs, 100)

    def mean_cost(size):
        order = torch.Generator().manual_seed(5)
        costs = []
        for _ in range(500):
            drawn = torch.randint(len(one.pairs), (size,), generator=order).tolist()
            widest = [max(len(one.pairs[i][side]) for i in drawn) for side in (0, 1)]
            costs.append(sum(widest) * size)
        return sum(costs) / len(costs)

    assert mean_cost(size) <= 100 < mean_cost(size + 1)
    assert len(next(one.random_batches()).source) == size


# --- decoding speed ---


class Table:
    """A model whose next token depends on nothing: logits rise with the id, 7 and 8 are equal."""

    def __call__(self, source, target):
        logits = torch.arange(float(VOCAB))
        logits[8] = logits[7] + 1e-5
        return logits.expand(len(source), target.size(1), VOCAB)


def test_outputs_that_differ_at_a_tie_are_counted_apart():
    batches = [torch.full((5, 3), 5)]
    ours = [[9, 7, EOS], [9, 7, EOS], [9, 7, EOS], [9, 9, EOS], [9, 7]]
    theirs = [[9, 7, EOS], [9, 8, EOS], [9, 6, EOS], [9, 7, EOS], [9, 7, EOS]]
    found = decoding.agreement(Table(), batches, ours, theirs)
    assert found == (1, 1, 5)
    assert found.share == 0.4
    assert str(found) == "1 of 5 (and 1 part at a tie)"


def test_different_outputs_are_not_measured(monkeypatch):
    monkeypatch.setattr(decoding, "decode_ours", lambda *_: [[9, 7, EOS]])
    monkeypatch.setattr(decoding, "decode_theirs", lambda *_: [[9, 8, EOS]])
    batches = [torch.full((1, 3), 5)]
    greedy, beam = decoding.Setting(64, 1, 1.2, 1.0), decoding.Setting(64, 5, 1.5, 0.98)
    assert decoding.check(Table(), None, [(greedy, batches)])[greedy.name].ties == 1
    with pytest.raises(PolyheadError, match="batch 64, beam 5: only 0 of 1 outputs are the same"):
        decoding.check(Table(), None, [(beam, batches)])


# --- quality ---


def test_minutes_come_from_the_run_and_reach_its_last_step(tmp_path):
    entries = [
        {"kind": "train", "step": 50, "seconds": 90.0},
        {"kind": "train", "step": 100, "seconds": 240.0},
        {"kind": "valid", "step": 125, "loss": 3.0},
    ]
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / "metrics.jsonl").write_text(lines)
    assert multi30k.training_time(tmp_path) == (125, 5.0)


def test_case_counts_only_where_it_should():
    references = ["A man rides a red bicycle through the old town .", "Two dogs are playing ."]
    quality = multi30k.measure([text.lower() for text in references], references)
    assert quality.lowercased == pytest.approx(100)
    assert quality.cased < 99
    assert quality.chrf < 99
    assert [("case:lc" in s, "case:mixed" in s) for s in quality.signatures] == [
        (True, False), (False, True), (False, True),
    ]  # fmt: skip


# --- measuring ---


class FakeClock:
    """Return a clock that advances only with work."""

    def __init__(self):
        self.now, self.log = 100.0, []

    def __call__(self):
        return self.now

    def contestant(self, name, units, seconds):
        """Does `units` in as many seconds as the list says for each round."""
        left = iter(seconds)

        def work():
            self.now += next(left)
            self.log.append(name)
            return units

        return measuring.Contestant(name, work)


def test_contestants_take_turns_and_each_round_begins_with_another():
    clock = FakeClock()
    three = [clock.contestant(name, 6, [1.0, 2.0, 3.0, 4.0]) for name in "abc"]
    samples = measuring.interleave(three, 4, clock=clock, tell=lambda _: None)
    assert "".join(clock.log) == "abcbcacababc"
    assert list(samples) == ["a", "b", "c"]
    for found in samples.values():
        assert found == [(6, 1.0), (6, 2.0), (6, 3.0), (6, 4.0)]
        assert [sample.rate for sample in found] == [6.0, 3.0, 2.0, 1.5]


def test_ratios_are_taken_within_a_round():
    """The machine is ten times slower in every round; ours stays 2, 3 and 2.5 times faster."""
    clock = FakeClock()
    both = [
        clock.contestant("ours", 100, [1.0, 10.0, 100.0]),
        clock.contestant("peer", 100, [2.0, 30.0, 250.0]),
    ]
    samples = measuring.interleave(both, 3, clock=clock, tell=lambda _: None)
    ratios = measuring.paired_ratios(samples["ours"], samples["peer"])
    assert ratios == pytest.approx([2.0, 3.0, 2.5])
    assert measuring.spread(ratios) == pytest.approx((2.5, 2.0, 3.0))


def test_the_ranking_says_which_bars_are_reached():
    sample = measuring.Sample
    samples = {
        "ours": [sample(3000, 1.0)] * 3,
        "slow": [sample(1000, 1.0)] * 3,
        "fast": [sample(2900, 1.0)] * 3,
        "other": [sample(3000, 2.0)] * 3,
    }
    lines = measuring.ranking(samples, "ours", {"slow": 3.0, "fast": 1.2}, "tokens/s")
    cells = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:5]] for line in lines
    }
    assert cells["ours"] == ["3,000 (3,000 to 3,000)", "", ""]
    assert cells["slow"] == ["1,000 (1,000 to 1,000)", "3.00 (3.00 to 3.00)", "3: reached"]
    assert cells["fast"] == ["2,900 (2,900 to 2,900)", "1.03 (1.03 to 1.03)", "1.2: MISSED"]
    assert cells["other"] == ["1,500 (1,500 to 1,500)", "2.00 (2.00 to 2.00)", "none"]


def test_a_section_is_appended_and_nothing_before_it_changes(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\nAs they are.\n\n\n")
    measuring.record(path, "Speed", ["fast"])
    measuring.record(path, "Speed", ["faster"])
    assert (
        path.read_text() == "# Results\n\nAs they are.\n\n## Speed\n\nfast\n\n## Speed\n\nfaster\n"
    )


def test_a_row_goes_to_the_end_of_its_own_table(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\n## Quality\n\n| a | b |\n|---|---|\n\n## Speed\n\n| c |\n|---|\n")
    measuring.record_row(path, "Quality", ["a", "b"], ["1", "2"])
    measuring.record_row(path, "Quality", ["a", "b"], ["3", "4"])
    expected = (
        "## Quality\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n## Speed\n\n| c |\n|---|\n"
    )
    assert path.read_text() == "# Results\n\n" + expected
    with pytest.raises(ConfigError, match=r"'Speed' has no table with the columns a, b"):
        measuring.record_row(path, "Speed", ["a", "b"], ["5", "6"])
    measuring.record_row(path, "New", ["a"], ["5"])
    assert path.read_text().endswith("\n\n## New\n\n| a |\n|---|\n| 5 |\n")


def test_the_results_have_a_table_for_quality(tmp_path):
    """RESULTS.md has the columns that multi30k.py writes."""
    path = tmp_path / "RESULTS.md"
    path.write_text((BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8"), encoding="utf-8")
    values = {
        (s, w): multi30k.Quality(1, 2, 3, ())
        for s in ("val", "test_2016_flickr")
        for w in ("greedy", "beam")
    }
    row = multi30k.row_of(["r", "1", "2", "3"], multi30k.DecodeConfig(), values)
    assert len(row) == len(multi30k.COLUMNS)
    measuring.record_row(path, multi30k.HEADING, multi30k.COLUMNS, row)
    assert measuring.table_row(row) in path.read_text(encoding="utf-8").split("\n")
