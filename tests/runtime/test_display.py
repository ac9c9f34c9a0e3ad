"""Tables of results: no text becomes HTML, and numbers keep their digits."""

from html.parser import HTMLParser

import pytest

from ddpn.runtime.display import Html, as_text, html_columns, html_table, text_table

HOSTILE = '<script>alert(1)</script> & "co"'


class Cells(HTMLParser):
    """The text of every cell, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if data.strip():
            self.rows[-1][-1] += data


def test_hostile_text_stays_text_and_html_stays_html():
    found = Cells(html_table((HOSTILE, "n"), [(HOSTILE, 1.0), (Html("<em>x</em>"), None)], best={(0, 1)}))
    assert found.rows == [[HOSTILE, "n"], [HOSTILE, "1"], ["x", "–"]]
    assert "script" not in found.tags
    assert found.tags.count("strong") == found.tags.count("em") == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [(1234567.0, "1,234,567"), (1e12, "1e+12"), (-0.00012345, "-0.0001234"), (float("nan"), "–"), (False, "no")],
)
def test_numbers_have_four_digits(value, words):
    assert as_text(value) == words


def test_columns_of_text_tables_are_aligned():
    assert text_table(("a", "bb"), [("long name", 1), ("x", 12345)]).splitlines() == [
        "a              bb",
        "long name       1",
        "x          12,345",
    ]


def test_a_long_table_shows_its_first_rows():
    html = html_columns({"n": range(100)})
    assert len(Cells(html).rows) == 13
    assert "and 88 more rows" in html
