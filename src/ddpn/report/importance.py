"""Which columns drive the mean and which the uncertainty: each is shuffled in turn, and what that does is measured."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.estimators import CountRegressor
from ddpn.metrics import crps
from ddpn.report import tables as table
from ddpn.report.evidence import SEED, Evidence
from ddpn.report.numbers import mean

REPEATS = 3
#: Rows shuffled: at most so many, and fewer where columns are many, so that rows x columns x repeats stay bounded.
_MAX_ROWS, _MIN_ROWS, _WORK = 2000, 300, 45_000
#: Columns measured in full. Where there are more, a quick look finds those that move predictions most.
_MAX_COLUMNS, _LOOK_ROWS = 40, 200
#: With more columns than this even the quick look takes too long.
_MAX_LOOKED_AT = 1000


class Importance(NamedTuple):
    """What shuffling a column does; shares of the value before, means over repeats. `spread`: least and largest."""

    name: str
    column: int  # -1: the exposure
    crps: float
    crps_spread: tuple[float, float]
    deviation: float
    deviation_spread: tuple[float, float]
    aleatoric: float
    epistemic: float


class Importances(NamedTuple):
    """Of every column measured, over so many rows, out of so many columns."""

    each: list[Importance]
    rows: int
    columns: int

    def by(self, name: str) -> list[Importance]:
        """The largest first."""
        return sorted(self.each, key=lambda one: -getattr(one, name))


class _Before(NamedTuple):
    """A draw of rows as they are, and what is predicted for them."""

    given: Any
    y: torch.Tensor
    weight: np.ndarray
    exposure: np.ndarray | None
    crps: float
    mean: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


def importances(
    model: CountRegressor, evidence: Evidence, told: Callable[[str], object], exposure_name: str = "exposure"
) -> Importances:
    """Shuffle every column, and the exposure where there is one."""
    names = dict(enumerate(column.name for column in evidence.columns))
    total = len(names)
    if evidence.exposure is not None:
        names[-1] = exposure_name
    rng = np.random.default_rng(SEED)
    if len(names) > _MAX_LOOKED_AT:
        return Importances([], 0, total)
    if len(names) > _MAX_COLUMNS:
        names = _most_moving(model, evidence, names, rng)
    size = int(np.clip(_WORK // (REPEATS * len(names)), _MIN_ROWS, _MAX_ROWS))
    before = _draw(model, evidence, size, rng)
    found = []
    for place, (column, name) in enumerate(names.items(), 1):
        told(f"Shuffling columns: {place} of {len(names)}")
        found.append(_measured(model, before, column, name, rng))
    return Importances(found, len(before.y), total)


def _draw(model: CountRegressor, evidence: Evidence, size: int, rng: np.random.Generator) -> _Before:
    rows = np.sort(rng.choice(len(evidence.y), min(size, len(evidence.y)), replace=False))
    y, weight = torch.from_numpy(evidence.y[rows]), evidence.weight[rows]
    return _Before(
        table.taken(evidence.given, rows),
        y,
        weight,
        None if evidence.exposure is None else evidence.exposure[rows],
        mean(evidence.model.crps[rows], weight),
        evidence.model.mean[rows],
        evidence.aleatoric[rows],
        evidence.epistemic[rows],
    )


def _law(model: CountRegressor, before: _Before, column: int, rng: np.random.Generator) -> Any:
    """Predictions with one column in another order."""
    order = rng.permutation(len(before.y))
    if column < 0:
        assert before.exposure is not None
        return discretized(model.predict_distribution(table.native(before.given), before.exposure[order]))
    changed = table.shuffled(before.given, column, order)
    return discretized(model.predict_distribution(table.native(changed), before.exposure))


def _measured(model: CountRegressor, before: _Before, column: int, name: str, rng: np.random.Generator) -> Importance:
    results = []
    for _ in range(REPEATS):
        law = _law(model, before, column, rng)
        after = mean(crps(law, before.y).numpy(), before.weight)
        aleatoric, epistemic = law.aleatoric.numpy(), law.epistemic.numpy()
        results.append(
            (
                (after - before.crps) / max(before.crps, np.finfo(float).tiny),
                _change(before.aleatoric + before.epistemic, aleatoric + epistemic, before.weight),
                _change(before.aleatoric, aleatoric, before.weight),
                _change(before.epistemic, epistemic, before.weight),
            )
        )
    score, deviation, aleatoric, epistemic = np.array(results).T
    return Importance(
        name,
        column,
        float(score.mean()),
        (float(score.min()), float(score.max())),
        float(deviation.mean()),
        (float(deviation.min()), float(deviation.max())),
        float(aleatoric.mean()),
        float(epistemic.mean()),
    )


def _change(before: np.ndarray, after: np.ndarray, weight: np.ndarray) -> float:
    """Mean absolute relative change of the standard deviation; of rows that have one."""
    usable = before > 0
    if not usable.any():
        return 0.0
    return mean(np.abs(np.sqrt(after[usable] / before[usable]) - 1.0), weight[usable])


def _most_moving(
    model: CountRegressor, evidence: Evidence, names: dict[int, str], rng: np.random.Generator
) -> dict[int, str]:
    """Columns whose shuffling changes means and deviations of a few rows most, in their order."""
    before = _draw(model, evidence, _LOOK_ROWS, rng)
    spread = np.sqrt(before.aleatoric + before.epistemic).clip(min=np.finfo(float).tiny)
    moved = {}
    for column in names:
        law = _law(model, before, column, rng)
        deviation = np.sqrt((law.aleatoric + law.epistemic).numpy())
        moved[column] = np.mean((np.abs(law.mean.numpy() - before.mean) + np.abs(deviation - spread)) / spread)
    kept = set(sorted(moved, key=lambda column: -moved[column])[:_MAX_COLUMNS])
    return {column: name for column, name in names.items() if column in kept}
