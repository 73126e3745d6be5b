"""The benchmarks compare like with like: peers compute what we compute, clocks are read right."""

from pathlib import Path

import decoding_speed as decoding
import measuring
import peers
import pytest
import torch
import training_speed as speed

from polyhead.data.batches.base import pad
from polyhead.data.batches.translation import collate
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
