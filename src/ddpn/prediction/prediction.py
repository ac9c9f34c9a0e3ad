"""`Prediction`: the predicted distributions of rows, with moments, quantiles, intervals, tables and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ddpn.calibration.calibration import MIXTURE, UNCALIBRATED, Calibration
from ddpn.calibration.feature_profile import TableScores
from ddpn.calibration.intervals import compute_probability_between, make_interval, summarise_with_interval
from ddpn.distributions import CountDistribution, Mixture, Recalibrated, discretize
from ddpn.distributions.summaries import Interval, Summary
from ddpn.prediction.spec import DEFAULT_COLUMNS, NESTED_OUTPUTS, PredictionSpec, quantile_name
from ddpn.rows.checks import RowError, TableLike, check_counts, get_row_count
from ddpn.rows.count_rows import take_rows
from ddpn.runtime.display import TextTable, interval_words, plural
from ddpn.runtime.errors import InputError
from ddpn.runtime.frames import make_frame
from ddpn.runtime.threads import single_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The columns of a table of predictions by name: arrays, or lists of reasons.
Columns: TypeAlias = dict[str, np.ndarray | list[list[str]]]
#: The most rows that a notebook shows, and the coverage of their intervals.
MAX_SHOWN_ROWS, COVERAGE = 5, 0.9
#: The largest count of a table. Beyond it, floats cannot tell neighbouring counts apart.
MAX_COUNT = 2.0**52


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The predicted distribution of every row, as returned by `predict_distribution`.

    Methods return numpy arrays with one entry per row. Index it to select rows: `prediction[3]`, `prediction[:10]`,
    `prediction[mask]`. Notebooks show the first rows as a table. All metrics of `ddpn.metrics` accept a prediction.

    Parameters
    ----------
    distribution : Mixture or Recalibrated
        A torch distribution of batch shape (rows,): the mixture of the model's members or, if it is recalibrated, a
        `Recalibrated` with the mixture as its `base`. It offers the same results as tensors, and more, such as
        `log_prob`, `entropy` and `crps`.
    calibration : Calibration
        The model's calibration: the levels at which intervals reach their coverage on held-out rows, and
        out-of-distribution scores.
    member : str
        "mixture", or the name of the single model (member) of the mixture that predicts.
    interval_kind : {"narrowest", "central"}
        The default kind of interval: the one with the fewest counts, or the one between two quantiles.
    table : table, optional
        The features of the rows, for out-of-distribution p-values.
    groups : array, shape (rows,), optional
        The groups of the rows, if intervals are calibrated by group.
    labels : array, shape (rows,), optional
        The names of the rows in tables and plots. Default: their positions.
    days : frozenset of str
        Names of columns that hold days since 1970. Out-of-distribution reasons show them as dates.
    library : {"polars", "pandas"}
        The library of the data frames that `to_frame` returns.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> model = CountGLM(likelihood="poisson").fit(X.repeat(40, axis=0), np.tile([1, 3], 60))
    >>> prediction = model.predict_distribution(X)
    >>> prediction
    Prediction of 3 rows
    row  mean  interval, 90% or more
      0     2           0 to 4 (95%)
      1     2           0 to 4 (95%)
      2     2           0 to 4 (95%)
    >>> prediction.mean.round(6).tolist(), prediction.quantile(0.5).tolist()
    ([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    >>> prediction[:1].pmf([0, 1]).round(3).tolist(), prediction[0].prob_above(4).round(3).tolist()
    ([[0.135, 0.271]], [0.053])
    """

    distribution: Mixture | CountDistribution
    calibration: Calibration = UNCALIBRATED
    member: str = MIXTURE
    interval_kind: str = "narrowest"
    table: TableLike | None = None
    groups: np.ndarray | None = None
    labels: np.ndarray | None = None
    days: frozenset[str] = frozenset()
    library: str = "polars"

    def __len__(self) -> int:
        return int(self.distribution.batch_shape[0])

    def __getitem__(self, rows: int | np.integer | slice | ArrayLike) -> Self:
        """Return the prediction of some rows, selected by a position, a slice, an array of positions or a mask."""
        if isinstance(rows, int | np.integer):
            index = np.array([range(len(self))[int(rows)]])
        else:
            chosen = rows if isinstance(rows, slice) else np.asarray(rows)
            is_empty = not isinstance(chosen, slice) and not chosen.size  # an empty list is an array of floats
            index = np.ascontiguousarray(np.arange(len(self))[slice(0) if is_empty else chosen])
        return replace(
            self,
            distribution=self.distribution.rows(torch.from_numpy(index)),
            table=None if self.table is None else take_rows(self.table, index),
            groups=None if self.groups is None else self.groups[index],
            labels=self.row_labels[index],
        )

    @property
    def row_labels(self) -> np.ndarray:
        """The names of the rows, or their positions if they have no names."""
        return np.arange(len(self)) if self.labels is None else np.asarray(self.labels)

    def __iter__(self) -> Iterator[Self]:
        """Yield a `Prediction` of one row for each row."""
        return (self[row] for row in range(len(self)))

    @cached_property
    def counts(self) -> CountDistribution:
        """The distribution of every row over counts: `distribution`, with Gaussians rounded to integers."""
        return discretize(self.distribution)

    # Moments and points ------------------------------------------------------------------------------------------

    @property
    def mean(self) -> np.ndarray:
        """The predicted mean of every row."""
        return _to_numpy(self.distribution.mean)

    @property
    def variance(self) -> np.ndarray:
        """The predicted variance of every row, which is the sum of `aleatoric` and `epistemic`."""
        return _to_numpy(self.distribution.variance)

    @property
    def std(self) -> np.ndarray:
        """The predicted standard deviation of every row."""
        return np.sqrt(self.variance)

    @property
    def aleatoric(self) -> np.ndarray:
        """The mean of the components' variances: the part of the variance that more data would not remove."""
        assert isinstance(self.distribution, Mixture | Recalibrated)
        return _to_numpy(self.distribution.aleatoric)

    @property
    def epistemic(self) -> np.ndarray:
        """The variance of the components' means, a measure of how much they disagree."""
        assert isinstance(self.distribution, Mixture | Recalibrated)
        return _to_numpy(self.distribution.epistemic)

    @property
    def median(self) -> np.ndarray:
        """The median of every row: the smallest count whose cumulative probability is at least one half."""
        return self.quantile(0.5)

    @property
    def mode(self) -> np.ndarray:
        """The most probable count of every row."""
        return _to_numpy(self.counts.mode)

    # Probabilities, quantiles, intervals -------------------------------------------------------------------------

    def pmf(self, counts: ArrayLike) -> np.ndarray:
        """Return the probability mass of each of `counts` in every row.

        Parameters
        ----------
        counts : int or array-like of int
            One count, or several. For a Gaussian, the probability that it rounds to the count.

        Returns
        -------
        array, shape (rows,) or (rows, counts)
        """
        return _columns_or_one(self.counts.log_prob(self._check_counts(counts).unsqueeze(1)).exp(), counts)

    def cdf(self, counts: ArrayLike) -> np.ndarray:
        """Return the cumulative probability P(count <= c) of each c in `counts`, for every row.

        Parameters
        ----------
        counts : int or array-like of int
            One count, or several.

        Returns
        -------
        array, shape (rows,) or (rows, counts)
        """
        return _columns_or_one(self.counts.cdf(self._check_counts(counts).unsqueeze(1)), counts)

    def prob_above(self, counts: ArrayLike) -> np.ndarray:
        """Return the tail probability P(count > c) of each c in `counts`, for every row.

        Parameters
        ----------
        counts : int or array-like of int
            One count, or several.

        Returns
        -------
        array, shape (rows,) or (rows, counts)
        """
        return _columns_or_one(self.counts.survival(self._check_counts(counts).unsqueeze(1)), counts)

    def prob_between(self, low: ArrayLike, high: ArrayLike) -> np.ndarray:
        """Return the probability that the count of a row lies between `low` and `high`, both included.

        Parameters
        ----------
        low, high : int or array-like
            One count for all rows, or one per row.

        Returns
        -------
        array, shape (rows,)

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> model = CountGLM(likelihood="poisson").fit(X.repeat(40, axis=0), np.tile([1, 3], 60))
        >>> prediction = model.predict_distribution(X)
        >>> prediction.prob_between(1, 3).round(3), prediction.prob_between(*prediction.interval(0.9)).round(3)
        (array([0.722, 0.722, 0.722]), array([0.947, 0.947, 0.947]))
        """
        ends = []
        for name, counts in (("low", low), ("high", high)):
            values = self._check_counts(counts, name)
            if len(values) not in (1, len(self)):
                raise InputError(
                    argument=name, must=f"be one count, or one per row ({len(self)})", got=str(len(values))
                )
            ends.append(values.expand(len(self)))
        return compute_probability_between(self.counts, *ends).numpy()

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Return quantiles of every row. They are integers, but the quantile of level 1 may be infinite.

        Parameters
        ----------
        q : float or array-like
            One or more levels from 0 to 1, such as [0.1, 0.5, 0.9].

        Returns
        -------
        array of float, shape (rows,) or (rows, levels)
        """
        try:
            levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        except (TypeError, ValueError):
            raise InputError(argument="q", must="hold numbers", got=f"{q!r:.60}") from None
        if levels.ndim != 1:
            raise InputError(argument="q", must="be a number or a list of numbers", got=f"shape {levels.shape}")
        bad = levels[~((levels >= 0.0) & (levels <= 1.0))]
        if len(bad):
            raise InputError(argument="q", must="lie in [0, 1]", got=f"{bad[0]:g}")
        return _columns_or_one(self.counts.icdf(torch.from_numpy(levels).unsqueeze(1)), q)

    def interval(self, coverage: float = COVERAGE, kind: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest count of each row's prediction interval, both included.

        If the model is calibrated, the intervals are those that reach the coverage on held-out rows. `prob_between`
        returns the probability of each interval.

        Parameters
        ----------
        coverage : float
            The share of counts that the intervals should contain.
        kind : {"narrowest", "central"}, optional
            The interval with the fewest counts, or the interval between two quantiles. Default: "narrowest", but
            "central" for models of censored counts.

        Returns
        -------
        low, high : array of int, shape (rows,)
        """
        low, high, _ = self.interval_with_probability(coverage, kind)
        _check_size(high)
        return low.numpy().astype(np.int64), high.numpy().astype(np.int64)

    def interval_with_probability(self, coverage: float = COVERAGE, kind: str | None = None) -> Interval:
        """Return the lowest count, the highest count and the probability of each row's interval, as torch tensors.

        The arguments are those of `interval`. The probability is that of the row's predicted distribution.
        """
        levels = self.calibration.row_levels(coverage, self.member, self.groups)
        return make_interval(self.distribution, levels, kind or self.interval_kind)

    def sample(self, size: int = 1, seed: int | None = None) -> np.ndarray:
        """Draw random counts from the predicted distribution of every row.

        Parameters
        ----------
        size : int
            The number of draws per row.
        seed : int, optional
            Seed of the draws. Default: random.

        Returns
        -------
        array of int, shape (rows, size)
        """
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        return self.counts.sample((size,), generator).T.numpy().astype(np.int64)

    def _check_counts(self, counts: ArrayLike, name: str = "counts") -> Tensor:
        values = np.atleast_1d(np.asarray(counts))
        if values.dtype.kind in "iuf" and len(bad := values[(values < 0) | (values != np.floor(values))]):
            raise InputError(argument=name, must="hold non-negative integers", got=f"{bad[0]:g}")
        return torch.from_numpy(check_counts(values, get_row_count(values), name=name, remedy="")).double()

    # Tables ------------------------------------------------------------------------------------------------------

    @cached_property
    def table_scores(self) -> TableScores:
        """How unusual each row is compared with the training rows, and how many cells of each column are unusual."""
        return self.calibration.require_profile().measure(self._require_table())

    @property
    def ood_pvalue(self) -> np.ndarray:
        """The out-of-distribution p-value of every row: the share of held-out rows that are at least as unusual.

        The held-out rows are those with which the model's out-of-distribution scores were calibrated.
        """
        return self.calibration.require_ood().pvalue(self.table_scores.score)

    def to_frame(self, spec: PredictionSpec | None = None, **options: Any) -> Any:
        """Return the predictions as a data frame: of pandas if the rows came from pandas, else of polars.

        Parameters
        ----------
        spec : PredictionSpec, optional
            The contents of the table.
        **options
            Fields of `PredictionSpec` that replace those of `spec`, such as `quantiles=[0.1, 0.9]`.

        Returns
        -------
        data frame
            One row per prediction, with the columns that `PredictionSpec` describes.

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> model = CountGLM(likelihood="poisson").fit(X.repeat(40, axis=0), np.tile([1, 3], 60))
        >>> table = model.predict_distribution(X).to_frame(columns=["median", "lower", "upper"], quantiles=[0.75])
        >>> table.rows(named=True)[0]
        {'median': 2, 'lower': 0, 'upper': 4, 'q0.75': 3}
        """
        spec = PredictionSpec(**options) if spec is None else replace(spec, **options)
        nested = [name for name in spec.columns if name in NESTED_OUTPUTS]
        if nested:
            raise InputError(argument="columns", must="be columns of a table", got=repr(nested[0]))
        cells = {
            name: ["; ".join(reasons) or None for reasons in column] if name == "ood_reason" else column
            for name, column in self.to_columns(spec).items()
        }
        return make_frame(cells, self.library, self.labels)

    def _require_table(self) -> TableLike:
        """Return the features of the rows; raise an `InputError` if the prediction does not hold them."""
        if self.table is None:
            raise InputError("This prediction does not keep its rows. Use `predict_distribution`, which keeps them.")
        return self.table

    def to_columns(self, spec: PredictionSpec) -> Columns:
        """Return the columns of the prediction table that `spec` describes, as a dict from names to values.

        Raise a `RowError` if the counts of a row are too large for a table.
        """
        with single_thread(), np.errstate(all="ignore"):
            columns: Columns = {**self._summarise(spec)}
            wants = {"ood_pvalue", "ood"} & set(spec.columns)
            if "ood_reason" in spec.columns or (wants and self.calibration.ood is not None):
                columns |= self._describe_unusual_rows(spec)
        return columns

    def _summarise(self, spec: PredictionSpec) -> dict[str, np.ndarray]:
        """Compute the columns of `spec` that follow from the distributions, such as means and quantiles."""
        levels = torch.tensor([0.5, *spec.quantiles], dtype=torch.float64)
        row_levels = self.calibration.row_levels(spec.coverage, self.member, self.groups)
        kind = spec.interval_kind or self.interval_kind
        summary, (low, high, probability) = summarise_with_interval(self.counts, levels, row_levels, kind)
        # The moments of a Gaussian are not those of its rounded values.
        moments: Summary | Mixture | Recalibrated = summary
        if self.counts is not self.distribution:
            assert isinstance(self.distribution, Mixture | Recalibrated)
            moments = self.distribution
        variance = moments.aleatoric + moments.epistemic
        median, *quantiles = summary.quantiles.unbind(1)
        _check_size(moments.mean, variance)
        _check_size(torch.stack([high, *quantiles]).amax(0))
        counts = {"median": median, "mode": summary.mode, "lower": low, "upper": high}
        quantile_columns = dict(zip(map(quantile_name, spec.quantiles), quantiles, strict=True))
        tensors: dict[str, Tensor] = {"mean": moments.mean, **counts, "interval_probability": probability}
        tensors |= {"aleatoric": moments.aleatoric, "epistemic": moments.epistemic, "stddev": variance.sqrt()}
        tensors = {name: tensors[name] for name in DEFAULT_COLUMNS if name in tensors and name in spec.columns}
        tensors |= quantile_columns
        if spec.pmf is not None:
            all_counts = torch.arange(spec.pmf + 1, dtype=torch.float64).unsqueeze(1)
            tensors |= {f"p{count}": masses for count, masses in enumerate(self.counts.log_prob(all_counts).exp())}
        for count in spec.prob_above:
            tensors[f"prob_above_{count}"] = self.counts.survival(torch.tensor([float(count)], dtype=torch.float64))
        dtypes = dict.fromkeys([*counts, *quantile_columns], np.int64)
        return {name: _to_numpy(values).astype(dtypes.get(name, np.float64)) for name, values in tensors.items()}

    def _describe_unusual_rows(self, spec: PredictionSpec) -> Columns:
        """Return the columns about out-of-distribution rows that `spec` asks for: p-values, flags and reasons.

        If the model's out-of-distribution scores are not calibrated, there are only reasons. They name unusual values
        of single columns.
        """
        columns: Columns = {}
        if self.calibration.ood is None:
            reasons = self.calibration.ood_reasons(self._require_table(), days=self.days)
        else:
            columns["ood_pvalue"] = pvalue = self.ood_pvalue
            alpha = self.calibration.ood.alpha if spec.ood is None else spec.ood
            columns["ood"] = flags = self.calibration.ood.is_ood(pvalue, alpha)
            if "ood_reason" in spec.columns:
                reasons = [[] for _ in range(len(self))]
                if len(rows := np.flatnonzero(flags)):
                    flagged = take_rows(self._require_table(), rows)
                    words = self.calibration.ood_reasons(flagged, np.ones(len(rows), dtype=bool), self.days)
                    for row, row_words in zip(rows.tolist(), words, strict=True):
                        reasons[row] = row_words
        if "ood_reason" in spec.columns:
            columns["ood_reason"] = reasons
        return {name: values for name, values in columns.items() if name in spec.columns}

    # What notebooks and terminals show ---------------------------------------------------------------------------

    def plot(self, rows: Sequence[int] | None = None, ax: Axes | Sequence[Axes] | None = None) -> Figure:
        """Plot the predicted distributions of some rows, one subplot per row.

        Each subplot shows a 90% interval and its probability.

        Parameters
        ----------
        rows : sequence of int, optional
            Positions of the rows. Default: the first five, or as many as there are in `ax`.
        ax : matplotlib Axes or sequence of Axes, optional
            The axes to draw into, one for each row. Default: those of a new figure of pyplot, which `plt.show()` shows.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.prediction.figure import bin_probabilities, draw_predictions  # imports matplotlib

        axes: list[Axes] = [] if ax is None else np.ravel(np.asarray(ax, dtype=object)).tolist()
        shown = self[: len(axes) or MAX_SHOWN_ROWS] if rows is None else self[np.array(rows, dtype=int)]
        if axes and len(axes) != len(shown):
            raise InputError(argument="ax", must=f"have one Axes for each of the {len(shown)} rows", got=str(len(axes)))
        low, high, probability = (end.numpy() for end in shown.interval_with_probability())
        tails = shown.quantile([0.005, 0.995])
        first, last = min(tails.min(), low.min()), max(tails.max(), high.max())
        # The axis starts at 0, unless much of it would be empty.
        start = float(first) if first > 0.4 * last else 0.0
        edges, shares = bin_probabilities(shown.counts, start, float(last) + 1.0, 48)
        names = [f"row {label}" for label in shown.row_labels]
        return draw_predictions(names, edges, shares, list(zip(low, high, probability, strict=True)), axes)

    def _tabulate_first_rows(self) -> TextTable:
        """Make the table that notebooks and terminals show: the first rows with their means and intervals."""
        shown = self[:MAX_SHOWN_ROWS]
        ends = (part.tolist() for part in shown.interval_with_probability())
        cells = zip(shown.row_labels.tolist(), shown.mean.tolist(), *ends, strict=True)
        rows = [(label, f"{mean:.3g}", interval_words(*interval)) for label, mean, *interval in cells]
        headings = ("row", "mean", f"interval, {COVERAGE:.0%} or more")
        return TextTable(headings, rows, hidden=max(0, len(self) - MAX_SHOWN_ROWS))

    def __repr__(self) -> str:
        return f"Prediction of {plural(len(self), 'row')}\n{self._tabulate_first_rows()}"

    def _repr_html_(self) -> str:
        return self._tabulate_first_rows().to_html()


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()


def _columns_or_one(values: Tensor, argument: ArrayLike) -> np.ndarray:
    """Convert the tensor `values` (counts, rows) to an array (rows, counts), or (rows,) for a single count.

    `argument` is what the user passed to a method such as `cdf`: one number, or several.
    """
    columns = _to_numpy(values).T
    return columns if np.ndim(argument) else columns[:, 0]


def _check_size(counts: Tensor, variance: Tensor | None = None) -> None:
    """Raise a `RowError` if a predicted count is NaN or above 2^52, or if a variance is infinite.

    Larger counts have no exact quantiles in float64. `counts` has a mean or quantile of each row. `variance`, unless it
    is None, has the variance of each row.
    """
    bad = ~(counts.double() <= MAX_COUNT).numpy()
    if variance is not None:
        bad |= ~variance.isfinite().numpy()
    if bad.any():
        remedy = ". Check the units of the columns, above all the exposure."
        raise RowError("Predicted counts must be below 2^52, but the prediction is larger or not a number", bad, remedy)
