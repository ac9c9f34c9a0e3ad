"""What a report rests on: every judged row's law, how it did, and the same of the baselines."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import discretized
from ddpn.estimators import CountRegressor
from ddpn.estimators.inputs import targets
from ddpn.features.table import Column
from ddpn.metrics import crps, nll, point
from ddpn.metrics.predictive import mass_between
from ddpn.report import tables as table
from ddpn.report.distributions import count_law, rows_of
from ddpn.report.numbers import mean

#: More rows than this would change no digit that is shown: a random draw of so many is judged.
MAX_ROWS = 100_000
#: The interval all of the report speaks of.
LEVEL = 0.9
SEED = 0


class Judged(NamedTuple):
    """One law a row, what it says and how it did. Each array: one value a row."""

    law: Any
    mean: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    variance: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    expected: np.ndarray

    def inside(self, y: np.ndarray) -> np.ndarray:
        """1 where the interval held."""
        return ((self.low <= y) & (y <= self.high)).astype(float)

    def scores(self, y: np.ndarray, weight: np.ndarray) -> dict[str, float]:
        """What the table of accuracy shows."""
        each = {
            "mae": np.abs(self.median - y),
            "crps": self.crps,
            "nll": self.nll,
            "coverage": self.inside(y),
            "expected": self.expected,
            "width": self.high - self.low,
        }
        return {name: mean(values, weight) for name, values in each.items()}


class Evidence(NamedTuple):
    """The judged rows: `rows` are their places in X, `given` is X itself at these places."""

    rows: np.ndarray
    total: int
    given: Any
    columns: list[Column]
    y: np.ndarray
    weight: np.ndarray
    weighted: bool
    exposure: np.ndarray | None
    model: Judged
    aleatoric: np.ndarray
    epistemic: np.ndarray
    members: int
    baselines: dict[str, Judged]
    fingerprint: str
    #: Rows by which the intervals were calibrated; 0 where they are the laws' own.
    calibrated: int = 0
    #: How many of the members are a GLM, not networks.
    linear: int = 0


def gather(
    model: CountRegressor,
    X: Any,
    y: Any,
    exposure: Any,
    weight: Any,
    baselines: Mapping[str, Distribution],
    told: Callable[[str], object],
    levels: Mapping[str, float] | None = None,
) -> Evidence:
    """Check what was given, choose the rows, predict and score them; `levels` are those of the baselines' intervals."""
    found = targets(X, y, weight, exposure, model.fractional)
    columns = table.columns_of(model, X)
    total = len(found.y)
    laws = {str(name): count_law(str(name), law, total) for name, law in baselines.items()}
    rows = _judged_rows(found.weight, total)
    given = table.taken(table.in_fitted_order(model, X), rows)
    scale = None if found.exposure is None else found.exposure[rows]
    told(f"Predicting {len(rows):,} rows")
    mixture: Any = discretized(model.predict_distribution(table.native(given), scale))
    observed = torch.from_numpy(found.y[rows])
    told(f"Scoring {len(rows):,} rows")
    of_model = judged(mixture, observed, model.interval_level(LEVEL))
    of_others = {}
    for name, law in laws.items():
        told(f"Scoring {name}")
        of_others[name] = judged(rows_of(law, torch.from_numpy(rows)), observed, (levels or {}).get(name, LEVEL))
    return Evidence(
        rows=rows,
        total=total,
        given=given,
        columns=[column._replace(values=column.values[rows]) for column in columns],
        y=found.y[rows],
        weight=np.ones(len(rows)) if found.weight is None else found.weight[rows],
        weighted=found.weight is not None,
        exposure=scale,
        model=of_model,
        aleatoric=_numbers(mixture.aleatoric),
        epistemic=_numbers(mixture.epistemic),
        members=mixture.size,
        linear=linear.copies if (linear := getattr(model, "linear_", None)) else 0,
        baselines=of_others,
        fingerprint=table.fingerprint(columns, found.y),
        calibrated=int(model.interval_levels_.rows[0]) if hasattr(model, "interval_levels_") else 0,
    )


def _judged_rows(weight: np.ndarray | None, total: int) -> np.ndarray:
    """Rows that count, in their order; a draw of `MAX_ROWS` where there are more."""
    rows = np.arange(total) if weight is None else np.flatnonzero(weight > 0)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(SEED).choice(rows, MAX_ROWS, replace=False))
    return rows


@torch.no_grad()
def judged(law: Any, y: Tensor, level: float = LEVEL) -> Judged:
    """A count law, its scores against y, and its interval at the level that holds `LEVEL`."""
    low, high = law.interval(level)
    expected = mass_between(law, low, high)
    parts = (law.mean, point(law, "median"), low, high, law.variance, crps(law, y), nll(law, y), expected)
    return Judged(law, *map(_numbers, parts))


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
