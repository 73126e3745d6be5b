"""Exported ONNX graphs compute in onnxruntime what the model computes in torch."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import small_models as small
import torch
from expected_errors import raises
from saved_models import save_model

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert import onnx_graphs, special_ids
from polyhead.convert.onnx_graphs import OnnxModel, open_graphs
from polyhead.convert.onnx_modules import BATCH, CACHE, DECODER, ENCODER, MODEL, make_graphs
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.target_types import Example
from polyhead.data.batches.base import pad
from polyhead.decoding.batch import search
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, MissingError
from polyhead.models import registry as models
from polyhead.special_tokens import BOS, EOS, PAD

LIMIT, LONGEST = 1e-4, 9
TEXTS = [[3, 4, 5, 6, 7, 8, 2], [9, 10, 2], [2], [5, 5, 2], [8, 4, 2]]
BATCHES = [TEXTS[:1], TEXTS[2:3], TEXTS, TEXTS[3:]]  # one text or several, padded or not
NAMES = {entry.config: name for name, entry in models.FAMILIES.items()}
BERT = models.BERTConfig(small.VOCAB, 12, stack=replace(small.STACK, activation="gelu"))
VIT = models.ViTConfig(3, 8, 12, patch=4, stack=small.PRE)
OTHERS = {
    "bert": BERT,
    "bert rotary": replace(BERT, positions="rotary", segments=1, stack=small.PRE, d_embed=6),
    "classifier": models.ClassifierConfig(3, encoder=BERT),
    "classifier mean": models.ClassifierConfig(3, "electra", "mean", encoder=BERT),
    "electra": models.ElectraConfig(small.VOCAB, 12, d_embed=6, stack=BERT.stack),
    "vit": VIT,
    "vit of two class tokens": replace(VIT, class_tokens=2),
    "vit mean": replace(VIT, pooling="mean", positions="rotary", stem=(4,)),
}
ALL = small.TRANSFORMERS | small.WRITERS | OTHERS
WRITABLE = {n: c for n, c in ALL.items() if not onnx_graphs.obstacle(NAMES[type(c)], c)}
THEIRS = SpecialIds(pad=7, bos=7, eos=0, unk=1)  # as in OPUS-MT: padding begins a translation

EXPORT = """
import sys
from pathlib import Path
from polyhead.checkpoint.model_dir import load_model
from polyhead.convert.onnx_graphs import write
for family in sys.argv[2:]:
    path = Path(sys.argv[1], family)
    write(load_model(path), path.with_name(f"{family}-onnx"), int8=True)
