"""`Evidence`: predictions and scores of the rows on which a report is based."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.analysis.explanations.inputs import FittedModel, Inputs
from ddpn.analysis.leaderboard import Leaderboard, leaderboard, out_of_fold_leaderboard
from ddpn.analysis.row_scores import COVERAGE as LEVEL
from ddpn.analysis.row_scores import RowScores, score_distribution
from ddpn.calibration.calibrate import CalibratedRows
from ddpn.distributions import CountDistribution
from ddpn.distributions.batch_shapes import select_rows
from ddpn.distributions.limits import censor_rows
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.tables.columns import Column
from ddpn.tables.row_draw import MAX_ROWS, draw_sample, format_drawn_rows


class Evidence(NamedTuple):
    """Rows on which a report is based, with their counts, predictions and scores.

    Arrays have one value per row.

    Attributes
    ----------
    inputs : Inputs
        The model and the rows, for explanations.
    labels : array
        The names of the rows in the user's table.
    total : int
        The number of rows from which the rows were drawn.
    y : array
        The counts.
    weight : array
        The weights.
    dists : list of CountDistribution
        The predicted distributions of the recorded counts, which are limited if counts are censored. There is one
        object per block of consecutive rows.
    mean : array
        The predicted means.
    low, high : array
        The lowest and the highest count of each prediction interval.
    scores : RowScores
        The scores of the predictions.
    aleatoric : array
        The part of the predicted variance that is noise in the counts.
    epistemic : array
        The part of the predicted variance that is disagreement between the components of the mixture.
    components : int
        The number of components of the mixture that is predicted for a row.
    board : Leaderboard
        The leaderboard.
    fingerprint : str
        A hash of the rows, for the report.
    calibration_rows : int
        The number of rows on which intervals were calibrated; 0 if they were not.
    ids : tuple or None
        The name and the values of a column that identifies rows, if the user gave one.
    grouped : tuple or None
        If intervals are calibrated by group: the name of the groups (usually of a column), and the group of every row.
    importance_inputs : Inputs or None
        The model and the rows on which the importance of columns is measured. None measures it on `inputs`.
    without_weight : int
        The number of rows of weight 0, which the report leaves out.
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
    scores: RowScores
    aleatoric: np.ndarray
    epistemic: np.ndarray
    components: int
    board: Leaderboard
    fingerprint: str
    calibration_rows: int = 0
    ids: tuple[str, Sequence[object]] | None = None
    grouped: tuple[str, np.ndarray] | None = None
    importance_inputs: Inputs | None = None
    without_weight: int = 0

    def distribution(self, row: int) -> CountDistribution:
        """Return the predicted distribution of the row at position `row`."""
        for dist in self.dists:
            if row < dist.batch_shape[0]:
                return dist.rows(torch.tensor([row]))
            row -= dist.batch_shape[0]
        raise IndexError(row)

    @property
    def columns(self) -> list[Column]:
        """The columns of the table, without exposure and upper bound."""
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


def gather_evidence(
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
    """Predict and score the rows of a report that have a positive weight.

    If `sample` has more than `max_rows` rows, some are drawn at random. If `held_out` is given, rows are predicted and
    scored out of fold. `names` has the names under which the report shows "exposure" and "upper". All other arguments
    are those of `write_report`.
    """
    predictor: Predictor = model.predictor_
    leaks = [leak] if leak else []
    calibration = predictor.calibration
    if calibration.groups is not None:
        labels = calibration.groups.read_labels(sample.X, sample.interval_groups, "interval_groups")
        sample = sample.replace(interval_groups=labels)
    draw = draw_sample(sample, max_rows if held_out is None else None)
    rows, used, total = draw.positions, draw.take(sample), draw.total if total is None else total
    if held_out is not None:
        order = held_out.held_out.block_order  # in which the rows are predicted
        rows, used = rows[order], used.rows(order)
    progress(f"Predicting {format_drawn_rows(len(used), total)}")
    blocks = predictor.predict_rows(used) if held_out is None else predictor.predict_out_of_fold(held_out)
    mixtures: list[Any] = []
    dists, intervals, scores = [], [], []
    with torch.no_grad():
        for prediction, block in blocks:
            recorded = censor_rows(prediction.counts, block.limit)
            interval = replace(prediction, distribution=recorded).interval_with_probability(LEVEL)
            mixtures.append(prediction.counts)
            dists.append(recorded)
            intervals.append(interval)
            scores.append(score_distribution(recorded, block.y, interval))
    progress(f"Scoring {format_drawn_rows(len(used), total)}")
    if held_out is None:
        others = {
            str(name): select_rows(dist, torch.from_numpy(rows)) if tuple(dist.batch_shape) == (len(sample),) else dist
            for name, dist in (baselines or {}).items()
        }
        board = leaderboard(predictor, used, leaks, scores_note, others, total)
    else:
        board = out_of_fold_leaderboard(predictor, held_out, leaks, scores_note)
    grouped = None
    if calibration.groups is not None and used.interval_groups is not None:
        grouped = calibration.groups.by, used.interval_groups
    return Evidence(
        inputs=Inputs.from_sample(model, used, names, total),
        labels=rows if used.labels is None else used.labels,
        total=total,
        y=used.y,
        weight=used.weight_or_ones,
        dists=dists,
        mean=_join(dist.mean for dist in dists),
        low=_join(interval.low for interval in intervals),
        high=_join(interval.high for interval in intervals),
        scores=RowScores(*map(np.concatenate, zip(*scores, strict=True))),
        aleatoric=_join(mixture.aleatoric for mixture in mixtures),
        epistemic=_join(mixture.epistemic for mixture in mixtures),
        components=max(mixture.size for mixture in mixtures),
        board=board,
        fingerprint=sample.compute_digest(),
        calibration_rows=int(calibration.intervals[MIXTURE].rows[0]) if MIXTURE in calibration.intervals else 0,
        ids=None if ids is None else (ids[0], [ids[1][row] for row in rows.tolist()]),
        grouped=grouped,
        without_weight=int((~sample.has_weight).sum()),
        importance_inputs=None if held_out is None else Inputs.from_first_fold(model, held_out, names),
    )


def _join(parts: Iterable[Tensor]) -> np.ndarray:
    """Concatenate tensors to an array of floats."""
    return torch.cat(list(parts)).double().cpu().numpy()
