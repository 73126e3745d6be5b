"""Inputs of masked tokens: parts of lines, masks of validation."""

from expected_errors import raises

from polyhead.data.config import DataConfig
from polyhead.data.line_spool import Examples
from polyhead.errors import DataError
from polyhead.models.bert import BERTConfig
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.base import Used
from polyhead.tasks.masked_tokens import MaskedLM, parts_of
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers


def test_long_lines_are_split_and_empty_ones_left_out():
    parts = list(parts_of([[7, EOS], [EOS], [4, 5, 6, 7, 8, EOS]], 4))
    assert parts == [[BOS, 7, EOS], [BOS, 4, 5, EOS], [BOS, 6, 7, EOS], [BOS, 8, EOS]]


def test_a_text_without_tokens_to_mask_is_an_error():
    """The loss over no masks at all would be 0, better than that of any model."""
    words = train_tokenizers(["오늘은 비가 와요."], (), TextConfig(kind="words"))
    used = Used(None, words, 5, "a model", BERTConfig(len(words.source) + 1), {}, DataConfig())
    for lines, code in ((["", ""], "no_text"), (["눈", "눈 눈"], "nothing_to_mask")):
        with raises(DataError, code):
            MaskedLM().example(used, Examples(lines))
