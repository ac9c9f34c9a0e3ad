"""What a report is made of: the predicted distribution and the scores of every row, and the leaderboard."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.explanations.tables import in_fit_order
from ddpn.analysis.leaderboard import COVERAGE as LEVEL
from ddpn.analysis.leaderboard import Leaderboard, leaderboard, scored_rows
from ddpn.analysis.report.columns import columns_of, fingerprint
from ddpn.distributions import Recalibrated, discretized
from ddpn.distributions.recording import limited
from ddpn.distributions.stacking import rows_of
from ddpn.metrics.predictive import mass_between
from ddpn.predictor import MIXTURE, Predictor
from ddpn.sample import Sample, check_groups, checked_sample
from ddpn.tables.encoding.table import Column

#: More rows than this would change no digit of a figure: a random draw of so many is shown.
MAX_ROWS = 100_000
SEED = 0


class Scored(NamedTuple):
    """A distribution per row, its summaries and its scores: one value per row in each array.

    `low` and `high` are the ends of the interval, `inside` is 1 where it covers the count, `expected` its probability;
    `error` is the distance of the median from the count.
    """

    dist: Any
    mean: np.ndarray
    variance: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected: np.ndarray
    error: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    inside: np.ndarray
    width: np.ndarray


class Evidence(NamedTuple):
    """The evaluated rows: `labels` are what the user's table calls them, `X` is that table at these rows.

    `board` has the scores of all rows and all candidates. `ids` are the name of a column that identifies rows, and its
    values. `components` is how many distributions per row the model mixes, `calibrated` the number of rows that its
    intervals were calibrated on (0 without calibration). `base` are the distributions before recalibration (None where
    they are the same), `grouped` the name of what intervals are calibrated by and the group of every row. `upper` is
    the largest possible count of every row, where the model needs it, `limit` the largest that can be recorded, where
    counts are censored.
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
    board: Leaderboard
    fingerprint: str
    calibrated: int = 0
    ids: tuple[str, Sequence[Any]] | None = None
    base: Any = None
    grouped: tuple[str, np.ndarray] | None = None
    upper: np.ndarray | None = None
    limit: np.ndarray | None = None

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
    progress: Callable[[str], object] = lambda stage: None,
) -> Evidence:
    """Validate the inputs, score all rows that have a weight, and predict those that are shown."""
    predictor: Predictor = model.predictor_
    sample = checked_sample(X, y, weight, exposure, model.fractional, labels=labels)
    sample = predictor.counts.of(sample, upper, censored)
    columns, total = columns_of(model, X), len(sample)
    others = {str(name): dist for name, dist in (baselines or {}).items()}
    sample = sample.replace(
        X=in_fit_order(model, X),
        group=check_groups(groups, total),
        interval_groups=_interval_groups(predictor, X, interval_groups),
    )
    kept = np.flatnonzero(sample.is_used)
    others = {
        name: rows_of(dist, torch.from_numpy(kept)) if tuple(dist.batch_shape) == (total,) else dist
        for name, dist in others.items()
    }
    progress(f"Scoring {len(kept):,} rows")
    board = leaderboard(predictor, sample.rows(kept), [leak] if leak else [], meaning, others)
    rows = kept
    if len(kept) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(SEED).choice(kept, MAX_ROWS, replace=False))
    used = sample.rows(rows)
    progress(f"Predicting {len(rows):,} rows")
    known = predictor.counts.arguments(used)
    scale, most = known["exposure"], known["upper"]
    mixture: Any = discretized(predictor.distribution(used.X, scale, upper=most))
    recorded = limited(mixture, used.limit)
    of_model = scored(recorded, used.y, predictor.interval(recorded, LEVEL, labels=used.interval_groups))
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
        board=board,
        fingerprint=fingerprint(columns, sample.y),
        calibrated=int(predictor.intervals[MIXTURE].rows[0]) if MIXTURE in predictor.intervals else 0,
        ids=None if ids is None else (ids[0], [ids[1][row] for row in rows.tolist()]),
        base=mixture.base if isinstance(mixture, Recalibrated) else None,
        grouped=_grouped(predictor, used, of_model.mean),
    )


def _interval_groups(predictor: Predictor, X: Any, groups: Any) -> np.ndarray | None:
    """The group of every row, where intervals are calibrated by a column or by labels."""
    return None if predictor.groups is None else predictor.groups.labels(X, groups)


def _grouped(predictor: Predictor, used: Sample, mean: np.ndarray) -> tuple[str, np.ndarray] | None:
    """What intervals are calibrated by, and the name of every row's group."""
    found, labels = predictor.groups, used.interval_groups
    if found is None:
        return None
    names = np.array([*found.names, "not calibrated"], dtype=object)
    return found.by or "predicted mean", names[found.codes(labels, mean)] if labels is None else labels


@torch.no_grad()
def scored(dist: Any, y: np.ndarray, interval: tuple[Tensor, Tensor]) -> Scored:
    """A count distribution per row with its scores and intervals."""
    low, high = interval
    own = scored_rows(dist, y, interval)
    return Scored(
        dist=dist,
        mean=_numbers(dist.mean),
        variance=_numbers(dist.variance),
        low=_numbers(low),
        high=_numbers(high),
        expected=_numbers(mass_between(dist, low, high)),
        error=own.mae,
        crps=own.crps,
        nll=own.nll,
        inside=own.coverage,
        width=own.width,
    )


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
