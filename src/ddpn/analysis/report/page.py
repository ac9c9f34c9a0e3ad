"""The report as HTML: every text is escaped here, and nothing is loaded from anywhere."""

from collections.abc import Collection, Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ddpn.analysis.plots import svg_of
from ddpn.runtime.display import html_table

#: CSS class and sign of each level of a verdict.
_LEVELS = {
    "better": ("good", "✓"),
    "as good as": ("care", "="),
    "undecided": ("care", "!"),
    "worse": ("bad", "✕"),
    "unusable": ("bad", "✕"),
}


def page(title: str, under: Iterable[str], sections: Mapping[str, str], warnings: Iterable[str] = ()) -> str:
    """The whole file: `under` are a few facts below its title; `warnings` come before `sections`, HTML by title."""
    folder = files("ddpn.analysis.report")
    names = {part: escape(part.lower().replace(" ", "-")) for part in sections}
    bodies = (f'<section id="{names[part]}"><h2>{escape(part)}</h2>\n{sections[part]}</section>' for part in sections)
    items = "".join(f"<li>{escape(words)}</li>" for words in warnings)
    return Template((folder / "template.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        style=(folder / "style.css").read_text(encoding="utf-8"),
        under=" · ".join(f"<span>{escape(fact)}</span>" for fact in under),
        contents="".join(f'<li><a href="#{name}">{escape(part)}</a></li>' for part, name in names.items()),
        warnings=f'<div class="warnings care" role="note"><h2>Warnings</h2><ul>{items}</ul></div>' if items else "",
        sections="\n".join(bodies),
    )


def paragraphs(*words: str) -> str:
    """A paragraph per text that is not empty."""
    return "".join(f"<p>{escape(text)}</p>\n" for text in words if text)


def heading(words: str) -> str:
    """The heading of a part of a section."""
    return f"<h3>{escape(words)}</h3>\n"


def headline_html(level: str, words: str, details: Iterable[tuple[str, str]]) -> str:
    """A headline with the sign of its level ("better", "undecided", "worse", ...), and sentences by topic."""
    kind, sign = _LEVELS[level]
    headline = f'<span class="sign" aria-hidden="true">{sign}</span>{escape(words)}'
    return f'<div class="verdict {kind}"><p class="headline">{headline}</p>\n{definitions(details)}</div>\n'


def definitions(facts: Iterable[tuple[str, str]], kind: str = "", code: bool = False) -> str:
    """Names with their values or explanations: a list or, of the kinds "facts" and "notes", boxes side by side."""
    tag, end = ("<code>", "</code>") if code else ("", "")
    rows = (f"<dt>{escape(name)}</dt><dd>{tag}{escape(words)}{end}</dd>\n" for name, words in facts)
    if not kind:
        return f"<dl>{''.join(rows)}</dl>\n"
    return f'<dl class="{kind}">{"".join(f"<div>{row}</div>" for row in rows)}</dl>\n'


def table_html(
    headings: Iterable[Any],
    rows: Iterable[Iterable[Any]],
    best: Collection[tuple[int, int]] = frozenset(),
    caption: str = "",
) -> str:
    """A table in a box that scrolls where the page is narrow."""
    table = html_table(headings, rows, best, f' aria-label="{escape(caption)}"')
    return (
        # Above the box: a caption inside of it would be as wide as the table, and cut off on a phone.
        f'<p class="caption">{escape(caption)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>\n'
    )


def pair(*parts: str) -> str:
    """Figures or other parts, two side by side where there is room."""
    return f'<div class="figures">{"".join(f"<div>{part}</div>" for part in parts)}</div>\n'


def figure_html(drawn: Any, name: str, title: str, description: str, words: str) -> str:
    """A matplotlib figure with its title and caption; `description` is for screen readers, `name` unique on a page."""
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    image = svg_of(drawn, name, title, description)
    return f'<figure id="fig-{name}"><h3>{escape(title)}</h3>{image}{caption}</figure>\n'


def card(title: str, svg: str, *facts: Iterable[tuple[str, str]]) -> str:
    """A title, an image and lists of facts."""
    return f"<article><h4>{escape(title)}</h4>{svg}{''.join(map(definitions, facts))}</article>\n"


def cards(found: Iterable[str]) -> str:
    """Cards side by side where there is room."""
    return f'<div class="rows">{"".join(found)}</div>\n'
