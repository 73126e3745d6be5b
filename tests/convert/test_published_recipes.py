"""Recipes that bear the name of a published model are that model, and can be exported."""

from dataclasses import replace

import pytest

from polyhead.convert import gpt2 as gpt
from polyhead.convert import hf_bert as bert
from polyhead.convert import hf_electra as electra
from polyhead.convert import hf_vit as vit
from polyhead.models.bert import PUBLISHED as BERTS
from polyhead.models.electra import PUBLISHED as ELECTRAS
from polyhead.models.gpt import PUBLISHED as GPTS
from polyhead.models.vit import PUBLISHED as VITS
from polyhead.training.config import read_run


@pytest.mark.parametrize(
    ("name", "published", "write"),
    [
        ("bert-base", BERTS, bert.config_to_hf),
        ("electra-small", ELECTRAS, electra.config_to_hf),
        ("gpt2", GPTS, gpt.config_to_hf),
        ("vit-b-16", VITS, vit.config_to_hf),
    ],
)
def test_a_recipe_with_a_published_name_is_that_model(name, published, write):
    known = published[name]
    found = read_run(name).model
    if name != "vit-b-16":
        assert known.vocab - found.vocab == (name in ("bert-base", "electra-small"))  # [MASK]
        found = replace(found, vocab=known.vocab)
    assert replace(found, stack=known.stack) == known
    size = ("n_layers", "d_model", "n_heads", "d_ff", "norm", "activation", "norm_eps")
    for part in size:
        assert getattr(found.stack, part) == getattr(known.stack, part)
    assert write(found)
