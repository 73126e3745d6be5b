"""ResultList in a notebook, and the attention that it shows in a browser."""

import numpy as np
import pytest
from browsing import until
from saved_models import build_all, save_model

import polyhead

LINES = ["the cat sat", "a dog & cat", "the mat", "cats sat on mats"]
CELLS = (
    "import polyhead; model = polyhead.load({path!r}, device='cpu', engine='torch'); model",
    "model.translate('the cat')",
    "model.translate(['the cat', 'a dog'])",
    "model.n_best('the cat')",
    "model.attention('the cat')",
    "model.evaluate(['the cat', 'a dog'], ['a cat', 'the dog'])",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {use: save_model(saved, folder / use) for use, saved in build_all(LINES).items()}


def test_a_notebook_shows_results_as_html_and_as_text(models):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat").v4
    pytest.importorskip("ipykernel")
    code = [cell.format(path=str(models["translate"])) for cell in CELLS]
    notebook = nbformat.new_notebook(cells=[nbformat.new_code_cell(cell) for cell in code])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = [cell.outputs[-1].data for cell in notebook.cells]
    loaded, one, many, best, attention, evaluation = shown
    assert loaded["text/plain"].startswith("Translator(")
    for data in shown[:3]:
        assert set(data) == {"text/plain"}
    assert one["text/plain"][0] in "'\""
    assert many["text/plain"].startswith("[")
    for data in (best, attention, evaluation):
        assert set(data) == {"text/plain", "text/html"}
        assert len(data["text/plain"]) < 200
    assert " %" in best["text/html"]
    assert attention["text/plain"].startswith("AttentionView(")
    assert attention["text/html"].startswith("<iframe")
    assert "BLEU" in evaluation["text/html"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [480, 1200])
@pytest.mark.parametrize("use", ["translate", "generate", "fill", "classify-image"])
def test_shown_attention_renders_and_fits_its_frame(models, use, width, windows, tmp_path):
    model = polyhead.load(models[use], device="cpu", engine="torch")
    image = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    view = model.attention(image if use == "classify-image" else "the cat sat")
    path = tmp_path / "output.html"
    path.write_text(f"<!DOCTYPE html><body>{view._repr_html_()}", encoding="utf-8")
    page = windows.open(path.as_uri(), width=width, offline=True)
    frame = page.frame_locator("iframe")
    frame.locator("#attention canvas").first.wait_for()
    fits = "(({ scrollWidth: w, scrollHeight: h }) => w <= innerWidth && h <= innerHeight)"
    until(page.frames[1], f"{fits}(document.documentElement)", seconds=20)
