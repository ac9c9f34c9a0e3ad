"""Numbers as text."""

import math

import pytest

from ddpn.analysis.numbers import fmt, percent, plural


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
