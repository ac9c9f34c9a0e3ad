"""What a report is made of: the predicted distribution and the scores of every row, the leaderboard, groups of rows."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.explanations.grid import grid_of
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.gains import effective_rows
from ddpn.analysis.leaderboard import Leaderboard, leaderboard, scored_rows
from ddpn.analysis.numbers import mean, value_text
from ddpn.analysis.verdict import COVERAGE as LEVEL
from ddpn.analysis.verdict import RowScores
from ddpn.distributions import Recalibrated, discretized
from ddpn.distributions.count import rows_of
from ddpn.distributions.limits import limited
from ddpn.metrics.predictive import mass_between
from ddpn.predictor import MIXTURE, Predictor
from ddpn.sample import Sample, check_groups, checked_sample
from ddpn.tables.encoding.table import Column

#: More rows than this would change no digit of a figure: a random draw of so many is shown.
MAX_ROWS = 100_000
SEED = 0
#: Ranges of a numeric column.
_BINS = 5


class Evidence(NamedTuple):
    """The evaluated rows: their inputs with the counts, and arrays with one value per row.

    `labels` are what the user's table calls the rows, `total` is how many it has. `low` and `high` are the ends of the
    interval, `expected` its probability. `components` is how many distributions per row the model mixes, `board` has
    the scores of all rows and all candidates, `calibrated` is the number of rows that intervals were calibrated on (0
    without calibration). `ids` are the name of a column that identifies rows, and its values; `base` the distributions
    before recalibration (None where they are the same), `grouped` the name of what intervals are calibrated by and the
    group of every row.
    """

    inputs: Inputs
    labels: np.ndarray
    total: int
    y: np.ndarray
    weight: np.ndarray
    dist: Any
    mean: np.ndarray
    variance: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected: np.ndarray
    scores: RowScores
    aleatoric: np.ndarray
    epistemic: np.ndarray
    components: int
    board: Leaderboard
    fingerprint: str
    calibrated: int = 0
    ids: tuple[str, Sequence[Any]] | None = None
    base: Any = None
    grouped: tuple[str, np.ndarray] | None = None

    @property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return self.inputs.columns[: self.inputs.width]

    @property
    def exposure(self) -> np.ndarray | None:
        """The exposure of every row, if the model has any."""
        place = self.inputs.extra.get("exposure")
        return None if place is None else self.inputs.columns[place].values

    @property
    def weighted(self) -> bool:
        """Whether rows have different weights."""
        return bool(np.ptp(self.weight) > 0)


def gather(
    model: Any,
    X: Any,
    y: Any,
    exposure: Any = None,
    weight: Any = None,
    upper: Any = None,
    censored: Any = None,
    *,
    baselines: Mapping[str, Distribution] | None = None,
    leak: str = "",
    meaning: str = "",
    labels: Any = None,
    ids: tuple[str, Sequence[Any]] | None = None,
    groups: Any = None,
    interval_groups: Any = None,
    names: Mapping[str, str] | None = None,
    progress: Callable[[str], object] = lambda stage: None,
) -> Evidence:
    """Validate the inputs, score all rows that have a weight, and predict those that are shown."""
    predictor: Predictor = model.predictor_
    sample = checked_sample(X, y, weight, exposure, model.fractional, labels=labels)
    sample = predictor.counts.of(sample, upper, censored)
    total = len(sample)
    sample = sample.replace(
        X=Inputs(model, X, exposure, upper, names).X,  # which checks the columns
        group=check_groups(groups, total),
        interval_groups=None if predictor.groups is None else predictor.groups.labels(X, interval_groups),
    )
    rows = np.flatnonzero(sample.is_used)
    others = {
        str(name): rows_of(dist, torch.from_numpy(rows)) if tuple(dist.batch_shape) == (total,) else dist
        for name, dist in (baselines or {}).items()
    }
    progress(f"Scoring {len(rows):,} rows")
    board = leaderboard(predictor, sample.rows(rows), [leak] if leak else [], meaning, others)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(SEED).choice(rows, MAX_ROWS, replace=False))
    used = sample.rows(rows)
    progress(f"Predicting {len(rows):,} rows")
    known = predictor.counts.arguments(used)
    with torch.no_grad():
        mixture: Any = discretized(predictor.distribution(used.X, known["exposure"], upper=known["upper"]))
        recorded = limited(mixture, used.limit)
        low, high = predictor.interval(recorded, LEVEL, labels=used.interval_groups)
        means = _numbers(recorded.mean)
        return Evidence(
            inputs=Inputs.of_sample(model, used, names),
            labels=rows if used.labels is None else used.labels,
            total=total,
            y=used.y,
            weight=used.weight_or_ones,
            dist=recorded,
            mean=means,
            variance=_numbers(recorded.variance),
            low=_numbers(low),
            high=_numbers(high),
            expected=_numbers(mass_between(recorded, low, high)),
            scores=scored_rows(recorded, used.y, (low, high)),
            aleatoric=_numbers(mixture.aleatoric),
            epistemic=_numbers(mixture.epistemic),
            components=mixture.size,
            board=board,
            fingerprint=sample.digest(),
            calibrated=int(predictor.intervals[MIXTURE].rows[0]) if MIXTURE in predictor.intervals else 0,
            ids=None if ids is None else (ids[0], [ids[1][row] for row in rows.tolist()]),
            base=mixture.base if isinstance(mixture, Recalibrated) else None,
            grouped=_grouped(predictor, used, means),
        )


def _grouped(predictor: Predictor, used: Sample, means: np.ndarray) -> tuple[str, np.ndarray] | None:
    """What intervals are calibrated by, and the name of every row's group."""
    found, labels = predictor.groups, used.interval_groups
    if found is None:
        return None
    names = np.array([*found.names, "not calibrated"], dtype=object)
    return found.by or "predicted mean", names[found.codes(labels, means)] if labels is None else labels


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


