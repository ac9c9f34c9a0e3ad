"""Out-of-distribution flags of a predictor: calibration, p-values, and the reasons of unusual rows."""

from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.reasons import DISAGREEMENT, flag_reasons, row_reasons
from ddpn.members.member import Member
from ddpn.runtime.errors import InputError
from ddpn.sample import row_count, take_rows
from ddpn.tables.count_range import CountRange


class OODFlags:
    """The part of a `Predictor` that flags rows unlike the calibration rows."""

    ood: OODScores | None
    profile: FeatureProfile | None
    needs_exposure: bool
    counts: CountRange

    @property
    def mixed(self) -> dict[str, Member]:
        """The members with a weight above 0."""
        raise NotImplementedError

    def blocks(self, X: Any, exposure: Any = None, *, upper: Any = None) -> Iterator[Any]:
        """The predicted distributions, a block of rows at a time."""
        raise NotImplementedError

    def calibrate_ood(
        self,
        X: Any,
        exposure: Any = None,
        kind: str | None = None,
        alpha: float = 0.05,
        features: bool = True,
        upper: Any = None,
    ) -> None:
        """Learn which out-of-distribution scores are ordinary, from rows that no member was trained on.

        Parameters
        ----------
        X, exposure, upper
            As for `distribution`.
        kind : str, optional
            A score of `ddpn.metrics.ood_score`. Default: what the components disagree about, or the variance where
            there is only one.
        alpha : float
            The share of ordinary rows that are flagged.
        features : bool
            False leaves the features out of account, also where there is a `profile`.
        """
        if kind is None:
            first = take_rows(X, slice(0, 1))
            one = np.ones(1) if self.needs_exposure or self.counts.upper_is_total else None
            parts = [part for member in self.mixed.values() for part in member.parts(first, one)]
            size = sum(part.batch_shape[-1] for part in parts)
            kind = "mutual_information" if size > 1 else "variance"
        known = self.profile.measure(X).score if features and self.profile is not None else None
        self.ood = OODScores.fit(self.blocks(X, exposure, upper=upper), kind, alpha, known)

    def ood_pvalue(self, X: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """Conformal p-value of "this row is like the calibration rows", small for unusual rows. Shape: (rows,).

        Parameters
        ----------
        X, exposure, upper
            As for `distribution`.
        """
        ood = self.calibrated_ood
        return ood.pvalue(
            self.blocks(X, exposure, upper=upper), self._profile.measure(X).score if len(ood.features) else None
        )

    def ood_reasons(self, X: Any, flagged: np.ndarray | None = None, days: Container[str] = ()) -> list[list[str]]:
        """What is unusual about each row, the most unusual first: columns, for example "missing 'age'".

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        flagged : array of bool, optional
            Rows that always have a reason: the combination of their values, or the disagreement of the members, where
            no single column explains the flag.
        days : container of str
            Columns of days since 1970, which are shown as dates.
        """
        reasons = [[] for _ in range(row_count(X))] if self.profile is None else row_reasons(self.profile, X, days)
        unexplained = [row for row, own in enumerate(reasons) if not own and flagged is not None and flagged[row]]
        if unexplained:
            general = [DISAGREEMENT] * len(unexplained)
            if self.ood is not None and len(self.ood.features):
                general = flag_reasons(self._profile, self.ood, take_rows(X, unexplained))
            for row, reason in zip(unexplained, general, strict=True):
                reasons[row] = [reason]
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
