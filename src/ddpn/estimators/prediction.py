"""`Prediction`: the predicted distributions of some rows, as notebooks show them."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.calibration.intervals import probability_between
from ddpn.distributions import discretized
from ddpn.distributions.components import Interval
from ddpn.predictor import Predictor
from ddpn.rows.checks import check_counts, row_count
from ddpn.runtime.display import html_table, interval_words, text_table
from ddpn.runtime.errors import InputError

#: Rows that are shown, and the coverage of their intervals.
_SHOWN, _COVERAGE = 5, 0.9


class Prediction:
    """The predicted distribution of every row: what `predict_distribution` returns.

    Notebooks show the first rows as a table. In all else a prediction is the distribution of torch that it holds, for
    `isinstance` too: it has `mean`, `variance`, `aleatoric`, `epistemic`, `mode`, `cdf`, `icdf`, `log_prob`, `crps`,
    `sample`, `batch_shape`, ..., and all scores of `ddpn.metrics` take it.

    Parameters
    ----------
    distribution : Mixture or Recalibrated
        The distributions, of batch shape (rows,).
    predictor : Predictor
        What predicted them, with its calibrated intervals.
    groups : array, optional
        The groups of the rows, where intervals are calibrated by groups.
    labels : sequence, optional
        What the rows are called. Default: their positions.

    Attributes
    ----------
    distribution : Mixture or Recalibrated
        The distributions of torch: a `Recalibrated`, whose `base` is the mixture, where `fit_recalibration` is in use.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> model = CountGLM(likelihood="poisson").fit(X.repeat(40, axis=0), np.tile([1, 3], 60))
    >>> found = model.predict_distribution(X)
    >>> found
    Prediction of 3 rows
    row  mean  interval, 90% or more
      0     2           0 to 4 (95%)
      1     2           0 to 4 (95%)
      2     2           0 to 4 (95%)
    >>> found.pmf([0, 1])[0].numpy().round(3), found.quantile(0.5).tolist()
    (array([0.135, 0.271]), [2.0, 2.0, 2.0])
    """

    def __init__(
        self, distribution: Any, predictor: Predictor, groups: np.ndarray | None = None, labels: Any = None
    ) -> None:
        self.distribution, self._predictor, self._groups = distribution, predictor, groups
        self._labels = range(len(self)) if labels is None else labels

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "distribution":
            raise AttributeError(name)
        return getattr(self.distribution, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.distribution)

    def __reduce__(self) -> tuple[Any, ...]:
        return Prediction, (self.distribution, self._predictor, self._groups, self._labels)

    def __len__(self) -> int:
        return int(self.distribution.batch_shape[0])

    @cached_property
    def _rounded(self) -> Any:
        """The distributions as count distributions: a Gaussian is rounded."""
        return discretized(self.distribution)

    @torch.no_grad()
    def pmf(self, counts: Any) -> Tensor:
        """The probability of counts in every row.

        Parameters
        ----------
        counts : int or array-like of int
            One count, or several. For Gaussians it is the probability of rounding to them.

        Returns
        -------
        Tensor, shape (rows,) or (rows, counts)
        """
        plain = np.atleast_1d(np.asarray(counts))
        values = torch.from_numpy(check_counts(plain, row_count(plain), name="counts"))
        found = torch.stack([self._rounded.log_prob(value) for value in values], dim=1).exp()
        return found if np.ndim(counts) else found[:, 0]

    @torch.no_grad()
    def quantile(self, q: Any) -> Tensor:
        """Quantiles of every row, which are counts.

        Parameters
        ----------
        q : float or array-like
            One or more levels from 0 to 1, such as [0.1, 0.5, 0.9].

        Returns
        -------
        Tensor, shape (rows,) or (rows, levels)
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
        found = self._rounded.icdf(torch.from_numpy(levels).unsqueeze(1)).T
        return found if np.ndim(q) else found[:, 0]

    @torch.no_grad()
    def interval(self, coverage: float = _COVERAGE, kind: str | None = None) -> tuple[Tensor, Tensor]:
        """The lowest and the highest count of an interval per row, both included.

        `probability` says how probable each interval is.

        Parameters
        ----------
        coverage : float
            The share of counts that the intervals should contain.
        kind : {"narrowest", "central"}, optional
            As for `predict_interval`.

        Returns
        -------
        low, high : Tensor, shape (rows,)
        """
        low, high, _ = self._interval(coverage, kind)
        return low, high

    def _interval(self, coverage: float = _COVERAGE, kind: str | None = None) -> Interval:
        return self._predictor.interval(self.distribution, coverage, labels=self._groups, kind=kind)

    def probability(self, low: Any, high: Any) -> Tensor:
        """The probability that a count lies between two counts, both included, in every row.

        Parameters
        ----------
        low, high : int or array-like
            One count for all rows, or one per row.

        Returns
        -------
        Tensor, shape (rows,)

        Examples
        --------
        >>> from ddpn import CountGLM
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> model = CountGLM(likelihood="poisson").fit(X.repeat(40, axis=0), np.tile([1, 3], 60))
        >>> found = model.predict_distribution(X)
        >>> found.probability(1, 3).numpy().round(3), found.probability(*found.interval(0.9)).numpy().round(3)
        (array([0.722, 0.722, 0.722]), array([0.947, 0.947, 0.947]))
        """
        ends = []
        for name, counts in (("low", low), ("high", high)):
            plain = np.atleast_1d(np.asarray(counts, dtype=np.float64))
            values = torch.from_numpy(check_counts(plain, row_count(plain), name=name)).double()
            if len(values) not in (1, len(self)):
                raise InputError(
                    argument=name, must=f"be one count, or one per row ({len(self)})", got=str(len(values))
                )
            ends.append(values.expand(len(self)))
        return probability_between(self._rounded, *ends)

    @torch.no_grad()
    def plot(self, rows: Sequence[int] | None = None) -> Any:
        """Draw the distributions of some rows with their 90% intervals, and the probability of each interval.

        Parameters
        ----------
        rows : sequence of int, optional
            Positions of the rows. Default: the first five.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots import binned, distributions_figure

        some = self._first() if rows is None else self._some(rows)
        intervals = [end.numpy() for end in some._interval()]
        low, high, _ = intervals
        tails = some.quantile([0.005, 0.995]).numpy()
        first, last = min(tails.min(), low.min()), max(tails.max(), high.max())
        # From 0, unless much of the axis would be empty.
        edges, shares = binned(some._rounded, float(first) if first > 0.4 * last else 0.0, float(last) + 1.0, 48)
        return distributions_figure(
            [f"row {label}" for label in some._labels], edges, shares, list(zip(*intervals, strict=True))
        )

    # What notebooks and terminals show ---------------------------------------------------------------------------

    def _some(self, rows: Sequence[int]) -> "Prediction":
        """The prediction of some rows."""
        index = np.array(rows, dtype=int)
        groups = None if self._groups is None else self._groups[index]
        found = self.distribution.rows(torch.from_numpy(index))
        return Prediction(found, self._predictor, groups, [self._labels[row] for row in index])

    def _first(self) -> "Prediction":
        """The prediction of the rows that are shown."""
        return self._some(range(min(_SHOWN, len(self))))

    def _table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]], str]:
        """Headings, cells of the first rows, and how many more there are."""
        some, rest = self._first(), len(self) - _SHOWN
        shown = zip(some._labels, some.mean.tolist(), *(part.tolist() for part in some._interval()), strict=True)
        rows = [(label, f"{mean:.3g}", interval_words(*interval)) for label, mean, *interval in shown]
        more = f"and {rest:,} more row{'s' if rest > 1 else ''}" if rest > 0 else ""
        return ("row", "mean", f"interval, {_COVERAGE:.0%} or more"), rows, more

    def __repr__(self) -> str:
        headings, rows, more = self._table()
        first = f"Prediction of {len(self):,} row{'s' if len(self) != 1 else ''}"
        return "\n".join(filter(None, [first, text_table(headings, rows), more]))

    def _repr_html_(self) -> str:
        headings, rows, more = self._table()
        return html_table(headings, rows) + (f"<p>{more}</p>" if more else "")
