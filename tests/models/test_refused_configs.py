"""Configurations that are impossible: an error of one line that says what to write."""

import json
import resource

import pytest
from cpu_time import cpu_time
from expected_errors import raises

from polyhead.config import from_dict, plain
from polyhead.errors import ConfigError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models import registry as models

EXPERTS = ExpertsConfig(n=4)
REFUSED = [
    (models.Seq2SeqConfig, {"teacher_forcing": 1.5}, "teacher_forcing = 1.5: expected 0 to 1"),
    (models.Seq2SeqConfig, {"bidirectional": True, "reverse_source": True}, "both ends already; s"),
    (models.Seq2SeqConfig, {"d_output": 5}, "d_output = 5: it is the width of a maxout, which on"),
    (models.LadderConfig, {"teacher_forcing": 1.5}, "teacher_forcing = 1.5: expected 0 to 1"),
    (models.LadderConfig, {"bidirectional": True, "reverse_source": True}, "both ends already; se"),
    (models.GNMTConfig, {"n_layers": 1}, "n_layers = 1: expected at least 2"),
    (models.DeepAttConfig, {"decoder_layers": 0}, "decoder_layers = 0: expected at least 1"),
    (models.LuongConfig, {"attention": "local_m", "window": 0}, "window = 0: expected at least 1"),
    (models.ConvS2SConfig, {"encoder": ((8, 4),)}, "encoder kernel = 4: expected an odd n.*3 or 5"),
    (models.ConvS2SConfig, {"decoder": ((8, 0),)}, "decoder kernel = 0: expected at least 1"),
    (models.ConvS2SConfig, {"encoder": ()}, "encoder = 0 layers: expected 1 to 1000, as in encod"),
    (models.ConvS2SConfig, {"decoder": ((0, 3),)}, r"decoder = \[0, 3\]: expected a width of 1 or"),
    (models.ByteNetConfig, {"kernel": 2}, "kernel = 2: expected an odd number.*1 or 3"),
    (models.ByteNetConfig, {"d_model": 15}, "d_model = 15: expected an even number"),
    (models.ByteNetConfig, {"decoder_layers": 0}, "decoder_layers = 0: expected at least 1"),
    (models.ByteNetConfig, {"max_dilation": 12}, "max_dilation = 12: expected a power of 2"),
    (models.ByteNetConfig, {"a": -1.0}, "a = -1.0, b = 0: expected no number below 0"),
    (models.MoEConfig, {"n_layers": 1}, "n_layers = 1, decoder_layers = 2: expected at least 2 of"),
    (models.MoEConfig, {"decoder_layers": 1}, "decoder_layers = 1: expected at least 2 of each"),
    (models.MoEConfig, {"experts": ExpertsConfig()}, r"experts.n = 0: .* GNMT \(gnmt\) has no"),
    (models.MoEConfig, {"d_model": 8, "d_hidden": 8}, r"expected more than d_model \(8\); leave"),
    (models.MoEConfig, {"d_model": 8, "d_hidden": 9}, "d_hidden = 9: expected an even number, be"),
    (models.TransformerConfig, {"source_vocab": 5, "target_vocab": 6, "tie": "all"},
     "one joint vocabulary, but the source has 5 entries and"),
    (models.ClassifierConfig, {"classes": 1}, "classes = 1: a classifier needs at least 2 classes"),
    (models.ElectraConfig, {"sharing": "all"}, "needs a generator of the same size, but generator"),
    (models.ElectraConfig, {"generator_size": 0.0}, "generator_size = 0.0: expected a fraction ab"),
    (models.ViTConfig, {"patch": 2, "stem": (8, 8)}, "4 times as small, and patches of 2 x 2"),
    (models.ViTConfig, {"stem": (8, 0)}, r"stem = \[8, 0\]: expected numbers of channels above 0"),
    (StackConfig, {"attention": "local", "score": "additive"},
     'local attention supports score = "scaled_dot" only, got \'additive\'; leave score out'),
    (StackConfig, {"attention": ("full", "lsh"), "score": "dot"}, "lsh attention supports score"),
    (StackConfig, {"attention": ()}, r"attention = \[\]: name at least one kind"),
    (StackConfig, {"attention": "local", "window": 0}, "window = 0: expected at least 1"),
    (StackConfig, {"reversible": True}, 'norm is "post"; write norm = "pre", or reversible = fal'),
    (StackConfig, {"reversible": True, "norm": "pre", "experts": EXPERTS},
     "reversible = true: the balance of experts needs what this would forget; leave it out"),
    (StackConfig, {"feed_chunk": 9, "experts": EXPERTS}, "feed_chunk = 9: the balance of experts"),
    (StackConfig, {"d_model": 16, "n_heads": 3}, r"multiple of n_heads \(3\); write n_heads = 2"),
    (StackConfig, {"n_heads": 0}, r"multiple of n_heads \(0\); write n_heads = 1"),
    (LSHConfig, {"buckets": 7}, "n_buckets must be even.* got 7; write 8"),
    (LSHConfig, {"chunk": 0}, "chunk = 0: expected at least 1"),
    (LSHConfig, {"rounds": 0}, "rounds = 0: expected at least 1"),
    (LSHConfig, {"eval_rounds": -1}, "eval_rounds = -1: expected at least 0"),
    (StackConfig, {"d_k": 0}, "d_k = 0: expected at least 1"),
    (ExpertsConfig, {"n": -1}, "n = -1: expected a number of experts, or 0 for none"),
    (ExpertsConfig, {"n": 4, "k": 5}, "k = 5: of n = 4 experts, 1 to 4 can be chosen"),
    (ExpertsConfig, {"n": 4, "k": 0}, "k = 0: of n = 4 experts, 1 to 4 can be chosen"),
    (ExpertsConfig, {"n": 8, "k": 2, "groups": 3}, "groups = 3: expected a divisor of n = 8 with"),
    (ExpertsConfig, {"n": 8, "k": 2, "groups": 8}, "groups = 8: expected a divisor of n = 8 with"),
    (ExpertsConfig, {"n": 4, "load": -0.1}, "load = -0.1: expected 0 or more"),
    (ExpertsConfig, {"n": 4, "noise": False}, "load = 0.01: without noise the load has no gradi"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "values", "message"), REFUSED)
