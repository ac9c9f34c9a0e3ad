"""Out-of-distribution flags: is this row unlike the calibration rows? Calibrated by conformal p-values."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import torch

from ddpn.distributions import Mixture
from ddpn.errors import ConfigError, InputError
from ddpn.metrics import OOD_SCORES, ood_score
from ddpn.validation import check_choice, is_number


class OODScores(NamedTuple):
    """The sorted scores of the calibration rows, which score that is, and the share of them that flags allow."""

    scores: np.ndarray
    kind: str
    alpha: float

    @classmethod
    def fit(cls, blocks: Iterable[Mixture], kind: str, alpha: float) -> Self:
        """From predictions of calibration rows, in blocks."""
        check_choice("kind", kind, OOD_SCORES)
        scores = np.sort(_scores(blocks, kind))
        return cls(scores, kind, check_alpha(alpha, len(scores)))

    def pvalue(self, blocks: Iterable[Mixture]) -> np.ndarray:
        """(1 + number of calibration scores that are as high) / (n + 1). Shape: (rows,)."""
        # A score that is no number sorts last, as the highest of all.
        as_high = len(self.scores) - np.searchsorted(self.scores, _scores(blocks, self.kind), side="left")
        return (1.0 + as_high) / (len(self.scores) + 1.0)

    def is_ood(self, pvalue: np.ndarray, alpha: float | None = None) -> np.ndarray:
        """Rows with a p-value of at most `alpha`, by default that of `fit`."""
        return pvalue <= (self.alpha if alpha is None else check_alpha(alpha, len(self.scores)))


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
