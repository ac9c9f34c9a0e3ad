"""Test how a time budget is divided among steps, members and rows, and what becomes of time that is left over."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from ddpn.runtime.deadlines import Clock
from ddpn.runtime.time_plan import (
    FIRST_ROWS,
    STEPS,
    Schedule,
    count_affordable_rows,
    make_budget_clock,
    run_with_rows,
    start_member_clock,
)


def stop_time(monkeypatch, now: list[float]) -> None:
    """Let clocks and measurements read `now[0]`."""
    for module in ("deadlines", "time_plan"):
        monkeypatch.setattr(f"ddpn.runtime.{module}.time", SimpleNamespace(monotonic=lambda: now[0]))


@pytest.mark.parametrize("budget", [15.0, 60.0, 3600.0])
def test_steps_that_use_all_their_time_stay_within_the_budget(monkeypatch, budget):
    now = [0.0]
    stop_time(monkeypatch, now)
    schedule = Schedule(make_budget_clock(budget))
    for step in STEPS:
        now[0] += schedule.start_clock(step).left
    assert 0.9 * budget <= now[0] <= budget - 0.5


def test_time_that_members_leave_over_goes_to_the_later_steps(monkeypatch):
    now = [0.0]
    stop_time(monkeypatch, now)
    schedule = Schedule(make_budget_clock(100.0))
    planned = schedule.start_clock("members").left
    now[0] += 10.0
    assert schedule.start_clock("calibration").left > 97.0 - planned
    assert schedule.start_clock("scores").left == pytest.approx(schedule.clock.left)


def test_without_a_budget_nothing_ends():
    assert not Schedule(make_budget_clock(None)).start_clock("members").has_limit
    assert count_affordable_rows(Clock(), 100, 1.0, 5000) == 5000


def test_members_share_the_time_and_leave_some_to_be_scored(monkeypatch):
    now = [0.0]
    stop_time(monkeypatch, now)
    clock, ends = Clock(90.0), []
    for members_left in (3, 2, 1):
        member_clock = start_member_clock(clock, members_left)
        assert member_clock.end < member_clock.hard_end < clock.end
        now[0] += member_clock.left
        ends.append(now[0])
    assert ends == pytest.approx([30.0, 60.0, 84.0])


@pytest.mark.parametrize("rows", [1, FIRST_ROWS, FIRST_ROWS + 1, 150, 2 * FIRST_ROWS - 1, 2 * FIRST_ROWS, 5000])
def test_with_enough_time_every_row_is_used(rows):
    assert run_with_rows(Clock(1000.0), rows, lambda number: number) == rows


@pytest.mark.parametrize(("seconds", "rows", "used"), [(100.0, 100_000, 23_940), (110.0, 150, 150), (50.0, 150, 100)])
def test_with_little_time_as_many_rows_are_used_as_there_is_time_for(monkeypatch, seconds, rows, used):
    now = [0.0]
    stop_time(monkeypatch, now)

    def work(number: int) -> int:
        now[0] += 0.0025 * number if rows > 1000 else 0.3 * number
        return number

    # Of the time left after the first hundred rows, 60% are planned with.
    assert run_with_rows(Clock(seconds), rows, work) == pytest.approx(used, abs=1)


def test_time_spent_once_does_not_count_per_row(monkeypatch):
    """The first hundred rows take 10 s of a start, which further rows do not take: all rows are used."""
    now, numbers = [0.0], []
    stop_time(monkeypatch, now)

    def work(number: int) -> int:
        numbers.append(number)
        now[0] += 10.0 + 0.001 * number
        return number

    assert run_with_rows(Clock(100.0), 5000, work) == 5000
    assert numbers[0] == FIRST_ROWS
    assert all(after >= 1.5 * before for before, after in pairwise(numbers))
