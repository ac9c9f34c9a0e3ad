"""Coefficient table and summary of a GLM, for printing and as data frames."""

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
    """Table of the coefficients of a GLM, with one row per coefficient; returned by `CountGLM.coefficient_table`.

    The fields are the columns of the table:

    - `parameter` and `feature`: the name of the coefficient, such as "log mean" and "age";
    - `estimate` and `std_error`;
    - `z` and `p`: the z statistic and its two-sided p-value;
    - `low` and `high`: the ends of a Wald interval, whose confidence level is `coverage`.

    `library` is the library of the data frame that `to_frame` returns: "pandas" or "polars".
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
        """Make a table from estimates and standard errors, and compute z statistics, p-values and intervals.

        These are NaN where the standard error is NaN. All arguments but the last two have one entry per coefficient.
        `parameter` and `feature` name it, such as "log mean" and "age". `coverage` is the confidence level of the
        intervals, and `library` the library of the data frame that `to_frame` returns.
        """
        z = np.divide(estimate, std_error, out=np.full_like(estimate, np.nan), where=std_error > 0)
        reach = ndtri(0.5 + 0.5 * coverage) * std_error
        tests = (z, 2.0 * ndtr(-np.abs(z)), estimate - reach, estimate + reach)
        return cls(tuple(parameter), tuple(feature), estimate, std_error, *tests, coverage, library)

    def rows(self, mask: np.ndarray) -> Self:
        """Return a table of the coefficients for which `mask` is True."""
        parameter, feature = (
            [name for name, is_kept in zip(names, mask, strict=True) if is_kept]
            for names in (self.parameter, self.feature)
        )
        numbers = self.estimate[mask], self.std_error[mask], self.coverage
        return self.from_estimates(parameter, feature, *numbers, self.library)

    @property
    def columns(self) -> Columns:
        """The columns of the table, keyed by their printed names, for example for `pandas.DataFrame`."""
        share = f"{100 * self.coverage:g}%"
        names = ("parameter", "feature", "estimate", "std. error", "z", "p", f"{share} low", f"{share} high")
        numbers = (self.estimate, self.std_error, self.z, self.p, self.low, self.high)
        return dict(zip(names, (self.parameter, self.feature, *numbers), strict=True))

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the table as a data frame with one row per coefficient.

        It is a pandas frame if X in `fit` was one, otherwise a polars frame.
        """
        return make_frame(self.columns, self.library)

    def __str__(self) -> str:
        return str(TextTable(list(self.columns), _format_rows(self.columns), n_name_columns=2))

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
    """Summary of a fitted GLM for printing, returned by `CountGLM.summary`.

    It has statistics of the fit and two tables. The first has the coefficients of the location (usually the log mean)
    with their ratios, e^coefficient. The second has the coefficients of all other parameters.

    Parameters
    ----------
    title : str
        The likelihood.
    facts : dict
        Statistics of the fit, keyed by their printed names, such as "rows" and "AIC".
    location : CoefficientTable
        The coefficients of the location.
    others : CoefficientTable
        The coefficients of the other parameters, such as a log dispersion; may be empty.
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
        """The table of the location (usually the log mean), as columns keyed by their printed names.

        It has the coefficients and their ratios e^coefficient, both with intervals. The ratio of the intercept is NaN.
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

    def _make_headings(self) -> tuple[str, str]:
        """Return the headings of the two tables of coefficients."""
        others = " and ".join(dict.fromkeys(self.others.parameter))
        label = self.location.parameter[0]
        return f"Coefficients of {'the ' if 'mean' in label else ''}{label}", f"Coefficients of {others}"

    def _arrange_facts(self) -> list[tuple[str, str, str, str]]:
        """Format the statistics of the fit for printing in two columns side by side.

        Each row has four texts: the name and the value of a statistic from the first half, and of one from the second
        half.
        """
        facts = [(name, _format_fact(value)) for name, value in self.facts.items()]
        half = (len(facts) + 1) // 2
        right = [*facts[half:], ("", "")][:half]
        return [(*a, *b) for a, b in zip(facts[:half], right, strict=True)]

    def __str__(self) -> str:
        rows = self._arrange_facts()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{a:<{widths[0]}}  {b:>{widths[1]}}    {c:<{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in rows
        ]
        heading, other = self._make_headings()
        parts = [f"CountGLM: {self.title}", *lines, "", heading]
        parts.append(str(TextTable(list(self.columns), _format_rows(self.columns))))
        if self.others.parameter:
            parts += ["", other, str(self.others)]
        return "\n".join([*parts, *([""] if self.notes else []), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading, other = self._make_headings()
        parts = [
            f"<p><strong>CountGLM: {escape(self.title)}</strong></p>",
            TextTable(("", "", "", ""), self._arrange_facts()).to_html(),
        ]
        parts += [f"<p>{escape(heading)}</p>", TextTable(list(self.columns), _format_rows(self.columns)).to_html()]
        if self.others.parameter:
            parts += [f"<p>{escape(other)}</p>", self.others._repr_html_()]
        return "\n".join([*parts, *(f"<p>{escape(note)}</p>" for note in self.notes)])


def _format_fact(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
