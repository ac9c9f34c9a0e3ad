"""Permutation importance: which columns drive the score, which the mean, and which the spread."""

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

#: Rows shuffled by default: fewer where there are many columns, so that rows x columns x repeats stay bounded.
_MIN_ROWS, _MAX_ROWS, _WORK = 200, 2_000, 24_000
#: The same for rows whose CRPS is computed, which takes up to a hundred times as long where counts spread widely: by a
#: standard deviation of so many counts the number of rows is divided, at most by the last number.
_MIN_SCORED, _SCORED_WORK, _WIDE, _MOST = 80, 8_000, 4.0, 8.0
#: With more columns than this even the screening takes too long.
_MAX_SCREENED = 1000
_TINY = np.finfo(float).tiny
#: What is measured, in the order of the fields of `Importance`.
MEASURES = ("crps", "mean", "spread")


@dataclass(frozen=True, eq=False)
class Importance:
    """What shuffling a column changes, one value per repeat.

    Attributes
    ----------
    name : str
        The column.
    crps : array, shape (repeats,)
        Increase of the mean CRPS, relative to that without shuffling: what the column is worth. It is negative where
        the column harms. Each repeat scores other rows, as far as there are enough, so that their range shows how
        certain it is.
    mean : array, shape (repeats,)
        Mean absolute change of the predicted mean, relative to the average predicted mean.
    spread : array, shape (repeats,)
        Mean absolute change of variance / mean (for a Gaussian likelihood, of the standard deviation), relative to its
        average. A column that moves the mean of a Poisson alone has none.
    position : int
        Where the column is among those of the inputs.
    """

    name: str
    crps: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    position: int = -1

    def strength(self, of: str = "crps") -> float:
        """Return the mean change over the repeats.

        Parameters
        ----------
        of : {"crps", "mean", "spread"}
            The change of what.
        """
        return float(getattr(self, of).mean())


@dataclass(frozen=True, eq=False, repr=False)
class Importances(ByColumn[Importance]):
    """The importance of every measured column; a sequence of `Importance` that also takes names.

    Attributes
    ----------
    results : list of Importance
        In the order of the columns.
    rows : int
        The number of rows that were shuffled.
    columns : int
        The number of columns that there are.
    total : int
        The number of rows that those were drawn from.
    scored_rows : int
        The number of shuffled rows whose CRPS each repeat measures, as it takes longer.
    """

    results: list[Importance]
    rows: int
    columns: int
    total: int
    scored_rows: int
    measures: ClassVar[tuple[str, ...]] = MEASURES

    def table(self) -> Table:
        """Return a table by columns: means over the repeats, the most important column first; ready for JSON."""
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
    """Shuffle every column in turn, and measure what changes: the CRPS, the mean and the spread.

    Columns that can replace each other share their importance.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and the test set (`Inputs.from_sample`). Exposures and upper bounds are shuffled, too.
    columns : list of str, optional
        Which to measure. Default: all; of more than 40, those that change predictions most; none of more than 1,000.
    repeats : int
        How often each column is shuffled.
    max_rows : int, None or "auto"
        Of more rows, so many are drawn at random; None uses all. "auto" is 2,000, fewer with many columns, and measures
        the CRPS on a part of these.
    seed : int
        Seed of the draws and shuffles.
    progress : callable, optional
        Called with the name of each step.

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
    most = None if is_auto or max_rows is None else check_integer("max_rows", max_rows, 1)
    if columns is None and len(inputs.columns) > _MAX_SCREENED:
        return Importances([], 0, len(inputs.columns), inputs.total, 0)
    rng, used = np.random.default_rng(seed), np.flatnonzero(inputs.observed.has_weight)
    positions = inputs.rows(used).select_columns(columns, rng)
    if is_auto:
        most = int(np.clip(_WORK // (repeats * len(positions)), _MIN_ROWS, _MAX_ROWS))
    inputs, results = inputs.draw(most, seed), []
    weight, plain = inputs.observed.weight_or_ones, _predict_state(inputs, {}, np.arange(0))
    # The rows whose CRPS each repeat computes: different ones, as far as there are enough.
    work = _SCORED_WORK / float(np.clip(np.median(plain.deviation) / _WIDE, 1.0, _MOST))
    scored = len(weight)
    if is_auto:
        scored = min(scored, max(_MIN_SCORED, int(work / (repeats * len(positions)))))
    order = rng.permutation(len(weight))
    parts = [np.sort(np.take(order, np.arange(r * scored, (r + 1) * scored), mode="wrap")) for r in range(repeats)]
    before = [plain._replace(crps=_predict_state(inputs, {}, part).crps) for part in parts]
    for number, position in enumerate(positions, 1):
        if progress is not None:
            progress(f"Shuffling columns: {number} of {len(positions)}")
        after = [_predict_state(inputs, {position: rng.permutation(len(weight))}, part) for part in parts]
        changes: dict[str, np.ndarray] = {name: np.empty(repeats) for name in MEASURES}
        for repeat, (old, new) in enumerate(zip(before, after, strict=True)):
            changes["crps"][repeat] = (new.crps - old.crps) / max(old.crps, _TINY)
            for name, was, now in (("mean", old.mean, new.mean), ("spread", old.spread, new.spread)):
                usual = float(np.average(np.abs(was), weights=weight))
                changes[name][repeat] = np.average(np.abs(now - was), weights=weight) / max(usual, _TINY)
        results.append(Importance(inputs.names[position], **changes, position=position))
    return Importances(results, len(weight), len(inputs.columns), inputs.total, scored)


class _State(NamedTuple):
    """The mean CRPS of some rows, and mean, spread and standard deviation of every row."""

    crps: float
    mean: np.ndarray
    spread: np.ndarray
    deviation: np.ndarray


def _predict_state(inputs: Inputs, sources: dict[int, np.ndarray], scored: np.ndarray) -> _State:
    """Predict the rows with the cells of some columns taken from `sources`; score only the `scored` rows."""
    plain = inputs.distribution(np.arange(len(inputs)), sources)
    with single_thread():
        dist: CountDistribution = discretize(plain)
        variance, mean = (part.double().numpy() for part in (dist.variance, plain.mean))
        score = np.nan
        if len(scored):
            observed = inputs.observed.rows(scored)
            recorded = censor_rows(dist.rows(torch.from_numpy(scored)), observed.limit)
            row_scores = crps(recorded, torch.from_numpy(observed.y)).double().numpy()
            score = float(np.average(row_scores, weights=observed.weight))
    spread = variance / np.maximum(mean, _TINY) if dist is plain else np.sqrt(variance)
    return _State(score, mean, spread, np.sqrt(variance))
