"""What a report is made of: the predicted distribution and the scores of every row, for the model and its baselines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.explanations.tables import in_fit_order
from ddpn.analysis.report.columns import columns_of, fingerprint
from ddpn.analysis.report.numbers import mean
from ddpn.calibration.intervals import interval_at
from ddpn.distributions import Recalibrated, discretized
from ddpn.distributions.recording import limited
from ddpn.estimators import CountRegressor
from ddpn.metrics import crps, nll, point
from ddpn.metrics.predictive import known, mass_between
from ddpn.runtime.errors import InputError
from ddpn.sample import checked_sample
from ddpn.tables.encoding.table import Column

#: More rows than this would change no digit that is shown: a random draw of so many is evaluated.
MAX_ROWS = 100_000
#: The nominal coverage of every interval in the report.
LEVEL = 0.9
SEED = 0


class Scored(NamedTuple):
    """A distribution per row, its summaries and its scores: one value per row in each array.

    `low` and `high` are the ends of the interval, `inside` is 1 where it covers the count, `expected` its probability;
    `error` is the distance of the median from the count.
    """

    dist: Any
    mean: np.ndarray
    variance: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    error: np.ndarray
    inside: np.ndarray
    expected: np.ndarray
    width: np.ndarray

    def scores(self, weight: np.ndarray) -> dict[str, float]:
        """Means over the rows, by the name of the score."""
        names = {"mae": "error", "crps": "crps", "nll": "nll", "coverage": "inside", "expected": "expected"}
        return {score: mean(getattr(self, name), weight) for score, name in (names | {"width": "width"}).items()}


class Evidence(NamedTuple):
    """The evaluated rows: `labels` are what the user's table calls them, `X` is that table at these rows.

    `ids` are the name of a column that identifies rows, and its values. `components` is how many distributions per row
    the model mixes, `calibrated` the number of rows that its intervals were calibrated on (0 without calibration).
    `base` are the distributions before recalibration (None where they are the same), `grouped` the name of what
    intervals are calibrated by and the group of every row. `upper` is the largest possible count of every row, where
    the model needs it, `limit` the largest that can be recorded, where counts are censored.
    """

    labels: np.ndarray
    total: int
    X: Any
    columns: list[Column]
    y: np.ndarray
    weight: np.ndarray
    exposure: np.ndarray | None
    model: Scored
    aleatoric: np.ndarray
    epistemic: np.ndarray
    components: int
    baselines: dict[str, Scored]
    fingerprint: str
    calibrated: int = 0
    ids: tuple[str, Sequence[Any]] | None = None
    base: Any = None
    grouped: tuple[str, np.ndarray] | None = None
    upper: np.ndarray | None = None
    limit: np.ndarray | None = None

    @property
    def ranked(self) -> list[str]:
        """The names of the baselines, the smallest CRPS first."""
        return sorted(self.baselines, key=lambda name: np.average(self.baselines[name].crps, weights=self.weight))

    @property
    def weighted(self) -> bool:
        """Whether rows have different weights."""
        return bool(np.ptp(self.weight) > 0)


def gather(
    model: CountRegressor,
    X: Any,
    y: Any,
    exposure: Any,
    weight: Any,
    baselines: Mapping[str, Distribution],
    progress: Callable[[str], object],
    levels: Mapping[str, float] | None = None,
    labels: Any = None,
    ids: tuple[str, Sequence[Any]] | None = None,
    groups: Any = None,
    upper: Any = None,
    censored: Any = None,
) -> Evidence:
    """Validate the inputs, choose the rows, predict and score them; `levels` are those of the baselines' intervals."""
    sample = checked_sample(X, y, weight, exposure, model.fractional, labels=labels)
    sample = model.predictor_.counts.of(sample, upper, censored)
    columns, total = columns_of(model, X), len(sample)
    others = {str(name): count_distribution(str(name), dist, total) for name, dist in baselines.items()}
    rows = np.flatnonzero(sample.is_used)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(SEED).choice(rows, MAX_ROWS, replace=False))
    labels_of = None if groups is None else np.asarray(groups)
    used = sample.replace(X=in_fit_order(model, X), interval_groups=labels_of).rows(rows)
    progress(f"Predicting {len(rows):,} rows")
    known = model.predictor_.counts.arguments(used)
    scale, most = known["exposure"], known["upper"]
    mixture: Any = discretized(model.predict_distribution(used.X, scale, upper=most))
    recorded = limited(mixture, used.limit)
    observed = torch.from_numpy(used.y)
    progress(f"Scoring {len(rows):,} rows")
    labels_of_groups = _group_labels(model, used, groups)
    of_model = scored(recorded, observed, model.predictor_.interval(recorded, LEVEL, labels=labels_of_groups))
    of_others = {}
    for name, dist in others.items():
        progress(f"Scoring {name}")
        own = limited(dist.rows(torch.from_numpy(rows)), used.limit)
        of_others[name] = scored(own, observed, interval_at(own, (levels or {}).get(name, LEVEL)))
    return Evidence(
        labels=rows if used.labels is None else used.labels,
        total=total,
        X=used.X,
        columns=[column._replace(values=column.values[rows]) for column in columns],
        y=used.y,
        weight=used.weight_or_ones,
        exposure=scale,
        upper=most,
        limit=used.limit,
        model=of_model,
        aleatoric=_numbers(mixture.aleatoric),
        epistemic=_numbers(mixture.epistemic),
        components=mixture.size,
        baselines=of_others,
        fingerprint=fingerprint(columns, sample.y),
        calibrated=int(model.interval_levels_.rows[0]) if hasattr(model, "interval_levels_") else 0,
        ids=None if ids is None else (ids[0], [ids[1][row] for row in rows.tolist()]),
        base=mixture.base if isinstance(mixture, Recalibrated) else None,
        grouped=_grouped(model, labels_of_groups, of_model.mean),
    )


