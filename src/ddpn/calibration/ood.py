"""Out-of-distribution flags: is this row unlike the calibration rows? A conformal p-value of a score of its inputs."""

from collections.abc import Container
from typing import Any, NamedTuple, Self

import numpy as np

from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.reasons import COMBINATION, row_reasons
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number
from ddpn.sample import row_count, take_rows

#: Scores this close, relatively or absolutely, are equal: rounding depends on the rows beside a row.
_TIE = 1e-9


class OODScores(NamedTuple):
    """The sorted scores of n calibration rows; the p-value of a row is (1 + number of those as high) / (n + 1).

    For rows exchangeable with the calibration rows, P(p-value <= alpha) <= alpha for every alpha.

    Parameters
    ----------
    scores : array
        Scores of the inputs (`FeatureProfile.measure`), ascending.
    alpha : float
        The share of ordinary rows that are flagged.

    Examples
    --------
    >>> OODScores.fit(np.arange(19.0), alpha=0.05).pvalue(np.array([9.0, 18.0, 40.0])).tolist()
    [0.55, 0.1, 0.05]
    """

    scores: np.ndarray
    alpha: float

    @classmethod
    def fit(cls, scores: np.ndarray, alpha: float) -> Self:
        """Sort the scores of calibration rows.

        Parameters
        ----------
        scores : array
            Scores of rows that the summary of the training rows left out.
        alpha : float
            The share of ordinary rows that are flagged.
        """
        return cls(np.sort(scores), check_alpha(alpha, len(scores)))

    def pvalue(self, scores: np.ndarray) -> np.ndarray:
        """The p-value of every row. Shape: (rows,).

        Parameters
        ----------
        scores : array
            Scores of the rows; NaN counts as the highest of all.
        """
        n = len(self.scores)
        lower = np.searchsorted(self.scores, scores - _TIE * (1.0 + np.abs(scores)), side="left")
        return (1.0 + n - lower) / (n + 1.0)

    def is_ood(self, pvalue: np.ndarray, alpha: float | None = None) -> np.ndarray:
        """Flag rows with a small p-value.

        Parameters
        ----------
        pvalue : array
            What `pvalue` returned.
        alpha : float, optional
            Rows with a p-value of at most this are flagged. Default: that of `fit`.
        """
        return pvalue <= (self.alpha if alpha is None else check_alpha(alpha, len(self.scores)))


def check_alpha(alpha: float, n: int) -> float:
    """`alpha` as a float, if some p-value can be as small with n calibration rows."""
    if not is_number(alpha) or not 0.0 < alpha < 1.0:
        remedy = "Use 0.05 to flag 5% of ordinary rows."
        raise ConfigError(argument="alpha", must="lie between 0 and 1", got=repr(alpha), remedy=remedy)
    if alpha < 1.0 / (n + 1.0):
        smallest = f"1 / (n + 1) = {1.0 / (n + 1.0):.2g} with n = {n} calibration rows"
        must, remedy = f"be at least {smallest}", "Calibrate with more rows, or raise alpha."
        raise InputError(argument="alpha", must=must, got=f"{alpha:g}", remedy=remedy)
    return float(alpha)


class OODFlags:
    """The part of a `Predictor` that flags rows unlike the calibration rows."""

    ood: OODScores | None
    profile: FeatureProfile | None

    def calibrate_ood(self, X: Any, alpha: float = 0.05) -> None:
        """Learn which out-of-distribution scores are ordinary, from rows that no member was trained on.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        alpha : float
            The share of ordinary rows that are flagged.
        """
        self.ood = OODScores.fit(self._profile.measure(X).score, alpha)

    def ood_pvalue(self, X: Any) -> np.ndarray:
        """Conformal p-value of "this row is like the calibration rows", small for unusual rows. Shape: (rows,).

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        """
        return self.calibrated_ood.pvalue(self._profile.measure(X).score)

    def ood_reasons(self, X: Any, flagged: np.ndarray | None = None, days: Container[str] = ()) -> list[list[str]]:
        """What is unusual about each row, the most unusual first: columns, for example "missing 'age'".

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        flagged : array of bool, optional
            Rows that always have a reason: the combination of their values, where no single column explains the flag.
        days : container of str
            Columns of days since 1970, which are shown as dates.
        """
        if self.profile is None:
            return [[] for _ in range(row_count(X))]
        reasons = row_reasons(self.profile, X, days)
        unexplained = [row for row, own in enumerate(reasons) if not own and flagged is not None and flagged[row]]
        if unexplained:
            columns = self.profile.misfits(take_rows(X, unexplained))
            for row, name in zip(unexplained, columns, strict=True):
                reasons[row] = [COMBINATION + (f", mostly {name!r}" if name else "")]
        return reasons

    @property
    def _profile(self) -> FeatureProfile:
        if self.profile is None:
            raise InputError("The model has no summary of its training rows. Fit it again.")
        return self.profile

    @property
    def calibrated_ood(self) -> OODScores:
        """The out-of-distribution scores, or an error where there was no calibration."""
        if self.ood is None:
            raise InputError("Out-of-distribution scores are not calibrated: call fit_ood with rows not used by fit.")
        return self.ood
