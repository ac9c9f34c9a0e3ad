"""Test limits of time: nested, shared with other threads, and as a user writes them."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpn.runtime.deadlines import (
    Clock,
    TimeLimitError,
    check_deadline,
    format_duration,
    parse_duration,
)
from ddpn.runtime.errors import ConfigError


def check_repeatedly(seconds: float) -> None:
    """Check the deadline every millisecond, for so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check_deadline()
        time.sleep(0.001)


def test_slow_work_is_ended_and_fast_work_is_not():
    with Clock(60.0).limit():
        check_repeatedly(0.01)
    with pytest.raises(TimeLimitError), Clock(0.0).limit():
        raise AssertionError("must not be reached")
    started = time.monotonic()
    with pytest.raises(TimeLimitError), Clock(0.1).limit():
        check_repeatedly(30.0)
    assert time.monotonic() - started < 10.0
    check_repeatedly(0.2)


@pytest.mark.parametrize(("outer", "inner"), [(0.1, 5.0), (5.0, 0.1), (0.1, None)])
def test_of_nested_limits_the_earlier_one_ends_the_work(outer, inner):
    start = time.monotonic()
    with pytest.raises(TimeLimitError), Clock(outer).limit(), Clock(inner).limit():
        check_repeatedly(5.0)
    assert time.monotonic() - start < 2.0


def test_a_limit_still_holds_after_a_nested_one():
    def nest() -> None:
        with Clock(0.1).limit():
            with Clock(5.0).limit():
                pass
            check_repeatedly(5.0)

    with pytest.raises(TimeLimitError):
        nest()


def test_other_threads_are_not_ended():
    done = []

    def run() -> None:
        check_repeatedly(0.1)
        done.append(True)

    with Clock(0.01).limit():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert done


def test_parts_of_a_clock_end_with_the_whole():
    clock = Clock(10.0)
    assert clock.part(5.0).left <= 5.0
    assert clock.part(50.0).left <= 10.0
    assert not Clock().part(5.0).has_limit


# Durations as text ----------------------------------------------------------------------------------------------------


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
def test_text_that_is_no_duration_is_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=r"budget must be a duration above 0 such as 90s.*got "):
        parse_duration(wrong, "budget")


@given(st.floats(1e-3, 1e6))
def test_a_written_duration_is_read_again(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.06)


def test_a_duration_of_zero_is_written_and_large_ones_have_no_fraction():
    assert format_duration(0) == "0s"
    assert format_duration(9.96) == "10s"
    assert format_duration(59.7) == "1m"
    assert format_duration(90_061) == "1d1h1m1s"