def _group_labels(model: CountRegressor, used: Any, groups: Any) -> np.ndarray | None:
    """The groups of the evaluated rows, where intervals are calibrated by a column."""
    known_groups = model.predictor_.groups
    return (
        None
        if known_groups is None
        else known_groups.labels(used.X, used.interval_groups if groups is not None else None)
    )


def _grouped(model: CountRegressor, labels: np.ndarray | None, mean: np.ndarray) -> tuple[str, np.ndarray] | None:
    """What intervals are calibrated by, and the name of every row's group."""
    found = model.predictor_.groups
    if found is None:
        return None
    names = np.array([*found.names, "not calibrated"], dtype=object)
    return found.by or "predicted mean", names[found.codes(labels, mean)] if labels is None else labels


def count_distribution(name: str, dist: Distribution, rows: int) -> Any:
    """A baseline as a count distribution per row: a Normal is rounded, a single distribution serves every row."""
    shape = tuple(known(dist).batch_shape)
    if shape not in ((), (1,), (rows,)):
        raise InputError(f"baseline '{name}' must have one distribution per row of X ({rows}), got batch {shape}.")
    return discretized(dist if shape == (rows,) else dist.expand((rows,)))


@torch.no_grad()
def scored(dist: Any, y: Tensor, interval: tuple[Tensor, Tensor] | None = None) -> Scored:
    """A count distribution per row with its scores, and its interval of `LEVEL`, by default as predicted."""
    (low, high), median = interval or dist.interval(LEVEL), point(dist, "median")
    summaries = (dist.mean, dist.variance, median, low, high)
    scores = (crps(dist, y), nll(dist, y), (median - y).abs())
    covered = ((low <= y) & (y <= high), mass_between(dist, low, high), high - low)
    return Scored(dist, *map(_numbers, (*summaries, *scores, *covered)))


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
