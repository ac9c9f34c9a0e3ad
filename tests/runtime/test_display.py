"""Tables of results: no text becomes HTML, and numbers keep their digits."""

import math
from html import escape

import pytest

from ddpn.runtime.display import fmt, html_columns, html_table, percent, plural

HOSTILE = '<script>alert(1)</script> & "co"'


def test_hostile_text_stays_text():
    found = html_table((HOSTILE, "n"), [(HOSTILE, 1.0), ("x", None)], best={(0, 1)})
    assert "<script" not in found
    assert found.count(escape(HOSTILE)) == 2
    assert "<strong>1</strong>" in found
    assert "<td>x</td><td>–</td>" in found


def test_a_long_table_shows_its_first_rows():
    html = html_columns({"n": range(100)})
    assert html.count("<tr>") == 13
    assert "and 88 more rows" in html


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (-3.0, "-3"), (0.00123, "0.00123"), (0.0567, "0.057"), (2.345, "2.35"), (12.34, "12.3"),
     (1e6, "1,000,000"), (2.487e11, "2.49e11"), (math.nan, "–"), (math.inf, "∞")],
)  # fmt: skip
def test_numbers_are_short(value, words):
    assert fmt(value) == words


def test_a_share_is_never_rounded_to_none_or_all():
    assert [percent(share) for share in (0.0, 1e-6, 0.5, 1 - 1e-6, 1.0)] == ["0%", "<0.1%", "50.0%", ">99.9%", "100%"]
    assert [percent(share, 0) for share in (0.004, 0.94, 0.999)] == ["<1%", "94%", ">99%"]
    assert plural(2, "category", "categories") == "2 categories"
