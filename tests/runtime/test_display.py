"""Test tables of results: no text becomes HTML, and numbers keep their digits."""

from html import escape

from ddpn.runtime.display import TextTable, percent, plural

HOSTILE = '<script>alert(1)</script> & "co"'


def test_hostile_text_stays_text():
    html = TextTable((HOSTILE, "n"), [(HOSTILE, 1.0), ("x", None)], bold={(0, 1)}).to_html()
    assert "<script" not in html
    assert html.count(escape(HOSTILE)) == 2
    assert "<strong>1</strong>" in html
    assert "<td>x</td><td>–</td>" in html


def test_a_long_table_shows_its_first_rows():
    table = TextTable.from_columns({"n": range(100)}, max_rows=12)
    html = table.to_html()
    assert html.count("<tr>") == 13
    assert "and 88 more rows" in html
    assert str(table).splitlines()[-2:] == ["11", "... and 88 more rows"]


def test_a_share_is_never_rounded_to_none_or_all():
    assert [percent(share) for share in (0.0, 1e-6, 0.5, 1 - 1e-6, 1.0)] == ["0%", "<0.1%", "50.0%", ">99.9%", "100%"]
    assert [percent(share, 0) for share in (0.004, 0.94, 0.999)] == ["<1%", "94%", ">99%"]
    assert plural(2, "category", "categories") == "2 categories"
