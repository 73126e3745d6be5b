"""ONNX graphs of trained models, in the layout of transformers.js, and their use in onnxruntime.

    onnx/*.onnx                 graphs in float32 (`onnx_modules.py`)
    onnx/*_quantized.onnx       the same with weights of 8 bits
    config.json                 sizes; transformers.js chooses its class by the model_type
    generation_config.json      ids that begin and end an output, and ids that are never written
    preprocessor_config.json    for images
    tokenizer.json, …           the tokenizer

Ids of an imported model are those before its import, as in its tokenizer files.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from polyhead.checkpoint.model_dir import SavedModel, set_weights, weights_of
from polyhead.convert import gpt2, marian
from polyhead.convert import special_ids as ids
from polyhead.convert.exporter import GENERATION, OURS, decode_of, specials_for
from polyhead.convert.hf_vit import pixels_to_hf
from polyhead.convert.onnx_modules import (
    BATCH,
    CACHE,
    DECODER,
    ENCODER,
    EXAMPLE,
    LENGTH,
    MODEL,
    Graph,
    make_graphs,
)
from polyhead.convert.parity import quiet
from polyhead.convert.pixels import PIXELS
from polyhead.convert.reader import CONFIG
from polyhead.convert.target_types import Example, Reader, Written, token_log_p
from polyhead.convert.tokenizer_files import write_json, write_tokenizer
from polyhead.convert.weight_names import TABLES, write_fields
from polyhead.errors import CheckpointError, MissingError
from polyhead.models.registry import FAMILIES, max_positions
from polyhead.tokenizers.base import TextConfig

Tensors = dict[str, Tensor]
MODEL_TYPES = {  # a class of transformers.js with the same inputs and outputs
    "transformer": "marian", "gpt": "gpt2", "bert": "bert", "electra": "electra",
    "classifier": "bert", "vit": "vit",
}  # fmt: skip
GENERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "marian": marian.generation, "gpt2": gpt2.generation,
}  # fmt: skip
QUANTIZED, ONNX = "_quantized", "ONNX graphs"
TWO_VOCABULARIES = "two vocabularies: ids of translations are those of the second tokenizer"
EXPORTER = (2, 13)  # version of torch; the exporter of 2.10 fails on lengths that it cannot bound


def obstacle(family: str, config: Any) -> str | None:
    """Return the reason why a model has no ONNX graphs, or None if it has."""
    if family not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        return f"the family {family} is not one of full attention; expected one of {known}"
    encoder = config.encoder if family == "classifier" else config
    stacks = [encoder.stack, *([config.encoder_stack] if family == "transformer" else [])]
    for kind in (kind for stack in stacks for kind in stack.kinds):
        if kind != "full":
            return f"{kind} attention is not supported; expected full attention in every layer"
    if encoder.stack.experts.n:
        return "mixtures of experts are not supported; expected experts.n = 0"
    longest, least = max_positions(config), max(EXAMPLE.values())
    if longest is not None and longest < least:
        return f"{longest} positions are too few; expected at least {least}"
    return None


def architecture(family: str, config: Any, _text: TextConfig | None = None) -> str:
    """Return the name of ONNX graphs; CheckpointError if there are none for this model."""
    reason = obstacle(family, config)
    if reason is not None:
        raise CheckpointError(f"no ONNX graphs: {reason}", "not_exportable")
    return ONNX


def write(
    saved: SavedModel,
    folder: Path,
    *,
    int8: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> Written:
    """Write graphs, configuration and tokenizer of a model into a folder.

    int8: write graphs with weights of 8 bits too.
    progress: called with a line before each file that takes several seconds.
    """
    task, (config, model) = FAMILIES[saved.family].task, _exportable(saved)
    (folder / "onnx").mkdir()
    for graph in make_graphs(task, model, config):
        path = folder / "onnx" / f"{graph.file}.onnx"
        progress(f"writing {path.name} (10 to 20 seconds) …")
        export_graph(graph, path)
        if int8:
            progress(f"writing {quantized(path).name} …")
            quantize(path)
    for name, values in settings(saved, config).items():
        write_json(folder / name, values)
    if saved.tokenizers is None:
        return Written(ONNX, "none")
    kind = write_tokenizer(saved.tokenizers, folder, task, max_positions(config))
    shared = saved.tokenizers.config.joint
    return Written(ONNX, kind, () if shared else (TWO_VOCABULARIES,))


def quantized(path: Path) -> Path:
    """Return the path of the graph with weights of 8 bits."""
    return path.with_stem(path.stem + QUANTIZED)


def _exportable(saved: SavedModel) -> tuple[Any, Any]:
    """Return configuration and copy of a model: ids before import, no chunks, on the CPU."""
    specials = specials_for(saved)
    config, weights = ids.with_their_ids(saved.config, specials), weights_of(saved.model)
    if specials is not None:
        weights = ids.restored(saved.family, weights, specials)
    if saved.family == "classifier":
        stack = replace(config.encoder.stack, feed_chunk=0)
        config = replace(config, encoder=replace(config.encoder, stack=stack))
    else:
        config = replace(config, stack=replace(config.stack, feed_chunk=0))
    model = FAMILIES[saved.family].model(config)
    set_weights(model, weights)
    return config, model.eval()


def settings(saved: SavedModel, config: Any) -> dict[str, dict[str, Any]]:
    """Return the contents of JSON files by name."""
    specials, kind = specials_for(saved) or OURS, MODEL_TYPES[saved.family]
    stack = (config.encoder if saved.family == "classifier" else config).stack
    sizes = TABLES[kind if kind in GENERATIONS else "bert"]["stack"]
    values = {"model_type": kind} | write_fields(stack, sizes)
    files = {CONFIG: values}
    if kind in GENERATIONS:
        greedy = replace(decode_of(saved), beam=1, n_best=1)  # transformers.js has no beam search
        files[GENERATION] = GENERATIONS[kind](specials, config, greedy)
        values |= {name: id for name, id in files[GENERATION].items() if name.endswith("_id")}
    if kind == "marian":
        values |= {"is_encoder_decoder": True, "decoder_attention_heads": stack.n_heads}
        values["decoder_layers"] = config.decoder_layers or stack.n_layers
    elif kind == "vit":
        files[PIXELS] = pixels_to_hf(config)
    if saved.family in ("classifier", "vit"):
        classes = saved.about.get("classes")
        names = classes if isinstance(classes, list) else range(config.classes)
        values["id2label"] = {str(i): str(name) for i, name in enumerate(names)}
        values["label2id"] = {str(name): i for i, name in enumerate(names)}
    return files


def check_torch() -> None:
    """Raise MissingError if the exporter of the installed torch is too old."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < EXPORTER:
        oldest = ".".join(map(str, EXPORTER))
        raise MissingError(
            f"the exporter of torch {torch.__version__} lacks what our graphs need: pip install "
            f'"torch>={oldest},<3"',
            "old_torch",
        )