# Groups of rows ------------------------------------------------------------------------------------------------------


class RowGroup(NamedTuple):
    """Rows that share a value or range of a column, and means over them; `size` is their effective number."""

    column: str
    label: str
    rows: int
    size: float
    observed: float
    predicted: float
    aleatoric: float
    epistemic: float
    coverage: float
    mae: float

    @property
    def variance(self) -> float:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> float:
        """The epistemic share of the variance."""
        return self.epistemic / self.variance if self.variance > 0 else 0.0


def group_of(column: str, label: str, evidence: Evidence, rows: np.ndarray) -> RowGroup:
    """The group of these rows, given by a mask or by positions."""
    scores, weight = evidence.scores, evidence.weight[rows]
    values = (evidence.y, evidence.mean, evidence.aleatoric, evidence.epistemic, scores.coverage, scores.mae)
    return RowGroup(column, label, len(weight), effective_rows(weight), *(mean(each[rows], weight) for each in values))


def groups_by(columns: list[Column], position: int, evidence: Evidence) -> list[RowGroup]:
    """A group per value, level or range of a column, in their order; rare levels and rows without a value last."""
    column, grid = columns[position], grid_of(columns, position, _BINS)
    code, labels = grid.code, [value_text(point) for point in grid.points]
    if not grid.discrete:
        inner = grid.points[1:-1] or grid.points[:1]
        code = np.where(grid.missing, -1, np.searchsorted(inner, column.values))
        ends = [value_text(end) for end in inner]
        labels = [f"up to {ends[0]}", *(f"{low} to {high}" for low, high in pairwise(ends)), f"above {ends[-1]}"]
    masks = {label: code == place for place, label in enumerate(labels)}
    masks |= {"others": (code < 0) & ~grid.missing, "missing": grid.missing}
    return [group_of(column.name, label, evidence, mask) for label, mask in masks.items() if mask.any()]
