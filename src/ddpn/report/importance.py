"""Permutation importance: which columns drive the predictions, and which the uncertainty."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.distributions.recording import limited
from ddpn.estimators import CountRegressor
from ddpn.metrics import crps
from ddpn.report.columns import shuffled
from ddpn.report.evidence import SEED, Evidence
from ddpn.report.numbers import mean
from ddpn.sample import take_rows

REPEATS = 3
#: Rows shuffled: fewer where there are many columns, so that rows x columns x repeats stay bounded.
_MAX_ROWS, _MIN_ROWS, _WORK = 2000, 300, 45_000
#: Columns measured in full. Where there are more, a screening on few rows finds those that change predictions most.
_MAX_COLUMNS, _SCREENING_ROWS = 40, 200
#: With more columns than this even the screening takes too long.
_MAX_SCREENED = 1000
_TINY = np.finfo(float).tiny


class Importance(NamedTuple):
    """Relative changes after shuffling a column, one value per repeat: of the CRPS, and of standard deviations."""

    name: str
    column: int  # -1: the exposure
    crps: np.ndarray
    deviation: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


class Importances(NamedTuple):
    """The importance of every measured column, on so many rows, out of so many columns."""

    each: list[Importance]
    rows: int
    columns: int

    def by(self, name: str) -> list[Importance]:
        """The most important first."""
        return sorted(self.each, key=lambda one: -getattr(one, name).mean())


def importances(
    model: CountRegressor, evidence: Evidence, progress: Callable[[str], object], exposure_name: str = "exposure"
) -> Importances:
    """Shuffle every column in turn, and the exposure where there is one, and measure what changes."""
    names = dict(enumerate(column.name for column in evidence.columns))
    total = len(names)
    if evidence.exposure is not None:
        names[-1] = exposure_name
    if len(names) > _MAX_SCREENED:
        return Importances([], 0, total)
    rng = np.random.default_rng(SEED)
    if len(names) > _MAX_COLUMNS:
        few = _draw(evidence, _SCREENING_ROWS, rng)
        moved = {column: sum(map(abs, _changes(model, evidence, few, column, rng)[:2])) for column in names}
        kept = sorted(moved, key=lambda column: -moved[column])[:_MAX_COLUMNS]
        names = {column: names[column] for column in sorted(kept)}
    rows = _draw(evidence, int(np.clip(_WORK // (REPEATS * len(names)), _MIN_ROWS, _MAX_ROWS)), rng)
    found = []
    for place, (column, name) in enumerate(names.items(), 1):
        progress(f"Shuffling columns: {place} of {len(names)}")
        changes = [_changes(model, evidence, rows, column, rng) for _ in range(REPEATS)]
        found.append(Importance(name, column, *np.array(changes).T))
    return Importances(found, len(rows), total)


def _draw(evidence: Evidence, size: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(len(evidence.y), min(size, len(evidence.y)), replace=False))


def _changes(
    model: CountRegressor, evidence: Evidence, rows: np.ndarray, column: int, rng: np.random.Generator
) -> tuple[float, ...]:
    """The values of one shuffle of a column (or of the exposure), in the order of `Importance`."""
    order, weight = rng.permutation(len(rows)), evidence.weight[rows]
    X, exposure = take_rows(evidence.X, rows), None if evidence.exposure is None else evidence.exposure[rows]
    if column >= 0:
        X = shuffled(X, column, order)
    elif exposure is not None:
        exposure = exposure[order]
    upper, limit = (None if part is None else part[rows] for part in (evidence.upper, evidence.limit))
    dist: Any = discretized(model.predict_distribution(X, exposure, upper=upper))
    before = mean(evidence.model.crps[rows], weight)
    recorded = limited(dist, limit)
    after = mean(crps(recorded, torch.from_numpy(evidence.y[rows])).numpy(), weight)
    old = np.array([evidence.aleatoric[rows], evidence.epistemic[rows]])
    new = np.array([dist.aleatoric.numpy(), dist.epistemic.numpy()])
    pairs = zip([old.sum(0), *old], [new.sum(0), *new], strict=True)
    return (after - before) / max(before, _TINY), *(_deviation_change(*pair, weight) for pair in pairs)


def _deviation_change(before: np.ndarray, after: np.ndarray, weight: np.ndarray) -> float:
    """Mean absolute relative change of the standard deviation, over the rows that have one."""
    usable = before > 0
    if not usable.any():
        return 0.0
    return mean(np.abs(np.sqrt(after[usable] / before[usable]) - 1.0), weight[usable])
