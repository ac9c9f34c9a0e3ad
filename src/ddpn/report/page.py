"""The report as HTML: every text is escaped here, and nothing is loaded from anywhere."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from ddpn.report.content import Grid, Single
from ddpn.report.figures.chart import Figure
from ddpn.report.verdict import Verdict

_SIGNS = {"good": "✓", "care": "!", "bad": "✕"}
#: What a legend shows of a mark.
_SWATCHES = {
    "bar": '<rect x="1" y="1" width="22" height="10" class="{}"/>',
    "bar-2": '<rect x="1" y="1" width="22" height="10" class="{}"/>',
    "band": '<rect x="1" y="1" width="22" height="10" class="{}"/>',
    "dot": '<path d="M12 6h0" class="{}"/>',
    "cross": '<path d="M9 3l6 6m-6 0l6 -6" class="{}"/>',
    "range": '<path d="M6 1V11M12 1V11M18 1V11" class="{}"/>',
    "line": '<path d="M1 6H23" class="{}"/>',
}


class Section(NamedTuple):
    """A part of the page: its name in links, its title and its HTML."""

    name: str
    title: str
    html: str


def page(title: str, under: Iterable[str], sections: Iterable[Section]) -> str:
    """The whole file; `under` are the few facts below its title."""
    parts = list(sections)
    folder = files("ddpn.report")
    contents = "".join(f'<li><a href="#{part.name}">{escape(part.title)}</a></li>' for part in parts)
    bodies = "\n".join(
        f'<section id="{part.name}"><h2>{escape(part.title)}</h2>\n{part.html}</section>' for part in parts
    )
    return Template((folder / "template.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(folder / "style.css").read_text(encoding="utf-8"),
        under=" · ".join(f"<span>{escape(fact)}</span>" for fact in under),
        contents=contents,
        sections=bodies,
    )


def paragraphs(*words: str) -> str:
    """Those that say something."""
    return "".join(f"<p>{escape(text)}</p>\n" for text in words if text)


def heading(words: str) -> str:
    """Of a part of a section."""
    return f"<h3>{escape(words)}</h3>\n"


def verdict_html(found: Verdict) -> str:
    """The headline with its sign, and the sentences by topic."""
    sign = f'<span class="sign" aria-hidden="true">{_SIGNS[found.mood]}</span>'
    return (
        f'<div class="verdict {found.mood}"><p class="headline">{sign}{escape(found.headline)}</p>\n'
        f"{definitions(found.words)}</div>\n"
    )


def definitions(facts: Iterable[tuple[str, str]], code: bool = False) -> str:
    """Names and what is said of them, one below the other."""
    tag = ("<code>", "</code>") if code else ("", "")
    rows = "".join(f"<dt>{escape(a)}</dt><dd>{tag[0]}{escape(b)}{tag[1]}</dd>\n" for a, b in facts)
    return f"<dl>{rows}</dl>\n"


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Names and numbers, side by side."""
    rows = "".join(f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>\n" for a, b in facts)
    return f'<dl class="facts">{rows}</dl>\n'


def notes(facts: Iterable[tuple[str, str]]) -> str:
    """Words explained, small, in as many columns as there is room for."""
    rows = "".join(f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>\n" for a, b in facts)
    return f'<dl class="notes">{rows}</dl>\n'


def grid_html(found: Grid, caption: str, words: bool = False) -> str:
    """A table in a box of its own, which scrolls where the page is narrow. `words`: long, with columns of text."""
    kind = ' class="words"' if words else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in found.headings)
    rows = "".join(
        "<tr>" + "".join(_cell(cell, (i, j) in found.best) for j, cell in enumerate(row)) + "</tr>\n"
        for i, row in enumerate(found.rows)
    )
    tall = " tall" if words else ""
    return (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{kind}><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n"
    )


def _cell(words: str, best: bool) -> str:
    return f"<td><strong>{escape(words)}</strong></td>" if best else f"<td>{escape(words)}</td>"


def figures_html(found: Sequence[Figure]) -> str:
    """Figures, two in a row where there is room."""
    return pair(*map(figure_html, found))


def pair(*parts: str) -> str:
    """Two in a row where there is room."""
    return f'<div class="figures">{"".join(f"<div>{part}</div>" for part in parts)}</div>\n'


def figure_html(figure: Figure) -> str:
    """One figure with its title, legend and words."""
    items = "".join(f"<li>{_swatch(kind)}{escape(words)}</li>" for kind, words in figure.legend)
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    return (
        f'<figure id="fig-{figure.name}"><h3>{escape(figure.title)}</h3>{figure.svg}{legend}'
        f"<figcaption>{escape(figure.words)}</figcaption></figure>\n"
    )


def _swatch(kind: str) -> str:
    shape = _SWATCHES.get(kind.split()[0], _SWATCHES["line"]).format(kind)
    return f'<svg class="swatch" viewBox="0 0 24 12" aria-hidden="true">{shape}</svg>'


def rows_html(found: Iterable[tuple[Single, str]]) -> str:
    """Single rows, each with the picture of its law."""
    cards = "".join(
        f"<article><h4>Row {one.row:,}</h4>{picture}{definitions(one.facts)}{definitions(one.cells)}</article>\n"
        for one, picture in found
    )
    return f'<div class="rows">{cards}</div>\n'
