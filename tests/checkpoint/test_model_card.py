"""Model cards: the Hub's own parser reads them; curve and samples are those of the run."""

import json
from dataclasses import replace

import pytest

from polyhead.checkpoint.model_card import front_matter, model_card
from polyhead.checkpoint.model_dir import load_model
from polyhead.models.registry import FAMILIES, find_task


def test_the_hub_reads_the_card_of_a_trained_model(tiny_run):
    hub = pytest.importorskip("huggingface_hub")
    text = (tiny_run / "last" / "README.md").read_text(encoding="utf-8")
    card = hub.ModelCard(text)
    assert (card.data.library_name, card.data.pipeline_tag) == ("polyhead", "translation")
    assert (card.data.language, card.data.tags) == (["ko", "en"], ["transformer"])
    lines = (tiny_run / "metrics.jsonl").read_text().splitlines()
    valid = [entry for entry in map(json.loads, lines) if entry["kind"] == "valid"]
    assert f"| {valid[-1]['step']} | {valid[-1]['loss']:.4f} |" in card.text
    newest = sorted((tiny_run / "samples").iterdir())[-1].read_text(encoding="utf-8")
    assert all(f"    {line}" in card.text.splitlines() for line in newest.splitlines()[:3])


def test_the_curve_has_a_bar_for_every_validation(tiny_run):
    saved = load_model(tiny_run)
    losses = [8.0, 4.5, None, 1.0, 1.5]  # one is not finite
    entries = [{"step": 10 * i, "loss": loss} for i, loss in enumerate(losses, 1)]
    text = model_card(saved, entries)
    assert "(loss: █▅▁▂)" in text  # the bars are linear from the smallest to the largest
    assert "| 30 | not finite |" in text
    new = replace(saved, about={"languages": ["ko", ""]})
    assert "not validated yet" in model_card(new)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_pipeline_of_the_hub(family):
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(
        front_matter(family, {"languages": ['k"o', "no"]})
    ).data  # `no` is a boolean in YAML
    assert data.pipeline_tag == find_task(FAMILIES[family].task).tag
    assert data.language == ['k"o', "no"]
