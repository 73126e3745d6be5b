"""Weights, options, schema and answers are as recorded; see tests/support/snapshots.py.

Where the processor or torch differ from those of the recording, the last bits of a training may
differ too: there the sizes and the mean of the weights are compared, and the answers' shapes.
"""

import json

import pytest
import snapshots


def shape(value):
    """Return the structure of an answer: its keys and the kinds of its values."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.slow
def test_weights_options_schema_and_answers_are_as_recorded(tmp_path):
    recorded = {
        name: json.loads((snapshots.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("weights", "options", "openapi", "http")
    }
    now = json.loads(json.dumps(snapshots.record(tmp_path)))
    assert now["options"] == recorded["options"]
    assert now["openapi"] == recorded["openapi"]
    exact = now["weights"].pop("environment") == recorded["weights"].pop("environment")
    for run, weights in recorded["weights"].items():
        assert now["weights"][run]["values"] == weights["values"]
        assert now["weights"][run]["mean"] == pytest.approx(weights["mean"], rel=1e-2), run
    if exact:
        assert now["weights"] == recorded["weights"]
        assert now["http"] == recorded["http"]
    else:
        assert shape(now["http"]) == shape(recorded["http"])
