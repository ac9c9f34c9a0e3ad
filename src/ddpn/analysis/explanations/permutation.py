"""Permutation importance: how much the score, the mean and the spread of predictions depend on each column."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch

from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.results import ByColumn, Table
from ddpn.distributions import CountDistribution, discretize
from ddpn.distributions.limits import censor_rows
from ddpn.metrics import crps
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_integer

#: The fewest and the most rows that are shuffled by default, and the most cells (rows x columns x repeats).
_MIN_ROWS, _MAX_ROWS, _MAX_SHUFFLED_CELLS = 200, 2_000, 24_000
#: The fewest rows and the most cells whose CRPS is computed. It takes up to a hundred times as long as the mean if
#: distributions are wide, so the number of cells is divided by (standard deviation / 4), but at most by 8.
_MIN_SCORED_ROWS, _MAX_SCORED_CELLS, _WIDE_DEVIATION, _MAX_REDUCTION = 80, 8_000, 4.0, 8.0
#: The most columns of a table. With more, even screening takes too long.
_MAX_SCREENED_COLUMNS = 1000
_TINY = np.finfo(float).tiny
#: The measures of importance, in the order of the fields of `Importance`.
MEASURES = ("crps", "mean", "spread")


@dataclass(frozen=True, eq=False)
class Importance:
    """Changes of predictions when the values of a column are shuffled, with one value per repeat.

    Attributes
    ----------
    name : str
        The column.
    crps : array, shape (repeats,)
        The relative increase of the mean CRPS: 0.1 is 10%. It shows how much the column improves predictions, and is
        negative if the column does harm. If there are enough rows, each repeat scores different rows, so that the range
        over the repeats shows the uncertainty.
    mean : array, shape (repeats,)
        The mean absolute change of the predicted mean, relative to the average predicted mean: 0.1 is 10%.
    spread : array, shape (repeats,)
        The mean absolute change of the spread, relative to the average spread. The spread is variance / mean or, for a
        Gaussian likelihood, the standard deviation. The change is 0 for a column that changes only the mean of a
        Poisson.
    position : int
        The position of the column in `Inputs.columns`.
    """

    name: str
    crps: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    position: int = -1

    def strength(self, of: str = "crps") -> float:
        """Return the importance of the column: the average change over the repeats.

        Parameters
        ----------
        of : {"crps", "mean", "spread"}
            The quantity that changes.
        """
        return float(getattr(self, of).mean())


@dataclass(frozen=True, eq=False, repr=False)
class Importances(ByColumn[Importance]):
    """Importance of every measured column: a sequence of `Importance` that can also be indexed by column name.

    Attributes
    ----------
    results : list of Importance
        The importances, in the order of the columns.
    rows : int
        The number of rows that were shuffled.
    columns : int
        The number of columns of the table.
    total : int
        The number of rows from which the shuffled rows were drawn.
    scored_rows : int
        The number of rows whose CRPS is computed in each repeat. It may be smaller than `rows`, because the CRPS
        takes longer.
    library : {"polars", "pandas"}
        The library of the data frame that `to_frame` returns.
    """

    results: list[Importance]
    rows: int
    columns: int
    total: int
    scored_rows: int
    library: str = "polars"
    measures: ClassVar[tuple[str, ...]] = MEASURES

    def table(self) -> Table:
        """Return a table with one row per column of X, sorted by "crps", the largest first, as a dictionary of lists.

        "crps", "mean" and "spread" are the means over the repeats of the attributes of `Importance`. "crps_low" and
        "crps_high" are the smallest and the largest value of "crps" over the repeats.
        """
        ranked = self.by("crps")
        table: Table = {"column": [one.name for one in ranked]}
        for name in MEASURES:
            table[name] = [one.strength(name) for one in ranked]
        return table | {"crps_low": [float(one.crps.min()) for one in ranked],
                        "crps_high": [float(one.crps.max()) for one in ranked]}  # fmt: skip


def importance(
    inputs: Inputs,
    columns: str | Iterable[str | int] | None = None,
    repeats: int = 3,
    max_rows: int | Literal["auto"] | None = "auto",
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Importances:
    """Shuffle every column in turn, and measure how much the CRPS, the mean and the spread change.

    If two columns contain the same information, both look less important than either would alone.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and the test set (`Inputs.from_sample`). Exposures and upper bounds are shuffled as well.
    columns : list of str, optional
        The columns to measure. Default: all or, if there are more than 40, the 40 columns that change predictions most.
        If there are more than 1,000 columns, the default is to measure none.
    repeats : int
        How often each column is shuffled.
    max_rows : int, None or "auto"
        The largest number of rows to use. If there are more, some are drawn at random. None uses all rows. "auto" uses
        up to 2,000 rows, fewer if there are many columns, and computes the CRPS only on some of these rows to save
        time.
    seed : int
        Seed of random draws of rows and of shuffles.
    progress : callable, optional
        Called with the name of each step.

    Returns
    -------
    Importances
        One importance per column, with one value per repeat.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> from ddpn.rows.count_rows import CountRows
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = rng.poisson(np.exp(1 + 0.5 * X[:, 0]))
    >>> result = importance(Inputs.from_sample(CountGLM(likelihood="poisson").fit(X, y), CountRows(X, y.astype(float))))
    >>> result.by("crps")[0].name, round(float(result.results[0].spread.mean()), 3)
    ('x0', 0.0)
    """
    check_integer("repeats", repeats, 1)
    is_auto = max_rows == "auto"
    limit = None if is_auto or max_rows is None else check_integer("max_rows", max_rows, 1)
    if columns is None and len(inputs.columns) > _MAX_SCREENED_COLUMNS:
        return Importances([], 0, len(inputs.columns), inputs.total, 0, inputs.library)
    rng, used = np.random.default_rng(seed), np.flatnonzero(inputs.observed.has_weight)
    positions = inputs.rows(used).select_columns(columns, rng)
    if is_auto:
        limit = int(np.clip(_MAX_SHUFFLED_CELLS // (repeats * len(positions)), _MIN_ROWS, _MAX_ROWS))
    inputs, results = inputs.draw(limit, seed), []
    weight, plain = inputs.observed.weight_or_ones, _predict_rows(inputs, {}, np.arange(0))
    # The CRPS is computed on different rows in each repeat, if there are enough rows.
    work = _MAX_SCORED_CELLS / float(np.clip(np.median(plain.deviation) / _WIDE_DEVIATION, 1.0, _MAX_REDUCTION))
    scored = len(weight)
    if is_auto:
        scored = min(scored, max(_MIN_SCORED_ROWS, int(work / (repeats * len(positions)))))
    order = rng.permutation(len(weight))
    parts = [np.sort(np.take(order, np.arange(r * scored, (r + 1) * scored), mode="wrap")) for r in range(repeats)]
    before = [plain._replace(crps=_predict_rows(inputs, {}, part).crps) for part in parts]
    for number, position in enumerate(positions, 1):
        if progress is not None:
            progress(f"Shuffling columns: {number} of {len(positions)}")
        after = [_predict_rows(inputs, {position: rng.permutation(len(weight))}, part) for part in parts]
        changes: dict[str, np.ndarray] = {name: np.empty(repeats) for name in MEASURES}
        for repeat, (old, new) in enumerate(zip(before, after, strict=True)):
            changes["crps"][repeat] = (new.crps - old.crps) / max(old.crps, _TINY)
            for name, was, now in (("mean", old.mean, new.mean), ("spread", old.spread, new.spread)):
                usual = float(np.average(np.abs(was), weights=weight))
                changes[name][repeat] = np.average(np.abs(now - was), weights=weight) / max(usual, _TINY)
        results.append(Importance(inputs.names[position], **changes, position=position))
    return Importances(results, len(weight), len(inputs.columns), inputs.total, scored, inputs.library)


class _RowPredictions(NamedTuple):
    """Predictions of a set of rows, which are compared before and after a column is shuffled.

    Attributes
    ----------
    crps : float
        The mean CRPS of the scored rows; NaN if no row is scored.
    mean : array, shape (rows,)
        The predicted mean of every row.
    spread : array, shape (rows,)
        The predicted variance / mean or, for a Gaussian likelihood, the standard deviation.
    deviation : array, shape (rows,)
        The predicted standard deviation.
    """

    crps: float
    mean: np.ndarray
    spread: np.ndarray
    deviation: np.ndarray


def _predict_rows(inputs: Inputs, sources: dict[int, np.ndarray], scored_rows: np.ndarray) -> _RowPredictions:
    """Predict all rows, with the values of some columns taken from other rows, and score some of the rows by CRPS.

    The result has the predictions of all rows, but the mean CRPS of the scored rows only.

    Parameters
    ----------
    inputs : Inputs
        The model, and the rows with their counts.
    sources : dict of int to array of int, shape (rows,)
        For the position of a column, the positions of the rows from which its values are taken. An empty dict
        exchanges no values.
    scored_rows : array of int
        The positions of the rows to score. It may be empty.
    """
    plain = inputs.distribution(np.arange(len(inputs)), sources)
    with single_thread():
        dist: CountDistribution = discretize(plain)
        variance, mean = (part.double().numpy() for part in (dist.variance, plain.mean))
        score = np.nan
        if len(scored_rows):
            observed = inputs.observed.rows(scored_rows)
            recorded = censor_rows(dist.rows(torch.from_numpy(scored_rows)), observed.limit)
            row_scores = crps(recorded, torch.from_numpy(observed.y)).double().numpy()
            score = float(np.average(row_scores, weights=observed.weight))
    spread = variance / np.maximum(mean, _TINY) if dist is plain else np.sqrt(variance)
    return _RowPredictions(score, mean, spread, np.sqrt(variance))
