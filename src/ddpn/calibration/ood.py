"""A flag beside each prediction: is this row unlike those the model knows? Calibrated by conformal p-values."""

from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ddpn.distributions import Mixture
from ddpn.errors import ConfigError, InputError
from ddpn.metrics.ood import check_ood_kind, ood_score

FILE = "outside.safetensors"
_FITTED = ("ood_scores_", "ood_kind_", "ood_alpha_")


class OutsideDetection:
    """Out-of-distribution flags for an estimator that gives its laws block by block (`_blocks`).

    After `fit_ood`: `ood_scores_`, the sorted scores of the calibration rows, `ood_kind_` and `ood_alpha_`.
    """

    ood_scores_: np.ndarray
    ood_kind_: str
    ood_alpha_: float

    def _blocks(self, X: Any, exposure: Any) -> Iterator[Mixture]:
        raise NotImplementedError

    def fit_ood(self, X: Any, exposure: Any = None, kind: str = "mutual_information", alpha: float = 0.05) -> Self:
        """Learn which scores are usual, from rows like those to come that `fit` has not seen.

        Rows of the training set will not do: the model is surer of them than of any other, and too many later rows
        would be flagged. `kind` is a score of `ddpn.metrics.ood_score`, `alpha` the share of usual rows that `is_ood`
        may flag unless it is told otherwise.

        The default, "mutual_information", is what the members disagree about, in nats. Unlike the other three it hardly
        follows the predicted mean, and in simulations whose inputs leave the training region it was mostly the best,
        with "epistemic", which costs least, the second. "variance" is the paper's score and, with "entropy", the one
        for a single member. Disagreement does not show where all members go astray alike, say to a mean near 0.

        >>> from ddpn import CountRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (400, 1))
        >>> y = rng.poisson(np.exp(1 + X[:, 0]))
        >>> model = CountRegressor(members=3, hidden=(16,), epochs=30, random_state=0).fit(X[:300], y[:300])
        >>> model.fit_ood(X[300:]).is_ood([[0.0], [9.0]]).tolist()
        [False, True]
        """
        check_ood_kind(kind)
        scores = np.sort(self._ood_scores(X, exposure, kind))
        _check_alpha(alpha, len(scores))
        self.ood_scores_, self.ood_kind_, self.ood_alpha_ = scores, kind, float(alpha)
        return self

    def ood_pvalue(self, X: Any, exposure: Any = None) -> np.ndarray:
        """Conformal p-value of "this row is like the calibration rows": (1 + how many of n score as high) / (n + 1).

        Of rows that are exchangeable with the calibration rows at most a share alpha, on average over calibration
        sets, has a p-value of alpha or less: for any model, score and n. Shape: (rows,).
        """
        scores = self._ood_scores(X, exposure, self._calibrated().ood_kind_)
        # A score that is no number sorts last, as the strangest of all.
        as_high = len(self.ood_scores_) - np.searchsorted(self.ood_scores_, scores, side="left")
        return (1.0 + as_high) / (len(self.ood_scores_) + 1.0)

    def is_ood(self, X: Any, alpha: float | None = None, exposure: Any = None) -> np.ndarray:
        """Rows to distrust: those with a p-value of at most `alpha`, that of `fit_ood` for None. Shape: (rows,)."""
        known = self._calibrated()
        alpha = known.ood_alpha_ if alpha is None else _check_alpha(alpha, len(known.ood_scores_))
        return self.ood_pvalue(X, exposure) <= alpha

    def _ood_scores(self, X: Any, exposure: Any, kind: str) -> np.ndarray:
        scores = [ood_score(_can_disagree(block, kind), kind) for block in self._blocks(X, exposure)]
        return torch.cat(scores).double().numpy()

    def _calibrated(self) -> Self:
        if not hasattr(self, "ood_scores_"):
            raise InputError(
                "fit_ood must be called before flags are asked for, got a model without calibration rows. "
                "Call it with rows that fit has not seen."
            )
        return self

    # Keeping -----------------------------------------------------------------------------------------------------

    def _forget_ood(self) -> None:
        """Scores of another fit say nothing about this one."""
        for name in _FITTED:
            self.__dict__.pop(name, None)

    def _saved_ood(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files by name and words for the manifest; none without calibration."""
        if not hasattr(self, "ood_scores_"):
            return {}, {}
        return {FILE: save_arrays({"scores": self.ood_scores_})}, {
            "ood": {"kind": self.ood_kind_, "alpha": self.ood_alpha_}
        }

    def _restore_ood(self, files: dict[str, bytes], manifest: dict[str, Any], path: Path) -> None:
        if "ood" not in manifest:
            return
        try:
            self.ood_scores_ = load_arrays(files[FILE])["scores"]
        except (KeyError, SafetensorError) as error:
            raise InputError(f"{path / FILE} must hold scores, got {error}. Save the model again.") from None
        self.ood_kind_, self.ood_alpha_ = manifest["ood"]["kind"], manifest["ood"]["alpha"]


def _can_disagree(law: Mixture, kind: str) -> Mixture:
    """The law, if it has members enough for the score."""
    if law.size == 1 and kind in ("epistemic", "mutual_information"):
        told = "the model has one member, and nothing to disagree with"
        raise InputError(f'kind must be "variance" or "entropy", got "{kind}": {told}. Pass kind="variance".')
    return law


def _check_alpha(alpha: float, n: int) -> float:
    """alpha, if some p-value can be as small with n calibration rows."""
    if not isinstance(alpha, Real) or not 0.0 < alpha < 1.0:
        raise ConfigError(f"alpha must lie between 0 and 1, got {alpha!r}. Use 0.05 to flag 5% of usual rows.")
    if alpha < 1.0 / (n + 1.0):
        least = f"1 / (n + 1) = {1.0 / (n + 1.0):.2g} with n = {n} calibration rows"
        raise InputError(f"alpha must be at least {least}, got {alpha:g}. Give fit_ood more rows, or raise alpha.")
    return float(alpha)