"""


class TorchGraphs(OnnxModel):
    """The modules that become graphs, run by torch."""

    def __init__(self, saved):
        self.specials, self.source = SpecialIds(PAD, BOS, EOS), torch.arange(small.VOCAB)
        self.target, task = self.source, models.FAMILIES[saved.family].task
        graphs = make_graphs(task, saved.model, saved.config)
        self.sessions = {graph.file: TorchSession(graph) for graph in graphs}


class TorchSession:
    """A module with the interface of an onnxruntime session."""

    def __init__(self, graph):
        self.graph = graph

    def get_inputs(self):
        return [SimpleNamespace(name=n, shape=s) for n, s in self.graph.inputs.items()]

    def get_outputs(self):
        return [SimpleNamespace(name=n, shape=list(s)) for n, s in self.graph.outputs.items()]

    @torch.no_grad()
    def run(self, _, feeds):
        outputs = self.graph.module(*(torch.tensor(feeds[name]) for name in self.graph.inputs))
        return [t.numpy() for t in (outputs if isinstance(outputs, tuple) else (outputs,))]


def save(config, about=None):
    model = small.grown(small.make(config), 0.3)
    return SavedModel(NAMES[type(config)], config, model, None, about or {})


@torch.no_grad()
def check(saved, graphs):
    """Compare outputs of the model and of its graphs for texts and images of several sizes."""
    model, task = saved.model, models.FAMILIES[saved.family].task
    if task == "image_classification":
        for images in (torch.randn(3, 3, 8, 12), torch.randn(1, 3, 8, 12)):
            close(model(images), graphs.run(MODEL, {"pixel_values": images})["logits"])
        return
    for sources in BATCHES:
        targets = [[*s[::-1][1:], 3, EOS] if task == "translation" else [] for s in sources]
        theirs = graphs.outputs([Example(*pair) for pair in zip(sources, targets, strict=True)])
        if task == "translation":
            given = pad([[BOS, *target[:-1]] for target in targets])
            logits, memory = model(pad(sources), given), graphs.encode(sources)
            feeds = memory | {"input_ids": graphs.target[given]}
            stepwise = in_steps(graphs, DECODER, feeds)
            close(logits[..., EOS:], stepwise[..., graphs.target[EOS:]])
            logits[..., :EOS] = -torch.inf  # PAD and BOS are never written
            log_p = logits.log_softmax(-1)
            ours = [row[range(len(t)), t] for row, t in zip(log_p, targets, strict=True)]
            assert graphs.search(sources, 1, LONGEST) == greedy(model, sources)
        else:
            logits = (model.suspect if task == "replaced_token" else model)(pad(sources))
            ends = [None if task == "text_classification" else len(s) for s in sources]
            ours = [row[:end] for row, end in zip(logits, ends, strict=True)]
        for mine, other in zip(ours, theirs, strict=True):
            close(mine, other)


def in_steps(graphs, name, feeds):
    """Return the logits of a decoder that reads 2 tokens, then 1, then the rest."""
    cache, logits, length = {}, [], feeds["input_ids"].size(1)
    for start, end in ((0, 2), (2, 3), (3, length)):
        starts = {"input_ids": start, "position_ids": start, "attention_mask": 0}
        step = {n: t[:, starts[n] : end] if n in starts else t for n, t in feeds.items()}
        if step["input_ids"].numel():
            present = graphs.run(name, step | cache)
            logits.append(present.pop("logits"))
            cache = {name.replace("present", CACHE): value for name, value in present.items()}
    return torch.cat(logits, dim=1)


def greedy(model, sources):
    options = DecodeConfig(beam=1, max_length=LONGEST)
    rows = search(model, pad(sources), options).tokens[:, 0].tolist()
    return [[id for id in row if id not in (EOS, PAD)] for row in rows]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=LIMIT, rtol=1e-5)


@pytest.mark.parametrize("name", WRITABLE)
def test_modules_of_graphs_compute_what_the_model_computes(name):
    saved = save(WRITABLE[name])
    check(saved, TorchGraphs(saved))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("transformer local sinusoidal", "local attention"),
        ("transformer lsh", "lsh attention"),
        ("transformer experts sinusoidal", "experts"),
        ("reformer remembering", "family reformer"),
        ("gpt mixed sinusoidal", "local attention"),
    ],
)
def test_models_without_graphs_are_refused_in_one_line_with_the_reason(name, reason):
    config = ALL[name]
    with raises(CheckpointError, "not_exportable", reason):
        onnx_graphs.architecture(NAMES[type(config)], config)


def test_an_exporter_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0+cu128")
    with raises(MissingError, "old_torch"):
        onnx_graphs.check_torch()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return models with the folders of their graphs, by family.

    They are exported by another process: lengths that are traced are symbols, which the checks of
    types in this one refuse.
    """
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    try:
        onnx_graphs.check_torch()
    except MissingError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("graphs")
    saved = {"transformer": imported_translator(), "gpt": gpt()}
    for family, model in saved.items():
        save_model(model, folder / family)
        (folder / f"{family}-onnx").mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", EXPORT, folder, *saved], check=True, env=environment)
    return {family: (model, folder / f"{family}-onnx") for family, model in saved.items()}


