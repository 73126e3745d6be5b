"""HTML of results in notebooks: tables, bars and marked words; all texts are escaped.

Styles are attributes, with colours that suit light and dark themes, because an output of a notebook
has no style sheet of its own.
"""

import html
from collections.abc import Iterable, Sequence

UNSURE = 0.5  # a word with a token below this probability is marked
MAX_ROWS = 50  # of a table or list; more are counted
BAR = "display:inline-block;height:.7em;border-radius:2px;background:#4c78a8"
MARK = "text-decoration:underline wavy #d1602d;text-underline-offset:4px"


def escape(text: str) -> str:
    """Escape a text that may hold anything; lone surrogates are replaced."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the cells are HTML, the header is text."""
    top = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in header)
    cell = '<td style="text-align:left;white-space:pre-wrap">'
    lines = [
        "<tr>" + "".join(f"{cell}{value}</td>" for value in row) + "</tr>"
        for row in rows[:MAX_ROWS]
    ]
    if len(rows) > MAX_ROWS:
        lines.append(f"<tr>{cell}and {len(rows) - MAX_ROWS:,} more</td></tr>")
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def plain(text: str) -> str:
    """Return a text with its own columns and lines."""
    return f"<pre>{escape(text)}</pre>"


def bar(share: float) -> str:
    """Return a probability as a bar and a percentage."""
    percent = 100 * min(max(share, 0.0), 1.0)
    return f'<span style="{BAR};width:{percent / 20:.2f}em"></span> {percent:.1f} %'


def words(pieces: Iterable[tuple[str, float]], label: str = "probability") -> str:
    """Return words; those with a probability below `UNSURE` are marked and have a tooltip."""
    return "".join(
        escape(text)
        if p >= UNSURE
        else f'<span style="{MARK}" title="{label} {p:.3f}">{escape(text)}</span>'
        for text, p in pieces
    )


class MetricTable(dict[str, float]):
    """Metrics by name."""

    def __str__(self) -> str:
        return "\n".join(f"{name.replace('_', ' '):<20}{n:.4f}" for name, n in self.items())

    def _repr_html_(self) -> str:
        rows = [
            [escape(name.replace("_", " ")), f"{n:,.4f}".removesuffix(".0000")]
            for name, n in self.items()
        ]
        return table(["metric", "value"], rows)
