"""Which test rows are scored where time is short."""

from types import SimpleNamespace

import polars as pl
import pytest

from ddpn.runtime.deadlines import Clock
from ddpn.workflow import finishing
from ddpn.workflow.finishing import Finish
from ddpn.workflow.interrupts import Interrupts
from ddpn.workflow.preparing import prepare


@pytest.fixture
def scored(table, plan, monkeypatch):
    """Returns the test rows that a fit of this seed scores, with time for ten of them."""
    rows = table.with_columns(part=pl.Series((["train"] * 7 + ["validation"] + ["test"] * 2) * 30))
    monkeypatch.setattr(finishing, "with_rows", lambda clock, number, work: work(10))
    scored = lambda predictor, test, *_: SimpleNamespace(to_dict=lambda: {"rows": len(test), "y": test.labels})
    monkeypatch.setattr(finishing, "leaderboard", scored)

    def of_seed(seed: int) -> list[int]:
        prepared = prepare(rows, plan(seed=seed, split_column="part"))
        with pytest.warns(UserWarning, match="The model is scored on 10 of 60 test rows, because the time budget"):
            return list(Finish(None, prepared, Interrupts(), lambda text: None).scores(Clock())["y"])

    return of_seed


def test_rows_that_are_scored_in_short_time_are_drawn_with_the_seed_of_the_fit(scored):
    assert scored(0) == scored(0) != scored(1)
    assert len(set(scored(1))) == 10