def imported_translator():
    """Return a model with the special ids of another library, and one id more than there."""
    stack = replace(small.PRE, n_heads=3, d_k=6, d_v=3)
    theirs = models.TransformerConfig(
        small.VOCAB - 1, small.VOCAB - 1, positions="rotary", output_bias=True, pad=THEIRS.pad,
        stack=stack, decoder_layers=1,
    )  # fmt: skip
    weights = dict(save(theirs).model.named_parameters())
    weights = special_ids.renumbered("transformer", weights, THEIRS)
    saved = save(special_ids.with_our_ids(theirs, THEIRS), {"imported": {"specials": vars(THEIRS)}})
    saved.model.load_state_dict(weights, strict=False)
    return saved


def gpt():
    stack = replace(small.PRE, n_layers=1)
    return save(models.GPTConfig(small.VOCAB, 12, stack=stack))


def test_a_translator_is_the_same_in_onnxruntime(written):
    saved, folder = written["transformer"]
    check(saved, OnnxModel(saved, folder))
    assert saved.model.to_logits.bias[BOS] == special_ids.NEVER_SAID
    assert any(greedy(saved.model, TEXTS))


def test_a_language_model_is_the_same_in_steps_of_any_size_and_with_padding_on_the_left(written):
    saved, folder = written["gpt"]
    graphs = OnnxModel(saved, folder)
    check(saved, graphs)
    text = torch.tensor([[3, 4, 5, 6, 7, 8], [PAD, PAD, 9, 3, 4, 10]])
    mask = (text != PAD).long()
    place = (mask.cumsum(1) - 1).clamp(min=0)
    feeds = {"input_ids": text, "position_ids": place, "attention_mask": mask}
    logits = in_steps(graphs, MODEL, feeds)
    with torch.no_grad():
        close(saved.model(text[:1])[0], logits[0])
        close(saved.model(text[1:, 2:])[0], logits[1, 2:])


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_weights_of_8_bits_change_little(written, family):
    saved, folder = written[family]
    examples = [Example(text, text) for text in TEXTS]
    exact, rough = (open_graphs(saved, folder, int8=b).outputs(examples) for b in (False, True))
    difference = max(float((a - b).abs().max()) for a, b in zip(exact, rough, strict=True))
    assert 1e-4 < difference < 0.5


def test_files_have_the_names_that_transformers_js_expects_and_no_paths(written):
    import onnx

    _, folder = written["transformer"]
    config = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (config["model_type"], config["is_encoder_decoder"]) == ("marian", True)
    assert (config["encoder_layers"], config["decoder_layers"]) == (2, 1)
    assert generation["decoder_start_token_id"] == THEIRS.bos
    assert generation["eos_token_id"] == THEIRS.eos
    assert generation["bad_words_ids"] == [[THEIRS.pad]]
    names = {ENCODER, DECODER, f"{ENCODER}_quantized", f"{DECODER}_quantized"}
    assert {file.stem for file in (folder / "onnx").iterdir()} == names
    for file in (folder / "onnx").iterdir():
        graph = onnx.load(file).graph
        onnx.checker.check_model(str(file), full_check=True)
        assert {v.type.tensor_type.shape.dim[0].dim_param for v in graph.input} == {BATCH}
        assert b"site-packages" not in file.read_bytes()


def test_weights_that_a_graph_transposes_are_quantized_too(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [BATCH, d]) for n, d in (("x", 8), ("y", 6)))
    weight = onnx.numpy_helper.from_array(torch.randn(6, 8).numpy(), "w")
    nodes = [
        onnx.helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        onnx.helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "g.onnx")
    onnx_graphs.quantize(tmp_path / "g.onnx")
    quantized = onnx.load(tmp_path / "g_quantized.onnx").graph
    kinds = {node.op_type for node in quantized.node}
    assert "MatMulInteger" in kinds
    assert not {"Transpose", "MatMul"} & kinds


def test_a_classifier_and_an_image_model_keep_their_classes():
    for config, file in ((OTHERS["classifier"], ""), (VIT, "preprocessor_config.json")):
        saved = replace(save(config), about={"classes": ["나쁨", "좋음", "보통"]})
        files = onnx_graphs.settings(saved, config)
        assert files["config.json"]["id2label"] == {"0": "나쁨", "1": "좋음", "2": "보통"}
        assert not file or files[file]["size"] == {"height": 8, "width": 12}