def export_graph(graph: Graph, path: Path) -> None:
    """Write a graph in float32."""
    check_torch()
    import onnx

    shapes = [
        {i: torch.export.Dim.DYNAMIC for i, axis in enumerate(axes) if isinstance(axis, str)}
        for axes in graph.inputs.values()
    ]
    n_cached = sum(name.startswith(CACHE) for name in graph.inputs)
    first = len(shapes) - n_cached
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.module, graph.example(), dynamo=True, verbose=False,
            dynamic_shapes=(*shapes[:first], *([tuple(shapes[first:])] if n_cached else ())),
            input_names=list(graph.inputs), output_names=list(graph.outputs),
        )  # fmt: skip
    assert program is not None
    proto = program.model_proto
    for value in (*proto.graph.input, *proto.graph.output):
        axes = (graph.inputs | graph.outputs)[value.name]
        for dim, axis in zip(value.type.tensor_type.shape.dim, axes, strict=False):
            if isinstance(axis, str):
                dim.dim_param = axis
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.initializer):
        del part.metadata_props[:]  # stack traces, with paths of this machine
        part.doc_string = ""
    del proto.graph.value_info[:]
    onnx.save(proto, path)


def quantize(path: Path) -> None:
    """Write a copy of a graph with weights of 8 bits beside it."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = onnx.load(path)
    _transpose_weights(proto.graph, onnx.numpy_helper)
    with quiet():
        quantize_dynamic(
            proto, quantized(path), weight_type=QuantType.QInt8, per_channel=True,
            reduce_range=True,  # 7 bits: sums of larger products overflow without VNNI
        )  # fmt: skip


def _transpose_weights(graph: Any, arrays: Any) -> None:
    """Replace transposed weights by weights, because only these are quantized."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = [n for n in graph.node if n.op_type == "Transpose" and n.input[0] in weights]
    for node in nodes:
        axes = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
        array = arrays.to_array(weights[node.input[0]]).transpose(axes)
        graph.initializer.append(arrays.from_array(array.copy(), node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for name in weights.keys() - used:
        graph.initializer.remove(weights[name])


def open_graphs(saved: SavedModel, folder: Path, *, int8: bool) -> Reader:
    """Return a reader of a folder; it has a search, of beam 1, for translators only."""
    model = OnnxModel(saved, folder, int8=int8)
    return Reader(model.outputs, model.search if ENCODER in model.sessions else None, beams=(1,))


class OnnxModel:
    """Graphs of a folder. Texts are in the ids of the model that was exported."""

    def __init__(self, saved: SavedModel, folder: Path, *, int8: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        paths = [folder / "onnx" / f"{name}.onnx" for name in (ENCODER, DECODER, MODEL)]
        self.sessions: dict[str, Any] = {
            path.stem: onnxruntime.InferenceSession(quantized(path) if int8 else path, options)
            for path in paths
            if path.exists()
        }
        specials = specials_for(saved)
        self.specials = OURS if specials is None else specials
        self.source, self.target = ids.id_tables(saved.config, specials)

    def run(self, name: str, feeds: Tensors) -> Tensors:
        """Run a graph; caches that are not given are empty."""
        session, feeds = self.sessions[name], dict(feeds)
        sizes = {BATCH: len(next(iter(feeds.values())))}
        for value in session.get_inputs():
            if value.name.startswith(CACHE) and value.name not in feeds:
                shape = [sizes.get(n, 0) if isinstance(n, str) else n for n in value.shape]
                feeds[value.name] = torch.zeros(shape)
        outputs = session.run(None, {name: value.numpy() for name, value in feeds.items()})
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, map(torch.from_numpy, outputs), strict=True))

    def read(self, name: str, texts: Sequence[Tensor]) -> Tensors:
        """Return the inputs of a graph for texts in their ids, padded on the right."""
        padded = pad_sequence(list(texts), batch_first=True, padding_value=self.specials.pad)
        place = torch.arange(padded.size(1)).expand_as(padded)
        mask = (place < torch.tensor([[len(text)] for text in texts])).long()
        ends = (padded == self.specials.eos).long()
        feeds = {
            "input_ids": padded, "attention_mask": mask, "position_ids": place,
            "token_type_ids": ((ends.cumsum(1) - ends) * mask).clamp(max=1),
        }  # fmt: skip
        wanted = [value.name for value in self.sessions[name].get_inputs()]
        return {name: feeds[name] for name in wanted if name in feeds}

    def encode(self, sources: Sequence[list[int]]) -> Tensors:
        """Return the inputs of the decoder that come from the encoder."""
        inputs = self.read(ENCODER, [self.source[source] for source in sources])
        states = self.run(ENCODER, inputs)["last_hidden_state"]
        mask = inputs["attention_mask"]
        return {"encoder_hidden_states": states, "encoder_attention_mask": mask}

    def outputs(self, examples: Sequence[Example]) -> list[Tensor]:
        """Return log p of the targets, or the logits of examples without; see `Reader`."""
        if isinstance(examples[0].source, Tensor):
            images = torch.stack([example.source for example in examples])
            return list(self.run(MODEL, {"pixel_values": images})["logits"])
        texts = [self.source[example.source] for example in examples]
        targets = [self.target[example.target] for example in examples]
        if ENCODER in self.sessions:
            start = torch.tensor([self.specials.bos])
            texts = [torch.cat([start, target[:-1]]) for target in targets]
            memory = self.encode([example.source for example in examples])
            logits = self.run(DECODER, self.read(DECODER, texts) | memory)["logits"]
        else:
            logits = self.run(MODEL, self.read(MODEL, texts))["logits"]
        if not examples[0].target:
            per_token = self.sessions[MODEL].get_outputs()[0].shape[1:2] == [LENGTH]
            cut = [len(text) if per_token else None for text in texts]
            return [row[:end] for row, end in zip(logits, cut, strict=True)]
        return token_log_p(logits[..., self.target], examples)

    def search(self, sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        """Return the greedy output of each source, of at most `limit` ids, without EOS."""
        assert beam == 1, f"a beam of {beam}: only greedy search is there"
        pad, bos, eos = self.specials.pad, self.specials.bos, self.specials.eos
        feeds = self.encode(sources) | {"input_ids": torch.full((len(sources), 1), bos)}
        written: list[Tensor] = []
        ended = torch.zeros(len(sources), dtype=torch.bool)
        while len(written) < limit and not bool(ended.all()):
            present = self.run(DECODER, feeds)
            logits = present.pop("logits")[:, -1]
            logits[:, sorted({pad, bos} - {eos})] = -torch.inf
            written.append(logits.argmax(-1))
            ended |= written[-1] == eos
            feeds["input_ids"] = written[-1][:, None]
            feeds |= {name.replace("present", CACHE): t for name, t in present.items()}
        ours = {their: our for our, their in enumerate(self.target.tolist())}
        rows = [[*row, eos] for row in torch.stack(written, 1).tolist()]
        return [[ours[id] for id in row[: row.index(eos)]] for row in rows]
