"""Training in a notebook: a display that is updated in place, and a result that shows itself."""

import pytest
from tiny import SMALL

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

TRAIN = f"""
import torch; torch.set_num_threads(1)
import polyhead
sources = ["문장 %d" % n for n in range(60)]
targets = ["sentence %d" % n for n in range(60)]
more = ["text.vocab=300", "train.steps=3", "train.validate_every=2", "train.log_every=1"]
overrides = {list(SMALL)!r} + more
polyhead.train(source=sources, target=targets, run="run", overrides=overrides)
"""


def test_a_notebook_shows_the_curve_while_training_and_the_result_after(tmp_path):
    cells = [nbformat.v4.new_code_cell(code) for code in (TRAIN, "_.plot()")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    training, picture = (cell["outputs"] for cell in notebook.cells)
    kinds = [output["output_type"] for output in training]
    assert kinds == ["display_data", "execute_result"]
    live = training[0]["data"]["text/html"]  # updated in place: one output, in its last state
    assert "finished at step 3" in live
    assert 'max="3"' in live
    assert "data:image/svg+xml" in live
    assert "<th>bleu</th>" in training[1]["data"]["text/html"]
    assert picture[0]["data"]["image/svg+xml"].startswith("<svg")
    assert {"text/html", "text/plain"} < picture[0]["data"].keys()
