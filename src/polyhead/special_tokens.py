"""Special tokens that every tokenizer of this package begins with."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
MASK = "[MASK]"  # its id is the first one after the tokenizer's own
