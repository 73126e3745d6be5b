"""ConvS2S and ByteNet end to end: training, translation, attention."""

import pytest
from tiny import write_corpus

import polyhead
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.training.config import read_run
from polyhead.training.trainer import train
from polyhead.viz.capture import attention_view

TINY = (
    "text.vocab=900", "train.steps=4", "train.max_tokens=400", "train.validate_every=2",
    "train.save_every=2", "train.log_every=2", "train.bleu_sentences=4", "train.schedule.warmup=2",
    "data.hold_out=20",
)  # fmt: skip
SIZES = {
    "convs2s": ("model.d_embed=16", "model.encoder=[[16, 3]]", "model.decoder=[[16, 3], [24, 2]]"),
    "bytenet": ("model.d_model=16", "model.n_layers=2", "model.decoder_layers=3",
                'text.kind="characters"'),
}  # fmt: skip
LINE = "내일 회의가 있어요."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One short run of each."""
    folder = tmp_path_factory.mktemp("convolutional")
    files = write_corpus(folder)
    for family, sizes in SIZES.items():
        train(read_run(f"multi30k-de-en-{family}", (*TINY, *sizes), files), folder / family)
    return folder


def test_convs2s_has_attention_maps_and_a_coverage_penalty(runs):
    translator = polyhead.load(runs / "convs2s")
    view = attention_view(translator, LINE)
    assert [(one.kind, one.layer) for one in view.maps] == [("cross", 1), ("cross", 2)]
    options = DecodeConfig(beam=2, max_length=8, coverage=0.2)
    assert len(translator.n_best([LINE], options=options)) == 1


def test_bytenet_reads_and_writes_characters_and_has_no_attention(runs):
    translator = polyhead.load(runs / "bytenet")
    assert isinstance(translator.translate([LINE])[0], str)
    with pytest.raises(ConfigError, match="cross-attention; set it to 0"):
        translator.n_best([LINE], options=DecodeConfig(beam=2, max_length=8, coverage=0.2))
