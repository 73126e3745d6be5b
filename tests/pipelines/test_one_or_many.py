"""Every pipeline takes one input or many, reads lists and files, and shows its results."""

from html.parser import HTMLParser
from inspect import unwrap
from pathlib import Path

import numpy as np
import pytest
from expected_errors import raises
from saved_models import build_all, save_model

import polyhead
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError, DataError
from polyhead.pipelines.result_list import ResultList

LINES = ["the cat sat", "a <b>dog</b> & cat", "the mat", "cats sat on mats", "dogs"]
RED, BLUE = (np.full((8, 8, 3), colour, np.uint8) for colour in ((200, 0, 0), (0, 0, 200)))
SHORT = DecodeConfig(max_length=6)
CALLS = {  # use: one input, another, and the call
    "translate": (LINES[0], LINES[1], lambda m, x: m.translate(x, options=SHORT)),
    "generate": (LINES[0], LINES[1], lambda m, x: m.generate(x, options=SHORT)),
    "fill": ("the [MASK] sat", "a [MASK]", lambda m, x: m.fill(x)),
    "detect": (LINES[0], LINES[1], lambda m, x: m.detect(x)),
    "classify": (LINES[0], LINES[1], lambda m, x: m.classify(x)),
    "classify-image": (RED, BLUE, lambda m, x: m.classify(x, top=2)),
}
uses = pytest.mark.parametrize("use", CALLS)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        use: polyhead.load(save_model(saved, folder / use), device="cpu", engine="torch")
        for use, saved in build_all(LINES).items()
    }


class Elements(HTMLParser):
    """The names of all elements, and the text between them."""

    def __init__(self, html):
        super().__init__()
        self.names, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, _):
        self.names.append(tag)

    def handle_data(self, data):
        self.text += data


@uses
def test_one_input_gives_one_result_and_a_list_gives_a_list(models, use):
    first, second, call = CALLS[use]
    many = call(models[use], [first, second])
    assert isinstance(many, list)
    for given, of_many in zip((first, second), many, strict=True):
        alone = call(models[use], given)
        assert type(alone) is type(of_many)
        shown = [repr(getattr(result, "text", result)) for result in (alone, of_many)]
        assert shown[0] == shown[1]
    assert call(models[use], []) == []


@uses
@pytest.mark.parametrize("given", [None, 7, b"bytes", {"a": 1}, ["text", None], [7]])
def test_other_types_are_one_clear_error(models, use, given):
    code = "not_an_image" if use == "classify-image" else "not_text"
    method = getattr(type(models[use]), use.split("-")[0])
    with raises(ConfigError, code, "a list of"):
        unwrap(method)(models[use], given)  # without the type checks of the tests


def test_pandas_columns_and_arrays_of_images_are_lists(models):
    pandas = pytest.importorskip("pandas")
    texts = models["translate"].translate(pandas.Series(LINES[:2]), options=SHORT)
    assert texts == models["translate"].translate(LINES[:2], options=SHORT)
    assert len(models["classify-image"](np.stack([RED, BLUE]))) == 2


@uses
def test_attention_shows_itself_and_has_a_short_repr(models, use):
    view = models[use].attention(CALLS[use][0])
    assert Elements(view._repr_html_()).names == ["iframe", "script"]
    assert len(repr(view)) < 200
    if use != "classify-image":
        with raises(ConfigError, "not_text"):
            models[use].attention(Path("a.txt"))


def test_evaluation_on_lists_and_files_is_the_same(models, tmp_path):
    sources, references = tmp_path / "a.txt", tmp_path / "b.txt"
    for path, lines in ((sources, LINES), (references, LINES[::-1])):
        path.write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(LINES, LINES[::-1], strict=True))
    )
    translator = models["translate"]
    memory = polyhead.evaluate(translator, LINES, LINES[::-1])
    assert memory == translator.evaluate(sources, str(references))
    assert memory == translator.evaluate(tmp_path / "pairs.tsv")
    short = translator.evaluate(LINES, LINES[::-1], max_length=1, beam=1)
    assert short.outputs == translator.translate(LINES, max_length=1, beam=1) != memory.outputs
    for option, code in (("beams", "unknown_key"), ("seed", "no_effect")):
        with raises(ConfigError, code, option):
            translator.evaluate(LINES, LINES, **{option: 1})
    with raises(DataError, "different_lengths"):
        translator.evaluate(LINES, LINES[1:])
    for use in ("generate", "fill"):
        assert polyhead.evaluate(models[use], LINES) == models[use].evaluate(sources)
    with raises(ConfigError, "unused_references"):
        polyhead.evaluate(models["generate"], LINES, LINES)
    labels = ["yes", "<b>no</b>", "yes", "yes", "yes"]
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(LINES, labels, strict=True))
    (tmp_path / "labelled.tsv").write_text(f"text\tlabel\n{rows}")
    classifier = models["classify"]
    assert (
        classifier.evaluate(LINES, labels).report
        == classifier.evaluate(tmp_path / "labelled.tsv").report
    )
    result = models["classify-image"].evaluate([RED, BLUE], ["yes", "<b>no</b>"])
    assert sum(map(sum, result.report.confusion)) == 2
    for evaluation in (memory, result, models["fill"].evaluate(LINES)):
        assert "table" in Elements(evaluation._repr_html_()).names
        assert len(repr(evaluation)) < 200


def test_results_are_escaped_and_complete(models):
    shown = {
        "best": models["translate"].n_best(LINES[1], options=SHORT),
        "text": models["generate"].generate_tokens(LINES[1], options=SHORT),
        "fill": models["fill"].fill("<script>[MASK]</script>"),
        "words": models["detect"].detect("<img src=x> cat"),
        "labels": models["classify"].classify(LINES[:2]),
    }
    allowed = {"p", "span", "table", "thead", "tbody", "tr", "th", "td"}
    for name, result in shown.items():
        elements = Elements(result._repr_html_())
        assert set(elements.names) <= allowed, name
        assert len(repr(result)) < 200, name
    best = shown["best"][0]
    assert "".join(word for word, _ in best.words) == best.text
    assert f"{100 * best.confidence:.1f} %" in best._repr_html_()
    assert "<b>no</b>" in Elements(shown["labels"]._repr_html_()).text
    many = ResultList(list(shown["labels"]) * 40)
    assert Elements(many._repr_html_()).text.endswith("and 30 more")
