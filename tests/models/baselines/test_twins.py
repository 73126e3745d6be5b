"""Logits of recurrent and convolutional translators against NumPy, in sizes that all differ."""

from dataclasses import replace

import pytest
from small_models import CONVS2S, EXPERTS, RECURRENT, make

from polyhead.notes import numpy_recurrent as twins
from polyhead.notes.numpy_parallel import convs2s
from polyhead.notes.numpy_reference import WITHIN, twin_gap

TWINS = {
    "first": (RECURRENT["first"], lambda w, source, y: twins.sutskever(w, source[::-1], y)),
    "reversed": (RECURRENT["reversed"], twins.sutskever),
    "bridge": (replace(RECURRENT["bridge"], cell="gru", n_layers=1), twins.cho),
    "bahdanau": (RECURRENT["bahdanau"], twins.bahdanau),
    "luong": (RECURRENT["luong general"], twins.luong),
    "gnmt": (RECURRENT["gnmt past"], twins.gnmt),
    "deep_att": (RECURRENT["deep_att"], twins.deep_att),
    "convs2s": (CONVS2S, convs2s),
    **{name: (config, twins.mixture_of_experts) for name, config in EXPERTS.items()},
}


@pytest.mark.parametrize("name", TWINS)
def test_logits_are_those_of_numpy_for_all_words_and_word_by_word(name):
    config, twin = TWINS[name]
    assert twin_gap(make(config), twin) < WITHIN