def test_impossible_values_are_refused_with_what_to_write(config, values, message):
    with pytest.raises(ValueError, match=message) as error:
        config(**values)
    assert "\n" not in str(error.value)


EXTREMES = (2**61 - 1, 10**9, -1, 0)


def numbers_of(values, path=()):
    """Yield the paths of all numbers in plain values; None may be a number."""
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        if isinstance(value, dict | list):
            yield from numbers_of(value, (*path, key))
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield (*path, key)


def changed(values, path, value):
    copy = inner = json.loads(json.dumps(values))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def shallow(values):
    """Return values with one or two layers, which are built more quickly."""
    if isinstance(values, dict):
        return {k: 2 if "layers" in k and v else shallow(v) for k, v in values.items()}
    return values[:1] if isinstance(values, list) else values


@pytest.mark.parametrize("family", models.FAMILIES)
def test_extreme_numbers_are_refused_or_used_at_once(family):
    """Every number of every family, set to four values: no hang, no memory, no other error."""
    kind = models.FAMILIES[family].config
    base = shallow(plain(kind()))
    models.outline(family, from_dict(kind, base))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in numbers_of(base):
        for value in EXTREMES:
            message = ""
            with cpu_time() as used:
                try:
                    models.outline(family, from_dict(kind, changed(base, path, value), "model."))
                except ConfigError as error:
                    message = str(error)
            assert "\n" not in message
            assert len(message) < 500
            assert message or value != EXTREMES[0], path
            assert used.seconds < 1, (path, value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + 100 * 1024


def test_building_ends_at_the_largest_number_of_tensors():
    config = models.GPTConfig(vocab=9, stack=StackConfig(d_model=8, n_heads=2, experts=EXPERTS))
    n_tensors = len(list(models.outline("gpt", config).parameters()))
    assert len(list(models.outline("gpt", config, 2 * n_tensors).parameters())) == n_tensors
    with raises(ConfigError, "too_many_tensors"):
        models.outline("gpt", config, n_tensors // 2)
    assert models.GPT(config)  # nothing is counted afterwards
