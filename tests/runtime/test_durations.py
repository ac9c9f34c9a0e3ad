import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpn.runtime.deadlines import format_duration, parse_duration
from ddpn.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("10m", 600), ("1h", 3600), ("1.5h", 5400), (" 1h 30m ", 5400), ("1H30M5S", 5405), (".5s", 0.5),
     ("1d", 86_400), (90, 90), (0.25, 0.25)],
)  # fmt: skip
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "wrong", ["", "  ", "60", "ten minutes", "-5s", "5 s m", "30m1h", "0s", 0, -1, None, True, float("nan"), "1e3s",
              float("inf"), "5x", "s", "5m5m"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=r"budget must be a duration above 0 such as 90s.*got "):
        parse_duration(wrong, "budget")


@given(st.floats(1e-3, 1e6))
def test_what_is_written_is_read_again(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.06)


def test_zero_is_written_and_large_ones_have_no_fraction():
    assert format_duration(0) == "0s"
    assert format_duration(9.96) == "10s"
    assert format_duration(59.7) == "1m"
    assert format_duration(90_061) == "1d1h1m1s"
