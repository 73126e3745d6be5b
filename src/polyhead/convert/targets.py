"""The table of export targets: `polyhead export MODEL --to NAME`."""

import importlib.util
from typing import Any

from polyhead.config import suggest
from polyhead.convert import ctranslate2_target, gguf_file, onnx_graphs
from polyhead.convert.exporter import architecture_in, open_folder, write_folders
from polyhead.convert.target_types import FLOAT, Target
from polyhead.convert.timm_vit import TIMM
from polyhead.engines.ctranslate2_model import COMPUTE_TYPES
from polyhead.errors import CheckpointError, ConfigError, MissingError, install_command
from polyhead.models.registry import plugin_parts
from polyhead.tokenizers.base import TextConfig

INT8 = "int8"
TARGETS = {
    target.name: target
    for target in (
        Target(
            "hf", "Hugging Face transformers",
            lambda family, config, _: architecture_in("hf", family, config),
            lambda saved, folder, _, __: write_folders(saved, folder, "hf"),
            lambda saved, folder, _: open_folder(saved, folder),
        ),
        Target(
            TIMM, "timm",
            lambda family, config, _: architecture_in(TIMM, family, config),
            lambda saved, folder, _, __: write_folders(saved, folder, TIMM), library=TIMM,
        ),
        Target(
            "ctranslate2", "CTranslate2", ctranslate2_target.architecture,
            lambda saved, folder, kind, _: ctranslate2_target.write(saved, folder, kind),
            ctranslate2_target.open_model, "ctranslate2", "fast", ("ctranslate2",), COMPUTE_TYPES,
        ),
        Target(
            "argos", "Argos Translate and LibreTranslate", ctranslate2_target.argos_architecture,
            lambda saved, folder, kind, _: ctranslate2_target.write_argos(saved, folder, kind),
            ctranslate2_target.open_package, "argostranslate", "fast", ("ctranslate2",),
            COMPUTE_TYPES,
        ),
        Target(
            "onnx", "ONNX Runtime and transformers.js", onnx_graphs.architecture,
            lambda saved, folder, kind, progress: onnx_graphs.write(
                saved, folder, int8=kind == INT8, progress=progress
            ),
            lambda saved, folder, kind: onnx_graphs.open_graphs(saved, folder, int8=kind == INT8),
            "transformers.js", "onnx", ("onnx", "onnxscript", "onnxruntime"), (FLOAT, INT8),
        ),
        Target(
            "gguf", "llama.cpp", gguf_file.architecture,
            lambda saved, folder, kind, _: gguf_file.write(saved, folder, kind), None,
            "gguf", "gguf", ("gguf",), tuple(gguf_file.FLOATS),
        ),
    )
}  # fmt: skip


def find_target(name: str) -> Target:
    """Return a target by its name, after checking that its packages are installed."""
    if name not in TARGETS:
        raise ConfigError(f"--to {name}: unknown target{suggest(name, TARGETS)}", "invalid_option")
    target = TARGETS[name]
    if any(importlib.util.find_spec(package) is None for package in target.packages):
        raise MissingError(
            f"--to {name} requires packages. Install them with: {install_command(target.extra)}",
            "missing_package",
        )
    return target


def architecture_at(target: Target, family: str, config: Any, text: TextConfig | None) -> str:
    """Return the name of a model at a target; CheckpointError if it cannot be written there."""
    for part in plugin_parts(family, config):
        raise CheckpointError(
            f"the {part['kind']} {part['name']!r} comes from the plug-in {part['plugin']}; models "
            "with parts of plug-ins are not exported",
            "not_exportable",
        )
    return target.architecture(family, config, text)


def reachable(
    family: str, config: Any, text: TextConfig | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the targets that a model can be exported to, with its name there, and obstacles."""
    names, obstacles = {}, {}
    for target in TARGETS.values():
        try:
            names[target.name] = architecture_at(target, family, config, text)
        except CheckpointError as error:
            obstacles[target.name] = str(error)
    return names, obstacles
