"""Hashing may miss a neighbour, but what it finds must be weighed exactly, and never lie ahead."""

import pytest
import torch

from polyhead.layers.attention import CAUSAL, NO_MASK, Mask, MultiHeadAttention
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.lsh.attention import LSHAttention, dense_shared_qk
from polyhead.layers.lsh.hashing import Tape, recording, replaying

PADDED = Mask(keys=torch.arange(23) < torch.tensor([[23], [14]]))
MASKS = {
    "all": NO_MASK,
    "causal": CAUSAL,
    "padded": PADDED,
    "causal and padded": PADDED._replace(causal=True),
}
masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())


@pytest.fixture(autouse=True)
def _same_numbers_every_time(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr("polyhead.layers.lsh.chunked.PIECE", 200)  # several groups, if small


def qv(length=23, d_head=8, dtype=torch.float64):
    return (
        torch.randn(2, 2, length, d_head, dtype=dtype),
        torch.randn(2, 2, length, 5, dtype=dtype),
    )


def visible(buckets, length, chunk, mask, same_bucket):
    """Return visible pairs of one head by brute force, after sections 2.2 and 2.3 of the paper."""
    pairs = set()
    for row in buckets:
        order = sorted(range(length), key=lambda i: (int(row[i]), i))
        chunk_of = {position: slot // chunk for slot, position in enumerate(order)}
        for i in range(length):
            for j in range(length):
                near = chunk_of[i] - chunk_of[j] in (0, 1)
                if near and (row[i] == row[j] or not same_bucket):
                    pairs.add((i, j))
    real, causal = mask
    pairs = {(i, j) for i, j in pairs if real[j] and (j <= i or not causal)}
    strangers = {(i, j) for i, j in pairs if i != j}
    with_company = {i for i, _ in strangers}
    return strangers | {(i, i) for i in range(length) if real[i] and i not in with_company}


def by_hand(q, v, arranged, mask, same_bucket):
    """The formula of the module, one query after the other."""
    out = torch.zeros_like(v)
    length = q.size(-2)
    for b in range(q.size(0)):
        real = [True] * length if mask.keys is None else mask.keys[b].tolist()
        for h in range(q.size(1)):
            rows = arranged.buckets[:, b, h]
            pairs = visible(rows, length, arranged.chunk, (real, mask.causal), same_bucket)
            for i in range(length):
                seen = [j for j in range(length) if (i, j) in pairs]
                if seen:
                    scores = [float(q[b, h, i] @ q[b, h, j] / q[b, h, j].norm()) for j in seen]
                    share = torch.tensor(scores, dtype=q.dtype).softmax(0)
                    out[b, h, i] = share @ v[b, h, seen]
    return out


@masks
@pytest.mark.parametrize("same_bucket", [False, True])
@pytest.mark.parametrize(("chunk", "n_rounds"), [(4, 1), (4, 3), (6, 2)])
def test_the_kernel_is_the_formula_over_who_sees_whom(mask, same_bucket, chunk, n_rounds):
    q, v = qv()
    kernel = LSHAttention(chunk, n_rounds, same_bucket=same_bucket)
    arranged = kernel.arrange(q, mask)
    expected = by_hand(q, v, arranged, mask, same_bucket)
    torch.testing.assert_close(kernel(q, q, v, mask, arranged.buckets), expected)
    torch.testing.assert_close(kernel.weights(q, q, mask, arranged.buckets) @ v, expected)


@pytest.mark.parametrize("decoder", [True, False])
def test_dense_shared_attention_is_that_of_transformers(decoder):
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = reformer.ReformerConfig(
        hidden_size=16,
        num_attention_heads=2,
        attention_head_size=8,
        lsh_attn_chunk_length=64,
        lsh_attention_probs_dropout_prob=0.0,
        num_hashes=2,
        num_buckets=4,
        is_decoder=decoder,
        axial_pos_embds=False,
        attn_layers=["lsh"],
    )
    theirs = reformer.LSHSelfAttention(config).eval()
    x = torch.randn(2, 9, 16)
    real = torch.arange(9) < torch.tensor([[9], [6]])
    with torch.no_grad():
        expected = theirs(x, attention_mask=real).hidden_states
        q, v = (
            layer(x).unflatten(-1, (2, 8)).transpose(1, 2)
            for layer in (theirs.query_key, theirs.value)
        )
        actual = dense_shared_qk(q, v, Mask(keys=real, causal=decoder)).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(actual[real], expected[real], rtol=1e-4, atol=1e-4)


@masks
@pytest.mark.parametrize("same_bucket", [False, True])
def test_gradients_are_the_slopes(mask, same_bucket):
    q, v = (x.requires_grad_() for x in qv())
    kernel = LSHAttention(4, 3, same_bucket=same_bucket)
    buckets = kernel.arrange(q, mask).buckets
    assert torch.autograd.gradcheck(
        lambda q, v: kernel(q, q, v, mask, buckets), (q, v), fast_mode=True
    )


def test_gradients_are_the_slopes_with_dropout_too():
    q, v = (x.requires_grad_() for x in qv(length=11))
    kernel = LSHAttention(4, 2, dropout=0.3)
    buckets = kernel.arrange(q).buckets

    def attend(q, v):
        torch.manual_seed(3)
        return kernel(q, q, v, CAUSAL, buckets)

    assert torch.autograd.gradcheck(attend, (q, v), fast_mode=True)
    assert not torch.allclose(attend(q, v), kernel.eval()(q, q, v, CAUSAL, buckets))


def test_dropout_keeps_the_mean():
    q, v = qv()
    kernel = LSHAttention(4, 2, dropout=0.3)
    buckets = kernel.arrange(q).buckets
    v = torch.ones_like(v)  # dropping none of them would give exactly 1
    outs = torch.stack([kernel(q, q, v, NO_MASK, buckets) for _ in range(20)])
    assert outs.std() > 0.1
    assert outs.mean().item() == pytest.approx(1.0, abs=0.03)


def test_hidden_keys_have_a_bucket_of_their_own():
    q, _ = qv()
    buckets = LSHAttention(4, 2).arrange(q, PADDED).buckets
    apart = ~PADDED.keys[None, :, None].expand_as(buckets)
    assert len(buckets[apart].unique()) == 1
    assert buckets[apart].min() > buckets[~apart].max()


def test_fully_masked_queries_are_zero_and_lone_ones_attend_to_themselves():
    q, v = qv()
    all_masked = Mask(keys=torch.zeros(2, 23, dtype=torch.bool))
    assert (LSHAttention(4, 2)(q, q, v, all_masked) == 0).all()
    only_one = Mask(keys=torch.arange(23).expand(2, -1) == 5)
    torch.testing.assert_close(LSHAttention(4, 2)(q, q, v, only_one)[:, :, 5], v[:, :, 5])
    torch.testing.assert_close(LSHAttention(4, 2)(q, q, v, CAUSAL)[:, :, 0], v[:, :, 0])


def test_the_number_of_rounds_may_change_at_evaluation():
    q, _ = qv()
    kernel = LSHAttention(4, 2, eval_rounds=5)
    assert len(kernel.arrange(q).buckets) == 2
    assert len(kernel.eval().arrange(q).buckets) == 5
    assert len(LSHAttention(4, 2).eval().arrange(q).buckets) == 2


def test_every_call_hashes_anew_and_a_seed_repeats_it():
    q, v = qv()
    kernel = LSHAttention(4, 1)
    torch.manual_seed(5)
    first, second = kernel(q, q, v), kernel(q, q, v)
    torch.manual_seed(5)
    assert torch.equal(kernel(q, q, v), first)
    assert not torch.allclose(second, first)


def test_a_tape_repeats_the_buckets_and_not_the_draws():
    q, v = qv()
    kernel, tape = LSHAttention(4, 2), Tape()
    torch.manual_seed(5)
    with recording(tape):
        first = kernel(q, q, v)
    drawn_next = torch.rand(())
    torch.manual_seed(5)
    with replaying(tape):
        again = kernel(q + 1e-9, q + 1e-9, v)
    assert torch.equal(torch.rand(()), drawn_next)
    torch.testing.assert_close(again, first, rtol=1e-6, atol=1e-6)


def test_a_step_of_decoding_sees_everything_decoded_before():
    layer, x = MultiHeadAttention(8, 2, LSHAttention(4, 2), shared=True), torch.randn(2, 9, 8)
    cache = BlockCache(capacity=9)
    steps = [layer(x[:, [t]], cache.extend(layer.project(x[:, [t]])), CAUSAL) for t in range(9)]
    whole = MultiHeadAttention(8, 2, LSHAttention(64, 2), shared=True)  # one chunk: exact
    whole.load_state_dict(layer.state_dict())
    torch.testing.assert_close(torch.cat(steps, dim=1), whole(x, whole.project(x), CAUSAL))


def test_beams_side_by_side_see_their_own_past_and_themselves_only_if_alone():
    q, v = qv(length=4)
    pairs = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]]).bool().expand(2, 2, 4)
    weights = LSHAttention(4, 2).weights(q[:, :, 2:], q, Mask(pairs=pairs))
    expected = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]], dtype=q.dtype).expand(2, 2, 2, 4)
    torch.testing.assert_close(weights, expected)
    out = LSHAttention(4, 2)(q[:, :, 2:], q, v, Mask(pairs=pairs))
    torch.testing.assert_close(out, v[:, :, [0, 3]])


def test_memory_saved_for_backward_is_linear_in_the_length():
    def kept(length):
        q, v = (x.float().requires_grad_() for x in qv(length))
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.nbytes) or x, lambda x: x
        ):
            LSHAttention(16, 2)(q, q, v, CAUSAL)
        return sum(sizes)

    assert kept(1024) == 4 * kept(256)


def test_large_scores_stay_numbers():
    q, v = qv(dtype=torch.float32)
    q = (1e4 * q).requires_grad_()
    out = LSHAttention(4, 3)(q, q, v, CAUSAL)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(q.grad).all()


def test_half_precision_is_computed_in_full_and_given_back_in_half():
    q, v = (x.to(torch.bfloat16) for x in qv())
    kernel = LSHAttention(4, 2)
    buckets = kernel.arrange(q.float()).buckets
    with torch.autocast("cpu", torch.bfloat16):
        out = kernel(q, q, v, CAUSAL, buckets)
    exact = kernel(q.double(), q.double(), v.double(), CAUSAL, buckets)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), exact, rtol=1e-2, atol=1e-2)
