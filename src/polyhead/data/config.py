"""Configuration of the data of a run."""

from dataclasses import dataclass, field
from typing import Literal

from polyhead.data.text_files import OnBadLine

WordRule = Literal["spaces", "punctuation", "characters"]
Store = Literal["auto", "always", "never"]
HoldOutBy = Literal["either", "source"]
FORMER = {"hold_out_by": "source"}  # of saved runs that lack the option


@dataclass(frozen=True)
class AugmentConfig:
    """The table [data.augment]; everything is off by default."""

    flip: bool = False
    shift: int = 0  # pixels
    turn: float = 0.0  # degrees
    zoom: float = 0.0  # 0.1: between 1 / 1.1 and 1.1 times as large
    warp: float = 0.0  # pixels, standard deviation of the displacement
    erase: float = 0.0  # probability for each image
    mixup: float = 0.0  # α; 0 for none
    cutmix: float = 0.0  # α; 0 for none

    def __post_init__(self) -> None:
        for name in ("shift", "turn", "zoom", "warp", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: expected 0 or more")
        if not 0 <= self.erase <= 1:
            raise ValueError(f"erase = {self.erase}: expected a probability between 0 and 1")


@dataclass(frozen=True)
class DataConfig:
    """The table [data]. Files are searched as given, then below $POLYHEAD_DATA and the cache.

    Translators read either `source` and `target` (line i of one translates line i of the other), or
    `pairs` (TSV or JSON lines); several files are joined. Without validation files, `hold_out`
    pairs are held out, none of which shares a source or target with the others. Models of one
    language read `text`, whose last tenth (or `hold_out` lines) is held out. Text classifiers read
    `labelled`: texts, or pairs of them, and their labels, TSV or JSON lines; taggers words and
    tags, question answering questions. Sentence encoders read `labelled` pairs whose labels are
    numbers, or pairs as translators do. Image classifiers read `images`.
    """

    corpus: str | None = None  # embedded corpus, generated if its files are missing
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    valid_source: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    valid_pairs: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    valid_text: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()
    valid_labelled: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # a directory per class, idx files, or CIFAR-10's
    valid_images: tuple[str, ...] = ()
    source_key: str | None = None  # in pairs: column header or number, or JSON field
    target_key: str | None = None
    text_key: str | None = None  # the same for labelled and for tables in text
    text_pair_key: str | None = None  # second text of labelled pairs
    label_key: str | None = None
    problem: Literal["auto", "single_label", "multi_label", "regression"] = "auto"  # of labels
    source_language: str = ""
    target_language: str = ""
    encoding: str = "utf-8"
    on_bad_line: OnBadLine = "skip"
    hold_out: int = 500
    hold_out_by: HoldOutBy = "either"  # pairs that share a source or target stay together
    max_examples: int | None = None  # to train on: drawn by train.seed, more include fewer
    store: Store = "auto"  # encoded data in the cache: text of 32 MB, images of 100 MB and more
    adapt: bool = False  # translators: fewer subwords for few pairs
    max_length: int = 256  # tokens of either side; for plain text, the window
    tag_names: tuple[str, ...] = ()  # taggers: names of tags that the files give as numbers
    words: WordRule | None = None  # taggers: how texts are split; found by the data if None
    stride: int = 128  # question answering: tokens between the starts of two windows of a context
    max_answer: int = 30  # question answering: tokens of an answer
    blanks: float = 0.15  # BERT, ELECTRA: share of the tokens to predict
    augment: AugmentConfig = field(default_factory=AugmentConfig)  # images only

    def __post_init__(self) -> None:
        for name in ("hold_out", "max_length", "stride", "max_answer"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least 1")
        if not 0 < self.blanks <= 1:
            raise ValueError(f"blanks = {self.blanks}: expected a share above 0 and up to 1")


LISTS = tuple(  # options of [data] that take several files
    name for name, default in vars(DataConfig()).items() if default == () and name != "tag_names"
)
