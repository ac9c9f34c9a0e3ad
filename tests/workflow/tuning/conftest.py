"""A small table, a plan that fits it in a tenth of a second, and trials without a fit."""

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare
from ddpn.workflow.tuning import trials as trials_module
from ddpn.workflow.tuning.folds import folds_of
from ddpn.workflow.tuning.search import Search
from ddpn.workflow.tuning.space import Choices, Limit, Range
from ddpn.workflow.tuning.trials import Scored

#: One small network.
QUICK = {
    "members": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip
SPACE = {"lr": Range(0.001, 0.1), "hidden": Choices(("8", "16", "32"))}
DEFAULTS = {"lr": 0.01, "hidden": "16"}


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """120 rows: no validation rows, and so three folds of 32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 4, 29), "1d", eager=True)
    return pl.DataFrame({"x": x, "day": days, "visits": rng.poisson(np.exp(1 + x))})


@pytest.fixture(scope="session")
def prepared(table):
    return prepare(table, Plan(target="visits", drop=("day",), compare_with=(), model=QUICK))


@pytest.fixture(scope="session")
def folds(prepared):
    return folds_of(prepared)


@pytest.fixture
def no_fits(monkeypatch):
    """Trials are not fitted: their CRPS is smallest near lr = 0.02; every call's settings are kept."""
    calls = []

    def score_fold(fold, settings, clock):
        calls.append(dict(settings))
        rng = np.random.default_rng(len(fold.test.y))
        worse = abs(np.log(settings["lr"] / 0.02)) + 0.1 * (settings["hidden"] == "8")
        return Scored(1 + worse + 0.1 * rng.random(len(fold.test)), 0.01)

    monkeypatch.setattr(trials_module, "score_fold", score_fold)
    return calls


@pytest.fixture
def run(tmp_path, folds):
    """Runs a search in a folder, and returns it with its trials."""

    def go(folder="study", trials=None, seconds=None, seed=0, **options):
        more = {"rows": 96, "seed": seed, "folder": tmp_path / folder, **options}
        found = Search(list(folds), SPACE, DEFAULTS, Limit(seconds, trials), **more)
        found.run()
        return found

    return go
