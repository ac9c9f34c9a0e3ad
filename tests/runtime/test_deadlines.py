import contextlib
import signal
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpn.runtime.deadlines import (
    FEWEST_ROWS,
    Clock,
    TimeLimitError,
    format_duration,
    parse_duration,
    with_rows,
)
from ddpn.runtime.errors import ConfigError


def test_what_takes_too_long_is_ended_and_what_is_done_in_time_is_not():
    with Clock(60.0).limit():
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with pytest.raises(TimeLimitError), Clock(0.0).limit():
        raise AssertionError("must not be reached")
    started = time.monotonic()
    with pytest.raises(TimeLimitError), Clock(0.1).limit():
        time.sleep(30.0)
    assert time.monotonic() - started < 10.0
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_exception_that_a_callback_swallows_is_raised_again():
    def long() -> None:
        with contextlib.suppress(TimeLimitError):  # as C code does that calls Python
            time.sleep(10.0)
        time.sleep(10.0)

    with pytest.raises(TimeLimitError), Clock(0.05).limit():
        long()


def test_other_threads_are_not_ended():
    done = []

    def run() -> None:
        with Clock(0.01).limit():
            time.sleep(0.1)
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done


def test_parts_end_with_the_whole():
    clock = Clock(10.0)
    assert clock.part(5.0).left <= 5.0
    assert clock.part(50.0).left <= 10.0
    assert not Clock().part(5.0).has_limit


@pytest.mark.parametrize("rows", [1, FEWEST_ROWS, FEWEST_ROWS + 1, 150, 2 * FEWEST_ROWS - 1, 2 * FEWEST_ROWS, 5000])
def test_with_enough_time_every_row_is_used(rows):
    assert with_rows(Clock(1000.0), rows, lambda number: number) == rows


@pytest.mark.parametrize(("seconds", "rows", "used"), [(100.0, 100_000, 23_940), (110.0, 150, 150), (50.0, 150, 100)])
def test_with_little_time_as_many_rows_are_used_as_there_is_time_for(monkeypatch, seconds, rows, used):
    now = [0.0]
    monkeypatch.setattr("ddpn.runtime.deadlines.time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(number: int) -> int:
        now[0] += 0.0025 * number if rows > 1000 else 0.3 * number
        return number

    # Of the time left after the first hundred rows, 60% are planned with.
    assert with_rows(Clock(seconds), rows, work) == pytest.approx(used, abs=1)


def test_what_is_done_once_does_not_count_per_row(monkeypatch):
    """The first hundred rows take 10 s of a start, which further rows do not: all are used."""
    now, numbers = [0.0], []
    monkeypatch.setattr("ddpn.runtime.deadlines.time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(number: int) -> int:
        numbers.append(number)
        now[0] += 10.0 + 0.001 * number
        return number

    assert with_rows(Clock(100.0), 5000, work) == 5000
    assert numbers[0] == FEWEST_ROWS
    assert all(after >= 1.5 * before for before, after in pairwise(numbers))


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
