"""The table every statistics package prints after a fit."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from ddpn.runtime.display import html_table, text_table
from ddpn.runtime.errors import ConfigError


class CoefficientTable(NamedTuple):
    """One row per coefficient: estimate, standard error, z, two-sided p and a Wald interval (`low`, `high`).

    >>> print(coefficient_table(["log mu"], ["age"], np.array([0.5]), np.array([0.1])))
    parameter  feature  estimate  std. error     z         p   95% low  95% high
    log mu     age           0.5         0.1  5.00  5.73e-07     0.304     0.696
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

    @property
    def columns(self) -> dict[str, Any]:
        """Every column by the name it is printed under."""
        share = f"{100 * self.coverage:g}%"
        names = ("parameter", "feature", "estimate", "std. error", "z", "p", f"{share} low", f"{share} high")
        return dict(zip(names, self[:-1], strict=True))

    def to_pandas(self) -> Any:
        """The same as a pandas frame."""
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError("pandas is not installed: pip install pandas") from None
        return pd.DataFrame(self.columns)

    def __str__(self) -> str:
        return text_table(list(self.columns), self._rows(), names=2)

    def _rows(self) -> list[tuple[str, ...]]:
        """The cells of every coefficient."""
        texts = ([_cell(name, value) for value in values] for name, values in self.columns.items())
        return list(zip(*texts, strict=True))

    def _repr_html_(self) -> str:
        return html_table(self.columns, self._rows())


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if column == "z" else f"{value:.3g}" if column == "p" else f"{value:.4g}"


def coefficient_table(
    parameter: list[str], feature: list[str], estimate: np.ndarray, std_error: np.ndarray, coverage: float = 0.95
) -> CoefficientTable:
    """z = estimate / std. error against the standard normal; an unknown standard error leaves all of these unknown."""
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage must lie between 0 and 1, got {coverage}. Use 0.95.")
    z = np.divide(estimate, std_error, out=np.full_like(estimate, np.nan), where=std_error > 0)
    reach = ndtri(0.5 + 0.5 * coverage) * std_error
    rest = (estimate, std_error, z, 2.0 * ndtr(-np.abs(z)), estimate - reach, estimate + reach)
    return CoefficientTable(tuple(parameter), tuple(feature), *rest, coverage)
