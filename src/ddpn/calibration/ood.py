"""Out-of-distribution flags: is this row unlike the calibration rows? A conformal p-value of two scores.

One score is what the members of the mixture disagree about, the other how unusual the features of the row are
(`FeatureProfile`).
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.reasons import COMBINATION, DISAGREEMENT, row_reasons
from ddpn.distributions import Mixture
from ddpn.members.member import Member
from ddpn.metrics import OOD_SCORES, ood_score
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, is_number
from ddpn.sample import row_count, take_rows
from ddpn.tables.count_range import CountRange

#: Scores this close, relatively or absolutely, are equal: entropies are exact to 1e-10.
_TIE = 1e-9


class OODScores(NamedTuple):
    """The sorted scores of n calibration rows: of the model's predictions and, for tables, of the features.

    A row has two ranks, one per score: 1 if no calibration row scores as high. Rows are ordered by the smaller rank,
    equal ones by the rank of the feature score (`order` has these places, as one integer per calibration row), and the
    p-value is (1 + number of calibration rows that come no later) / (n + 1).

    For rows exchangeable with the calibration rows, P(p-value <= alpha) <= alpha for every alpha. For let every
    calibration row be ranked among all n + 1 rows: then all of them are treated alike, and the share of rows that come
    no later than a new one is a valid p-value. Here a calibration row is ranked among the n: its rank can be smaller by
    one, never larger, so that it can only come earlier, and the p-value can only be larger.

    Parameters
    ----------
    scores : array
        Scores of the predictions, ascending.
    kind : str
        Which score of the predictions, one of `ddpn.metrics.ood_score`.
    alpha : float
        The share of ordinary rows that are flagged.
    features : array
        Scores of the features, ascending; empty if there are none.
    order : array of int
        The places of the calibration rows by both ranks, ascending; empty without scores of features.
    """

    scores: np.ndarray
    kind: str
    alpha: float
    features: np.ndarray = np.empty(0)
    order: np.ndarray = np.empty(0, dtype=np.int64)

    @classmethod
    def fit(cls, blocks: Iterable[Mixture], kind: str, alpha: float, features: np.ndarray | None = None) -> Self:
        """Sort the scores of calibration rows.

        Parameters
        ----------
        blocks : iterable of Mixture
            Predictions of the calibration rows, in blocks.
        kind : str
            The score of predictions, one of `ddpn.metrics.ood_score`.
        alpha : float
            The share of ordinary rows that are flagged.
        features : array, optional
            The feature scores of these rows.
        """
        check_choice("kind", kind, OOD_SCORES)
        return cls._of(_scores(blocks, kind), kind, alpha, features)

    @classmethod
    def of_features(cls, features: np.ndarray, alpha: float) -> Self:
        """Sort the feature scores of calibration rows, where predictions are left out of account.

        Parameters
        ----------
        features : array
            The feature scores of these rows.
        alpha : float
            The share of ordinary rows that are flagged.
        """
        return cls._of(np.zeros(len(features)), "none", alpha, features)

    @classmethod
    def _of(cls, scores: np.ndarray, kind: str, alpha: float, features: np.ndarray | None) -> Self:
        alpha = check_alpha(alpha, len(scores))
        if features is None:
            return cls(np.sort(scores), kind, alpha)
        found = cls(np.sort(scores), kind, alpha, np.sort(features))
        by_model, by_feature = _as_high(found.scores, scores), _as_high(found.features, features)
        return found._replace(order=np.sort(_place(np.minimum(by_model, by_feature), by_feature, len(scores))))

    def pvalue(self, blocks: Iterable[Mixture], features: np.ndarray | None = None) -> np.ndarray:
        """The p-value of every row. Shape: (rows,).

        Parameters
        ----------
        blocks : iterable of Mixture
            Predictions of the rows, in blocks.
        features : array, optional
            Their feature scores, needed where `fit` had them.
        """
        by_model, n = _as_high(self.scores, _scores(blocks, self.kind)), len(self.scores)
        if features is None:
            return (1.0 + by_model) / (n + 1.0)
        by_feature = _as_high(self.features, features)
        place = _place(1 + np.minimum(by_model, by_feature), by_feature, n)
        return (1.0 + np.searchsorted(self.order, place, side="right")) / (n + 1.0)

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


def _as_high(known: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """How many of the sorted calibration scores are as high; NaN sorts last, as the highest of all.

    Equal rows have equal scores but for rounding, which depends on the rows beside them.
    """
    return len(known) - np.searchsorted(known, scores - _TIE * (1.0 + np.abs(scores)), side="left")


def _place(smaller: np.ndarray, by_feature: np.ndarray, n: int) -> np.ndarray:
    """The pair (smaller rank, number of feature scores as high), in lexicographic order, as one integer."""
    return smaller.astype(np.int64) * (n + 2) + by_feature


@torch.no_grad()
def _scores(blocks: Iterable[Mixture], kind: str) -> np.ndarray:
    return torch.cat([ood_score(block, kind) for block in blocks]).double().numpy()


def check_alpha(alpha: float, n: int) -> float:
    """`alpha` as a float, if some p-value can be as small with n calibration rows."""
    if not is_number(alpha) or not 0.0 < alpha < 1.0:
        raise ConfigError(f"alpha must lie between 0 and 1, got {alpha!r}. Use 0.05 to flag 5% of ordinary rows.")
    if alpha < 1.0 / (n + 1.0):
        smallest = f"1 / (n + 1) = {1.0 / (n + 1.0):.2g} with n = {n} calibration rows"
        raise InputError(f"alpha must be at least {smallest}, got {alpha:g}. Calibrate with more rows, or raise alpha.")
    return float(alpha)


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
            for row, reason in zip(unexplained, self._general_reasons(take_rows(X, unexplained)), strict=True):
                reasons[row] = [reason]
        return reasons

    def _general_reasons(self, X: Any) -> list[str]:
        """Reasons of flagged rows that no single column explains: the score by which each row is flagged."""
        if self.ood is None or not len(self.ood.features):
            return [DISAGREEMENT] * row_count(X)
        # Half of alpha: the two scores share it.
        limit, profile = np.quantile(self.ood.features, 1.0 - self.ood.alpha / 2.0), self._profile
        both = zip(profile.measure(X).score >= limit, profile.misfits(X), strict=True)
        return [COMBINATION + (f", mostly {name!r}" if name else "") if high else DISAGREEMENT for high, name in both]

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
