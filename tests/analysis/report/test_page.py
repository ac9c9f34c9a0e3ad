"""HTML: every text is escaped, every table has its box."""

import pytest

from ddpn.analysis.plots import panel
from ddpn.analysis.report.page import card, definitions, figure_html, headline_html, page, table_html

BAD = "<script>\"'&"
SAFE = "&lt;script&gt;&quot;&#x27;&amp;"


def test_text_is_escaped_everywhere():
    parts = [
        definitions([(BAD, BAD)]),
        definitions([(BAD, BAD)], "facts"),
        definitions([(BAD, BAD)], code=True),
        table_html((BAD,), [(BAD,)], {(0, 0)}, BAD),
        figure_html(panel(lambda ax: ax.set_xlabel(BAD)), "f", BAD, BAD, BAD),
        card(BAD, "<svg></svg>", [(BAD, BAD)], [(BAD, BAD)]),
        headline_html("better", BAD, [(BAD, BAD)]),
    ]
    assert [part.count(SAFE) for part in parts] == [2, 2, 2, 5, 4, 5, 3]
    assert not any("<script" in part for part in parts)
    whole = page(BAD, [BAD], {BAD: ""}, [BAD])
    assert "<script" not in whole
    assert whole.count(SAFE) == 8


@pytest.mark.parametrize(("level", "kind"), [("better", "good"), ("unclear", "care"), ("worse", "bad")])
def test_the_colour_of_a_verdict_follows_its_level(level, kind):
    assert f'<div class="verdict {kind}">' in headline_html(level, "It is so.", [])


def test_sections_are_linked_and_warnings_are_optional():
    html = page("cost in $title", [], {"Best and worst": "<p>x</p>"})
    assert "cost in $title" in html
    assert '<a href="#best-and-worst">Best and worst</a>' in html
    assert '<section id="best-and-worst"><h2>Best and worst</h2>' in html
    assert 'class="warnings' not in html
