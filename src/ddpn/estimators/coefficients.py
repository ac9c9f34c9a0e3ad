"""Coefficients of a GLM as printable tables, and the summary that `CountGLM.summary` returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from ddpn.runtime.display import TextTable
from ddpn.runtime.frames import make_frame

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: The columns of a table by their printed names.
Columns: TypeAlias = dict[str, tuple[str, ...] | np.ndarray]
INTERCEPT = "(intercept)"
#: Number formats of columns; all other columns have four digits.
_FORMATS = {"z": ".2f", "p": ".3g", "parameter": "", "feature": ""}


class CoefficientTable(NamedTuple):
    """A table of coefficients with one row per coefficient, returned by `CountGLM.coefficient_table`.

    Columns are the estimate, its standard error, the z statistic, the two-sided p-value and a Wald interval from `low`
    to `high`, whose confidence level is `coverage`. `library` is "pandas" or "polars", the library of `to_frame`.
    """

    parameter: tuple[str, ...]
    feature: tuple[str, ...]
    estimate: np.ndarray
    std_error: np.ndarray
    z: np.ndarray
    p: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coverage: float
    library: str = "polars"

    @classmethod
    def from_estimates(
        cls,
        parameter: Sequence[str],
        feature: Sequence[str],
        estimate: np.ndarray,
        std_error: np.ndarray,
        coverage: float,
        library: str = "polars",
    ) -> Self:
        """Make a table from estimates and standard errors, by computing z statistics, p-values and intervals.

        Where a standard error is NaN, so are these. `parameter` and `feature` name the coefficients, such as "log mean"
        and "age".
        """
        z = np.divide(estimate, std_error, out=np.full_like(estimate, np.nan), where=std_error > 0)
        reach = ndtri(0.5 + 0.5 * coverage) * std_error
        tests = (z, 2.0 * ndtr(-np.abs(z)), estimate - reach, estimate + reach)
        return cls(tuple(parameter), tuple(feature), estimate, std_error, *tests, coverage, library)

    def rows(self, index: np.ndarray) -> Self:
        """Return the rows for which the mask `index` is True, as a table."""
        parameter, feature = (
            [name for name, is_kept in zip(names, index, strict=True) if is_kept]
            for names in (self.parameter, self.feature)
        )
        numbers = self.estimate[index], self.std_error[index], self.coverage
        return self.from_estimates(parameter, feature, *numbers, self.library)

    @property
    def columns(self) -> Columns:
        """The columns of the table by their printed names, for example for `pandas.DataFrame`."""
        share = f"{100 * self.coverage:g}%"
        names = ("parameter", "feature", "estimate", "std. error", "z", "p", f"{share} low", f"{share} high")
        numbers = (self.estimate, self.std_error, self.z, self.p, self.low, self.high)
        return dict(zip(names, (self.parameter, self.feature, *numbers), strict=True))

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the table as a data frame with one row per coefficient.

        It is a pandas frame if X in `fit` was one, and a polars frame otherwise.
        """
        return make_frame(self.columns, self.library)

    def __str__(self) -> str:
        return str(TextTable(list(self.columns), _format_rows(self.columns), names=2))

    def _repr_html_(self) -> str:
        return TextTable(list(self.columns), _format_rows(self.columns)).to_html()


def _format_rows(columns: Columns) -> list[tuple[str, ...]]:
    """Format all cells of a table as text, and return one tuple of cells per row."""
    texts = ([_format_cell(name, value) for value in values] for name, values in columns.items())
    return list(zip(*texts, strict=True))


def _format_cell(name: str, value: str | float) -> str:
    if "ratio" in name and np.isnan(value):
        return ""
    return f"{value:{_FORMATS.get(name, '.4g')}}"


@dataclass(frozen=True, eq=False, repr=False)
class GLMSummary:
    """The summary of a fitted GLM that `CountGLM.summary` returns, to be printed.

    It has statistics of the fit, a table of the coefficients of the location with their ratios (e^coefficient), and a
    table of all other coefficients.

    Parameters
    ----------
    title : str
        The likelihood.
    facts : dict
        Statistics of the fit by their printed names, such as "rows" and "AIC".
    location : CoefficientTable
        Coefficients of the location, such as the log mean.
    others : CoefficientTable
        Coefficients of the other parameters, such as a log dispersion; may be empty.
    ratio : str
        The name of e^coefficient, such as "rate ratio"; empty if it has no interpretation.
    notes : tuple of str
        Sentences on how to read the coefficients.
    """

    title: str
    facts: dict[str, str | float]
    location: CoefficientTable
    others: CoefficientTable
    ratio: str
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> Columns:
        """The table of the location: its coefficients and their ratios with intervals, as columns by printed names.

        The ratio of an intercept is NaN.
        """
        table = self.location.columns
        del table["parameter"]
        if self.ratio:
            names = (self.ratio, "ratio low", "ratio high")
            is_intercept = np.array([name == INTERCEPT for name in self.location.feature])
            logs = (self.location.estimate, self.location.low, self.location.high)
            with np.errstate(over="ignore"):
                ratios = [np.where(is_intercept, np.nan, np.exp(column)) for column in logs]
            table |= dict(zip(names, ratios, strict=True))
        return table

    def _headings(self) -> tuple[str, str]:
        """Return the headings of the two tables of coefficients."""
        others = " and ".join(dict.fromkeys(self.others.parameter))
        label = self.location.parameter[0]
        return f"Coefficients of {'the ' if 'mean' in label else ''}{label}", f"Coefficients of {others}"

    def _fact_rows(self) -> list[tuple[str, str, str, str]]:
        """Format the statistics of the fit for printing side by side.

        Each row has a name and a value from the first half of the statistics, and a name and a value from the second
        half.
        """
        facts = [(name, _format_fact(value)) for name, value in self.facts.items()]
        half = (len(facts) + 1) // 2
        right = [*facts[half:], ("", "")][:half]
        return [(*a, *b) for a, b in zip(facts[:half], right, strict=True)]

    def __str__(self) -> str:
        rows = self._fact_rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{a:<{widths[0]}}  {b:>{widths[1]}}    {c:<{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in rows
        ]
        heading, other = self._headings()
        parts = [f"CountGLM: {self.title}", *lines, "", heading]
        parts.append(str(TextTable(list(self.columns), _format_rows(self.columns))))
        if self.others.parameter:
            parts += ["", other, str(self.others)]
        return "\n".join([*parts, *([""] if self.notes else []), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading, other = self._headings()
        parts = [
            f"<p><strong>CountGLM: {escape(self.title)}</strong></p>",
            TextTable(("", "", "", ""), self._fact_rows()).to_html(),
        ]
        parts += [f"<p>{escape(heading)}</p>", TextTable(list(self.columns), _format_rows(self.columns)).to_html()]
        if self.others.parameter:
            parts += [f"<p>{escape(other)}</p>", self.others._repr_html_()]
        return "\n".join([*parts, *(f"<p>{escape(note)}</p>" for note in self.notes)])


def _format_fact(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
