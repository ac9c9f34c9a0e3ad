"""HTML: every word is escaped, every table has its box."""

from ddpn.report.content import Grid, Single
from ddpn.report.figures.chart import Figure
from ddpn.report.page import Section, definitions, figures_html, grid_html, notes, page, rows_html, tiles, verdict_html
from ddpn.report.verdict import Verdict

BAD = "<script>\"'&"
SAFE = "&lt;script&gt;&quot;&#x27;&amp;"


def test_words_are_escaped_wherever_they_stand():
    figure = Figure("f", BAD, "<svg></svg>", BAD, (("bar", BAD),))
    parts = [
        definitions([(BAD, BAD)]),
        tiles([(BAD, BAD)]),
        notes([(BAD, BAD)]),
        grid_html(Grid((BAD,), [(BAD,)], frozenset({(0, 0)})), BAD),
        figures_html([figure]),
        rows_html([(Single(3, [(BAD, BAD)], [(BAD, BAD)]), "<svg></svg>")]),
        verdict_html(Verdict("good", BAD, [(BAD, BAD)])),
    ]
    assert [part.count(SAFE) for part in parts] == [2, 2, 2, 4, 3, 4, 3]
    assert not any("<script" in part for part in parts)
    whole = page(BAD, [BAD], [Section("s", BAD, "")])
    assert "<script" not in whole
    assert whole.count(SAFE) == 5


def test_the_best_cells_are_bold_and_text_columns_are_told():
    html = grid_html(Grid(("a", "b"), [("1", "2"), ("3", "4")], frozenset({(1, 0)})), "caption", words=True)
    assert "<td>1</td><td>2</td>" in html
    assert "<td><strong>3</strong></td><td>4</td>" in html
    assert '<table class="words">' in html
    assert '<div class="scroll tall"' in html


def test_a_legend_shows_the_mark_itself():
    html = figures_html([Figure("f", "t", "<svg></svg>", "w", (("dot big", "seen"), ("ref", "nominal")))])
    assert '<path d="M12 6h0" class="dot big"/>' in html
    assert '<path d="M1 6H23" class="ref"/>' in html


def test_a_dollar_sign_in_the_data_is_only_a_dollar_sign():
    assert "$title" in page("cost in $title", [], [])
