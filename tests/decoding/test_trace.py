"""Traces of greedy decoding and of beam search, compared with plain decoding."""

import math

import pytest
import torch

from polyhead.decoding.beam import beam_search
from polyhead.decoding.generate import generate
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.protocol import CancellableModel
from polyhead.decoding.sampling import greedy_search
from polyhead.decoding.trace import BeamRecorder, trace_beam_search
from polyhead.errors import Cancelled
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.special_tokens import BOS, EOS

VOCAB = 11
SOURCE = [4, 7, 5, 9, EOS]


@pytest.fixture(scope="module", params=[1, 2, 3])
def model(request):
    """An untrained model whose outputs end now and then."""
    torch.manual_seed(request.param)
    stack = StackConfig(n_layers=1, d_model=16, n_heads=2, d_ff=16, dropout=0.0)
    made = Transformer(TransformerConfig(VOCAB, VOCAB, stack=stack)).eval()
    with torch.no_grad():
        made.to_logits.weight.mul_(4.0)
    return made


def exact_log_p(model, ids):
    """Return the log-probability of every token, by one forward pass."""
    target = torch.tensor([[BOS, *ids[:-1]]])
    with torch.inference_mode():
        rows = model(torch.tensor([SOURCE]), target).log_softmax(-1)[0]
    return [float(row[id]) for row, id in zip(rows, ids, strict=True)]


def path(tree, node):
    """Return the tokens from the root to a node."""
    ids = []
    while tree.nodes[node].parent is not None:
        ids.append(tree.nodes[node].id)
        node = tree.nodes[node].parent
    return ids[::-1]


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_the_leaves_are_the_outputs_of_plain_beam_search(model, beam):
    config = DecodeConfig(beam=beam, n_best=beam, max_length=12)
    found = beam_search(model, torch.tensor([SOURCE]), config)
    tree = trace_beam_search(model, SOURCE, config)
    rows = zip(found.tokens[0], found.scores[0], found.log_p[0], strict=True)
    expected = [row for row in rows if row[1] > float("-inf")]
    assert len(tree.leaves) == len(expected)
    for leaf, (tokens, score, log_p) in zip(tree.leaves, expected, strict=True):
        ids = tokens.tolist()
        ids = ids[: ids.index(EOS) + 1] if EOS in ids else [id for id in ids if id]
        assert path(tree, leaf.node) == ids
        assert leaf.ids == tuple(id for id in ids if id != EOS)
        assert (leaf.score, leaf.log_p) == (
            pytest.approx(float(score)),
            pytest.approx(float(log_p)),
        )


def test_every_node_has_the_log_probability_of_its_path(model):
    tree = trace_beam_search(model, SOURCE, DecodeConfig(beam=4, n_best=4, max_length=8))
    for place, node in enumerate(tree.nodes[1:], 1):
        ids = path(tree, place)
        assert node.step == len(ids)
        assert node.log_p == pytest.approx(sum(exact_log_p(model, ids)), abs=1e-4)


def test_a_step_has_at_most_as_many_different_hypotheses_as_beams(model):
    tree = trace_beam_search(model, SOURCE, DecodeConfig(beam=3, n_best=3, max_length=8))
    paths = [tuple(path(tree, place)) for place in range(len(tree.nodes))]
    assert len(set(paths)) == len(paths)
    for step in range(1, 9):
        unfinished = [ids for ids in paths if len(ids) == step and ids[-1] != EOS]
        assert len(unfinished) <= 3
    assert len([ids for ids in paths if len(ids) == 1 and ids[-1] != EOS]) == 3


def test_a_forced_beginning_has_one_branch(model):
    tree = trace_beam_search(
        model, SOURCE, DecodeConfig(beam=6, n_best=6, max_length=8), forced=[5, 6]
    )
    paths = [path(tree, place) for place in range(len(tree.nodes))]
    assert sorted(ids for ids in paths if len(ids) <= 2) == [[], [5], [5, 6]]
    for leaf in tree.leaves:
        assert leaf.ids[:2] == (5, 6)
        assert leaf.log_p == pytest.approx(sum(exact_log_p(model, path(tree, leaf.node))), abs=1e-4)


def test_unused_beams_have_no_nodes(model):
    recorder = BeamRecorder(model, forced=[5])
    state = recorder.begin(torch.tensor([SOURCE]), width=3, max_length=4)
    with torch.inference_mode():
        recorder.step(torch.tensor([[BOS, BOS, BOS]]), state)
        state.select(torch.tensor([[0, 0, 1]]))
        recorder.step(torch.tensor([[5, 7, 5]]), state)  # the third continues an unused beam
        state.select(torch.tensor([[0, 1, 0]]))
        recorder.step(torch.tensor([[8, 8, 9]]), state)
    paths = [path(recorder.tree, place) for place in range(len(recorder.tree.nodes))]
    assert paths == [[], [5], [5, 8], [5, 9]]


def traced(model, forced=(), limit=10):
    config = DecodeConfig(max_length=limit)
    read = [*SOURCE, BOS]
    return list(generate(model, read, config, make_generator(0), 99, forced=forced, top=5))


def test_without_forced_tokens_the_trace_is_greedy_search(model):
    config = DecodeConfig(beam=1, max_length=10)
    tokens = greedy_search(model, torch.tensor([SOURCE]), config).tokens[0, 0].tolist()
    expected = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
    steps = traced(model)[: len(expected)]
    assert [step.chosen.id for step in steps] == expected
    log_p = [math.log(step.chosen.probability) for step in steps]
    assert log_p == pytest.approx(exact_log_p(model, expected), abs=1e-5)
    assert not any(step.forced for step in steps)


def test_the_alternatives_are_the_likeliest_tokens_of_the_model(model):
    for step, before in zip(traced(model, [7, 5], limit=4), ([], [7], [7, 5]), strict=False):
        with torch.inference_mode():
            row = model(torch.tensor([SOURCE]), torch.tensor([[BOS, *before]]))[0, -1]
        row = row.softmax(-1)
        best = sorted(range(EOS, VOCAB), key=lambda id: -float(row[id]))[:5]
        assert [choice.id for choice in step.likeliest] == best
        expected = pytest.approx([float(row[id]) for id in best], abs=1e-6)
        assert [choice.probability for choice in step.likeliest] == expected
        assert step.forced == (len(before) < 2)


def test_a_cancelled_search_stops_at_the_next_step(model):
    answers = iter([False, False, True])
    cancellable = CancellableModel(model, lambda: next(answers))
    config = DecodeConfig(beam=2, max_length=12, length_penalty=0.0)
    with pytest.raises(Cancelled):
        beam_search(cancellable, torch.tensor([SOURCE]), config)
    assert list(answers) == []
    found = beam_search(CancellableModel(model, lambda: False), torch.tensor([SOURCE]), config)
    plain = beam_search(model, torch.tensor([SOURCE]), config)
    assert torch.equal(found.tokens, plain.tokens)
