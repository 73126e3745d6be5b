"""Worked examples of the notes by name; their text with doctests stands in examples.md.

print(EXAMPLES["residual"])
"""

from importlib.resources import files

TEXT = files("polyhead.notes").joinpath("examples.md").read_text(encoding="utf-8")
EXAMPLES = {
    title: text
    for title, _, text in (section.partition("\n") for section in TEXT.split("\n## ")[1:])
}

__test__ = EXAMPLES  # doctest runs these
