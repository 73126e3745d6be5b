"""Entries of a stranger's config.json: none reaches another library, none ends in a traceback."""

from dataclasses import replace

import pytest
import torch
from foreign_models import (
    change_config,
    make_esm,
    make_gpt,
    make_marian,
    make_neox,
    make_pegasus,
    make_vit,
    write_theirs,
)

from polyhead.checkpoint.model_dir import load_model
from polyhead.convert.architectures import check_fits, find_conversion
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import export_model
from polyhead.convert.reader import read_foreign
from polyhead.convert.weight_names import TABLES
from polyhead.errors import CheckpointError

hf = pytest.importorskip("transformers")
SMALL = {
    "vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3,
    "intermediate_size": 8, "max_position_embeddings": 14,
}  # fmt: skip
MODELS = {
    "gpt2": make_gpt,
    "bert": lambda: hf.BertForSequenceClassification(hf.BertConfig(**SMALL, num_labels=3)),
    "electra": lambda: hf.ElectraForMaskedLM(hf.ElectraConfig(**SMALL, embedding_size=5)),
    "vit": make_vit,
    "marian": make_marian,
    "pegasus": make_pegasus,
    "gpt_neox": make_neox,
    "esm": make_esm,
}
HOSTILE = {
    "attn_implementation": "evil-org/evil-kernel",
    "_attn_implementation": "flash_attention_2",
    "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "torch_dtype": "evil",
    "dtype": ["float32"],
    "auto_map": {"AutoModel": "evil.Model"},
    "trust_remote_code": True,
    "num_labels": 20_000_000,
    "fusion_config": {"evil": True},
    "transformers_weights": "../evil.safetensors",
}
WRONG = (None, True, -1, 1.5, 10**400, float("nan"), "x\ny", [1], [[]], {"a": 1})
NOT_READ = {  # what transformers does with them changes no output of these models
    "_name_or_path", "architectures", "bos_token_id", "chunk_size_feed_forward",
    "classifier_dropout", "decoder_start_token_id", "dtype", "embedding_size", "encoder_stride",
    "eos_token_id", "forced_eos_token_id", "id2label", "image_size", "init_std",
    "initializer_range", "is_encoder_decoder", "label2id", "model_type", "output_attentions",
    "output_hidden_states", "pad_token_id", "patch_size", "pooler_act", "pooler_output_size",
    "problem_type", "reorder_and_upcast_attn", "return_dict", "summary_activation",
    "summary_first_dropout", "summary_last_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "transformers_version", "use_cache", "is_decoder", "esmfold_config",
    "vocab_list", "mask_token_id",
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_the_original_is_built_from_our_values_alone(kind, tmp_path, monkeypatch):
    folder, seen = write_theirs(MODELS[kind](), tmp_path / "theirs"), []
    load = hf.PreTrainedModel.from_pretrained.__func__

    def spy(cls, path, **options):
        seen.append((path, options["config"]))
        return load(cls, path, **options)

    monkeypatch.setattr(hf.PreTrainedModel, "from_pretrained", classmethod(spy))
    change_config(folder, **HOSTILE)
    if kind in ("marian", "pegasus"):
        change_config(folder, max_position_embeddings=2**20)
    assert import_model(str(folder), tmp_path / "ours").parity.equal
    ((path, config),) = seen
    assert path is None
    given = config.to_dict()
    assert not {"quantization_config", "auto_map", "fusion_config"} & given.keys()
    assert config._attn_implementation in (None, "sdpa", "eager")
    assert config.num_labels < 10
    assert given.get("max_position_embeddings", 0) < 100


@pytest.mark.parametrize("kind", MODELS)
def test_a_value_of_any_type_is_read_or_refused_in_one_line(kind, tmp_path):
    theirs = read_foreign(write_theirs(MODELS[kind](), tmp_path / "theirs"))
    table = TABLES[kind]
    names = {*theirs.values, *table["defaults"], *table.get("only", {}), *table.get("synonyms", {})}
    messages = []
    for name in names:
        for value in WRONG:
            changed = replace(theirs, values={**theirs.values, name: value})
            try:
                chosen = find_conversion(changed)
                specials = chosen.architecture.special_ids(changed.values, {})
                check_fits(replace(chosen, specials=specials), changed)
            except CheckpointError as error:
                messages.append(str(error))
    assert len(messages) > 50
    assert all("\n" not in message and len(message) < 500 for message in messages)


@pytest.mark.parametrize("kind", MODELS)
def test_every_field_of_their_configuration_is_known(kind):
    table = TABLES[kind]
    known = {*table["defaults"], *table.get("only", {}), *NOT_READ}
    inherited = {"electra": {*TABLES["bert"]["defaults"], *TABLES["bert"]["only"]}}
    known |= inherited.get(kind, set()) | ({"n_inner"} if kind == "gpt2" else set())
    known |= {*table.get("fields", {}).values()} | (
        {"rope_parameters"} if "rope" in table else set()
    )
    config = MODELS[kind]().config
    assert set(config.to_dict()) <= known
    assert dict(config.attribute_map) == table.get("synonyms", {})


def test_ids_and_dropout_of_a_gpt_without_a_tokenizer_come_back_or_are_reported(tmp_path):
    model = make_gpt(50, bos_token_id=40, eos_token_id=41, embd_pdrop=0.3)
    report = import_model(str(write_theirs(model, tmp_path / "theirs")), tmp_path / "ours")
    assert any("embd_pdrop = 0.3" in note for note in report.notes)
    export_model(tmp_path / "ours", tmp_path / "again")
    for config in (hf.GPT2Config, hf.GenerationConfig):
        again = config.from_pretrained(tmp_path / "again")
        assert (again.bos_token_id, again.eos_token_id) == (40, 41)


def test_a_marian_that_starts_with_eos_translates_as_before(tmp_path):
    theirs = make_marian(start=0)
    theirs.save_pretrained(tmp_path / "theirs")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours").parity.equal
    ours = load_model(tmp_path / "ours")
    assert ours.about["imported"]["specials"]["bos"] == 0
    source, numbers = torch.tensor([[5, 9, 0]]), [22, 0, *range(22)]
    ids = torch.tensor([[numbers.index(id, 2) for id in source[0].tolist()]])
    found = ours.model(ids, torch.tensor([[1]]))[0, 0]
    expected = theirs(source, decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
    torch.testing.assert_close(found[2:], expected[:22], rtol=0, atol=1e-4)
    assert found[1] < -1000  # BOS is never said
    export_model(tmp_path / "ours", tmp_path / "again")
    back = hf.GenerationConfig.from_pretrained(tmp_path / "again")
    assert (back.decoder_start_token_id, back.bad_words_ids) == (0, [[22]])
