"""Flags of out-of-distribution rows by conformal p-values: new rows are scored and compared with ordinary rows."""

from typing import NamedTuple, Self

import numpy as np

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number

#: Scores that differ by less, relatively or absolutely, count as equal: rounding depends on the other rows of a block.
_TIE_TOLERANCE = 1e-9


class OODScores(NamedTuple):
    """Out-of-distribution scores of n calibration rows. The scores of new rows are compared with them.

    The p-value of a new row is (1 + number of calibration rows that score at least as high) / (n + 1). If the row is
    exchangeable with the calibration rows, P(p-value <= alpha) <= alpha for every alpha.

    Parameters
    ----------
    scores : array, shape (n,)
        The scores of the calibration rows (`FeatureProfile.measure`), ascending.
    alpha : float
        The largest p-value of a flagged row: at most this share of ordinary rows is flagged.

    Examples
    --------
    >>> OODScores.fit(np.arange(19.0), alpha=0.05).pvalue(np.array([9.0, 18.0, 40.0])).tolist()
    [0.55, 0.1, 0.05]
    """

    scores: np.ndarray
    alpha: float

    @classmethod
    def fit(cls, scores: np.ndarray, alpha: float) -> Self:
        """Return the sorted scores of calibration rows, with `alpha`.

        The scores must be computed by a summary of the training rows that does not include the calibration rows.
        `alpha` is kept even if it is too small to flag any row; `warning` then says so.
        """
        return cls(np.sort(scores), alpha)

    @property
    def warning(self) -> str:
        """A sentence that explains why no row can be flagged at `alpha`; "" if rows can be flagged."""
        rows, smallest = len(self.scores), 1.0 / (len(self.scores) + 1.0)
        if self.alpha >= smallest:
            return ""
        return (
            f"No row can be flagged as out-of-distribution at alpha {self.alpha:g}: with {rows} calibration rows the "
            f"smallest p-value is {smallest:.2g}."
        )

    def pvalue(self, scores: np.ndarray) -> np.ndarray:
        """Return the p-value of each row: about the share of calibration rows that score at least as high.

        Parameters
        ----------
        scores : array, shape (rows,)
            The scores of the rows (`FeatureProfile.measure`). NaN counts as the highest score.

        Returns
        -------
        array, shape (rows,)
            The p-values, from 1 / (n + 1) to 1 for n calibration rows.
        """
        n = len(self.scores)
        lower = np.searchsorted(self.scores, scores - _TIE_TOLERANCE * (1.0 + np.abs(scores)), side="left")
        return (1.0 + n - lower) / (n + 1.0)

    def is_ood(self, pvalue: np.ndarray, alpha: float | None = None) -> np.ndarray:
        """Return True for each row whose p-value is at most `alpha`.

        Parameters
        ----------
        pvalue : array, shape (rows,)
            The result of `pvalue`.
        alpha : float, optional
            The largest p-value of a flagged row. Default: the `alpha` that was passed to `fit`. If it is smaller
            than the smallest possible p-value, which `check_alpha` tests, no row is flagged.
        """
        return pvalue <= (self.alpha if alpha is None else alpha)


def check_alpha(alpha: float, n_rows: int) -> float:
    """Return `alpha` as a float. Raise an error if it is not between 0 and 1, or too small to flag any row.

    With `n_rows` calibration rows, the smallest possible p-value is 1 / (n_rows + 1).
    """
    if not is_number(alpha) or not 0.0 < alpha < 1.0:
        remedy = "Use 0.05 to flag 5% of ordinary rows."
        raise ConfigError(argument="alpha", must="lie between 0 and 1", got=repr(alpha), remedy=remedy)
    if alpha < 1.0 / (n_rows + 1.0):
        smallest = f"1 / (n + 1) = {1.0 / (n_rows + 1.0):.2g} with n = {n_rows} calibration rows"
        must, remedy = f"be at least {smallest}", "Calibrate with more rows, or raise alpha."
        raise InputError(argument="alpha", must=must, got=f"{alpha:g}", remedy=remedy)
    return float(alpha)
