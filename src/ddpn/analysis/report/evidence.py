"""Collect the content of a report: predictions and scores of all rows, groups of rows, and sentences about them.

The headline of a report comes from `ddpn.analysis.verdict`, which every command shares.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.evaluation import MIN_ROWS, Evaluation
from ddpn.analysis.explanations.column_effects import make_grid
from ddpn.analysis.explanations.inputs import FittedModel, Inputs
from ddpn.analysis.gains import mean_gain
from ddpn.analysis.leaderboard import Leaderboard, leaderboard, out_of_fold_leaderboard
from ddpn.analysis.plots import Pit
from ddpn.analysis.row_scores import COVERAGE as LEVEL
from ddpn.analysis.row_scores import RowScores, score_distribution
from ddpn.calibration.calibrate import CalibratedRows
from ddpn.calibration.recalibration import Recalibration
from ddpn.distributions import CountDistribution
from ddpn.distributions.count import select_rows
from ddpn.distributions.limits import censor_rows
from ddpn.prediction.prediction import Prediction
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import format_number, percent, plural, value_text
from ddpn.statistics import bonferroni_z, effective_rows, weighted_mean, weighted_quantile, wilson_interval
from ddpn.tables.columns import Column
from ddpn.tables.row_draw import MAX_ROWS, draw_sample, format_drawn_rows

#: The number of ranges into which a numeric column is divided.
_RANGES = 5
#: The smallest bias that is reported, as a share of the mean count.
_MIN_BIAS = 0.02
#: The fewest rows, and the smallest share of all rows, of a group that a sentence mentions.
_MIN_ROWS, _MIN_SHARE = 10, 0.02
#: Components agree if their epistemic share of the variance is smaller.
_MIN_DISAGREEMENT = 0.02


#: Fields of the evidence that are predicted block by block.
_PREDICTED = ("mean", "low", "high", "expected", "aleatoric", "epistemic")


class Evidence(NamedTuple):
    """Everything that a report says about the evaluated rows: inputs, counts, predictions and scores.

    Arrays have one value per row.
    `labels` are the names of the rows in the user's table, and `total` is the number of rows from which they were
    drawn. `low` and `high` are the ends of the interval, `expected` is its probability. `components` is the number of
    distributions per row in the mixture, `board` the leaderboard, and `calibrated` the number of rows on which
    intervals were calibrated (0 if they were not). `ids` has the name and the values of a column that identifies rows.
    `grouped` has the name of the groups by which intervals are calibrated, and the group of every row. `measured` has
    the inputs from which the importance of columns is measured, if these are not `inputs`. `dists` are the
    distributions of consecutive blocks of rows. `without_weight` is the number of rows of weight 0, which are left out.
    """

    inputs: Inputs
    labels: np.ndarray
    total: int
    y: np.ndarray
    weight: np.ndarray
    dists: list[CountDistribution]
    mean: np.ndarray
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
    ids: tuple[str, Sequence[object]] | None = None
    grouped: tuple[str, np.ndarray] | None = None
    measured: Inputs | None = None
    without_weight: int = 0

    def distribution(self, row: int) -> CountDistribution:
        """Return the predicted distribution of one row."""
        for dist in self.dists:
            if row < dist.batch_shape[0]:
                return dist.rows(torch.tensor([row]))
            row -= dist.batch_shape[0]
        raise IndexError(row)

    @property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return self.inputs.columns[: self.inputs.width]

    @property
    def exposure(self) -> np.ndarray | None:
        """The exposure of every row; None if the model has no exposure."""
        index = self.inputs.extra.get("exposure")
        return None if index is None else self.inputs.columns[index].values

    @property
    def weighted(self) -> bool:
        """True if rows have different weights."""
        return bool(np.ptp(self.weight) > 0)


def gather(
    model: FittedModel,
    sample: CountRows,
    baselines: Mapping[str, Distribution] | None = None,
    leak: str = "",
    scores_note: str = "",
    ids: tuple[str, Sequence[object]] | None = None,
    names: Mapping[str, str] | None = None,
    progress: Callable[[str], object] = lambda stage: None,
    held_out: CalibratedRows | None = None,
    max_rows: int | None = MAX_ROWS,
    total: int | None = None,
) -> Evidence:
    """Predict and score the rows of positive weight; with `held_out`, out of fold. The arguments are `write_report`'s.

    `names` are names to show for "exposure" and "upper". If there are more than `max_rows` rows, some are drawn.
    `total` is the number of rows from which the sample was already drawn.
    """
    predictor: Predictor = model.predictor_
    leaks = [leak] if leak else []
    calibration = predictor.calibration
    if calibration.groups is not None:
        labels = calibration.groups.read_labels(sample.X, sample.interval_groups, "interval_groups")
        sample = sample.replace(interval_groups=labels)
    draw = draw_sample(sample, max_rows if held_out is None else None)
    rows, used, total = draw.positions, draw.take(sample), draw.total if total is None else total
    progress(f"Predicting {format_drawn_rows(len(used), total)}")
    with torch.no_grad():
        blocks = predictor.predict_rows(used) if held_out is None else predictor.predict_out_of_fold(held_out)
        predicted = [_summarise_block(*block) for block in blocks]
    scores = RowScores(*map(np.concatenate, zip(*(part.scores for part in predicted), strict=True)))
    progress(f"Scoring {format_drawn_rows(len(used), total)}")
    if held_out is None:
        others = {
            str(name): select_rows(dist, torch.from_numpy(rows)) if tuple(dist.batch_shape) == (len(sample),) else dist
            for name, dist in (baselines or {}).items()
        }
        board = leaderboard(predictor, used, leaks, scores_note, others, total, scores)
    else:
        board = out_of_fold_leaderboard(predictor, held_out, leaks, scores_note)
    columns = [np.concatenate(values) for values in zip(*(part.arrays for part in predicted), strict=True)]
    grouped = None
    if calibration.groups is not None and used.interval_groups is not None:
        grouped = calibration.groups.by, used.interval_groups
    return Evidence(
        inputs=Inputs.from_sample(model, used, names, total),
        labels=rows if used.labels is None else used.labels,
        total=total,
        y=used.y,
        weight=used.weight_or_ones,
        dists=[part.dist for part in predicted],
        **dict(zip(_PREDICTED, columns, strict=True)),
        scores=scores,
        components=max(part.components for part in predicted),
        board=board,
        fingerprint=sample.compute_digest(),
        calibrated=int(calibration.intervals[MIXTURE].rows[0]) if MIXTURE in calibration.intervals else 0,
        ids=None if ids is None else (ids[0], [ids[1][row] for row in rows.tolist()]),
        grouped=grouped,
        without_weight=int((~sample.has_weight).sum()),
        measured=None if held_out is None else Inputs.from_first_fold(model, held_out, names),
    )


class _PredictedBlock(NamedTuple):
    """What a report keeps of the predictions of one block of rows.

    `dist` has the distributions of recorded counts, `components` the number of components of each mixture, and `arrays`
    one array for each name in `_PREDICTED`.
    """

    dist: CountDistribution
    scores: RowScores
    components: int
    arrays: list[np.ndarray]


def _summarise_block(prediction: Prediction, rows: CountRows) -> _PredictedBlock:
    """Compute the calibrated intervals, the parts of the variance and the scores of a block from its prediction."""
    mixture: Any = prediction.counts
    recorded = censor_rows(mixture, rows.limit)
    interval = replace(prediction, distribution=recorded).interval_with_probability(LEVEL)
    values = recorded.mean, *interval, mixture.aleatoric, mixture.epistemic
    scores = score_distribution(recorded, rows.y, interval)
    return _PredictedBlock(recorded, scores, mixture.size, list(map(_to_numpy, values)))


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


# Groups of rows ------------------------------------------------------------------------------------------------------


class RowGroup(NamedTuple):
    """Rows that share a value or a range of values of a column, with weighted means over them for tables and sentences.

    `effective_rows` is their effective number, which is smaller than `rows` if weights differ.
    """

    column: str
    label: str
    rows: int
    effective_rows: float
    observed: float
    aleatoric: float
    epistemic: float
    coverage: float
    expected: float
    mae: float

    @property
    def variance(self) -> float:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> float:
        """The epistemic share of the variance."""
        return self.epistemic / self.variance if self.variance > 0 else 0.0


def summarize_group(column: str, label: str, evidence: Evidence, rows: np.ndarray) -> RowGroup:
    """Average counts, variances and scores over a group of rows, given by a mask or by positions.

    `column` is the name of the column that defines the group, `label` the value or range that its rows share.
    """
    scores, weight = evidence.scores, evidence.weight[rows]
    values = (evidence.y, evidence.aleatoric, evidence.epistemic, scores.coverage, scores.expected, scores.mae)
    return RowGroup(
        column,
        label,
        len(weight),
        effective_rows(weight),
        *(weighted_mean(column_values[rows], weight) for column_values in values),
    )


def group_by_column(columns: list[Column], position: int, evidence: Evidence) -> list[RowGroup]:
    """Group the evaluated rows by the values, levels or ranges of the column at `position`.

    Rare levels and missing values come last.
    """
    column, grid = columns[position], make_grid(columns, position, _RANGES)
    is_day = column.name in evidence.inputs.day_columns
    code, labels = grid.code, [value_text(point, is_day) for point in grid.points]
    if not grid.discrete:
        inner = grid.points[1:-1] or grid.points[:1]
        code = np.where(grid.missing, -1, np.searchsorted(inner, column.values))
        ends = [value_text(end, is_day) for end in inner]
        labels = [f"up to {ends[0]}", *(f"{low} to {high}" for low, high in pairwise(ends)), f"above {ends[-1]}"]
    masks = {label: code == index for index, label in enumerate(labels)}
    masks |= {"others": (code < 0) & ~grid.missing, "missing": grid.missing}
    return [summarize_group(column.name, label, evidence, mask) for label, mask in masks.items() if mask.any()]


# Sentences -----------------------------------------------------------------------------------------------------------


def describe_errors(evidence: Evidence, target: str) -> str:
    """Describe the typical error of a single prediction of `target`, and the bias if it is notable."""
    y, weight, error = evidence.y, evidence.weight, evidence.scores.mae
    level = weighted_mean(y, weight)
    half, most = (weighted_quantile(error, weight, q) for q in (0.5, 0.9))
    middle = "exact" if half == 0 else f"off by {format_number(half)} or less"
    words = (
        f"Half of the predictions are {middle}, 90% are off by {format_number(most)} or less. The mean absolute error "
        f"is {format_number(weighted_mean(error, weight))}, and the mean of {target} is {format_number(level)}."
    )
    bias = mean_gain(evidence.mean - y, weight)
    if len(y) >= MIN_ROWS and level > 0 and abs(bias.mean) > _MIN_BIAS * level and bias.is_clear:
        side = "above" if bias.mean > 0 else "below"
        words += (
            f" There is a bias: on average predicted means are {percent(abs(bias.mean) / level)} {side} the counts."
        )
    return words


def describe_coverage(evidence: Evidence, evaluation: Evaluation) -> str:
    """Describe how many rows lie inside their interval, with the uncertainty, and compare this with the expectation.

    The expectation is the mean probability of the intervals by their own distributions.
    """
    asked, expected = percent(LEVEL, 0), evaluation.expected
    low, high = wilson_interval(evaluation.coverage, evaluation.independent_rows)
    share, interval = percent(evaluation.coverage), f"95% interval {percent(low)} to {percent(high)}"
    if evidence.weighted:
        words = f"It covers {share} of the weighted rows ({interval}). "
    else:
        inside = round(evaluation.coverage * evaluation.rows)
        words = f"It covers {inside:,} of {plural(evaluation.rows, 'row')} ({share}, {interval}). "
    reason = f"expected {percent(expected)}; at least {asked} asked"
    if evidence.calibrated:
        words += f"It was calibrated on {plural(evidence.calibrated, 'held-out row')}. "
    if evaluation.too_narrow:
        return words + f"That is clearly less than asked ({reason}): the intervals are too narrow."
    if evaluation.too_wide:
        return words + f"That is clearly more than expected ({reason}): the intervals are too wide."
    if high < expected:
        return words + f"That is a little less than expected ({reason}): the model is slightly overconfident."
    if low > expected:
        return words + f"That is more than expected ({reason}): the intervals are wider than necessary."
    return words + f"That is as expected ({reason})."


def describe_pit(pit: Pit) -> str:
    """Describe what the shape of the PIT histogram means, if it is more than chance."""
    if pit.shape == "flat":
        return "The PIT histogram is flat except for chance: there is no evidence against the predicted distributions."
    if pit.shape == "uneven":
        return "The PIT histogram has bars outside the range of chance, but without a slope, a U or a hump."
    shape = {"U": "U-shaped", "hump": "hump-shaped"}.get(pit.shape, "sloped")
    return f"The PIT histogram is {shape}, more than chance explains ({pit.meaning})."


def describe_recalibration(recalibration: Recalibration | None) -> str:
    """Describe whether the predicted distributions are recalibrated, and the gain on held-out rows."""
    if recalibration is None:
        return ""
    gain = f"{format_number(recalibration.gain)} ± {format_number(recalibration.error)} (mean and standard error)"
    rows = plural(recalibration.rows, "held-out row")
    if not recalibration.is_used:
        change = (
            f"only {format_number(recalibration.gain)} lower"
            if recalibration.gain > 0
            else f"{format_number(-recalibration.gain)} higher"
        )
        error = f"(standard error {format_number(recalibration.error)})"
        return f"Recalibration was tried on {rows} and is not used: with it, their CRPS is {change} {error}."
    return (
        f"The predicted distributions are recalibrated by a monotone map of their cdf, fitted to {rows}. The CRPS "
        f"improved by {gain}; each row was scored with a map fitted to other rows. Aleatoric and epistemic variance "
        "are those of the mixture, scaled to the recalibrated variance."
    )


def describe_uncertainty(evidence: Evidence, groups: list[RowGroup]) -> list[tuple[str, str]]:
    """Explain why the model is uncertain, and where its intervals are too narrow; return (topic, sentences)."""
    whole = summarize_group("", "all rows", evidence, np.arange(len(evidence.y)))
    min_rows = max(_MIN_ROWS, _MIN_SHARE * whole.rows)
    large = [group for group in groups if group.rows >= min_rows]
    reason = ""
    if evidence.components == 1:
        reason = "A single model has no epistemic uncertainty: fit several members to measure it."
    elif whole.share < _MIN_DISAGREEMENT:
        reason = (
            f"The {evidence.components} components of the mixture agree: their disagreement is {percent(whole.share)} "
            "of the variance. The rest is noise in the counts, which more training rows would not remove."
        )
    elif large:
        group = max(large, key=lambda group: group.share)
        reason = (
            f"{percent(1 - whole.share)} of the variance is noise in the counts (aleatoric), {percent(whole.share)} is "
            f"disagreement between the components (epistemic). They disagree most where {group.column} is "
            f"{group.label} ({percent(group.share)}): more training rows of that kind would help."
        )
    topics = [("Reason", reason)] if reason else []
    # The group with the lowest coverage, if this is more than chance, corrected for the number of groups.
    highest = {
        group: wilson_interval(group.coverage, group.effective_rows, bonferroni_z(len(large)))[1] for group in large
    }
    weakest = min(large, key=highest.__getitem__, default=whole)
    if highest.get(weakest, 1.0) < LEVEL:
        words = (
            f"Where {weakest.column} is {weakest.label}, the {percent(LEVEL, 0)} interval covers only "
            f"{percent(weakest.coverage)} of {weakest.rows:,} rows. Do not rely on it there."
        )
        topics.append(("Narrow intervals", words))
    return topics
