"""How well a score separates out-of-distribution (OOD) inputs from in-distribution ones: areas and rates."""

from typing import Any

import numpy as np
from torch import Tensor

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_number, is_number

#: Relative tolerance of shares: 0.29 * 100 is not 29 in floating point.
_ROUNDING = 1e-12


def auroc(score_in: Any, score_out: Any) -> float:
    """Area under the ROC curve: P(an OOD score exceeds an in-distribution one) + P(they are equal) / 2 (Appendix B.2).

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs; higher should mean OOD.

    Examples
    --------
    >>> auroc([0.1, 0.2, 0.3], [0.3, 0.9])
    0.9166666666666667
    """
    from sklearn.metrics import roc_auc_score  # on first use: it takes a second to import

    return float(roc_auc_score(*_labels_and_ranks(score_in, score_out)))


def aupr(score_in: Any, score_out: Any) -> float:
    """Area under the precision-recall curve with OOD inputs as positives: average precision, without interpolation.

    A score without information has the share of OOD inputs, not 1/2.

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs; higher should mean OOD.

    Examples
    --------
    >>> aupr([0.1, 0.2, 0.3], [0.3, 0.9])
    0.8333333333333333
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_labels_and_ranks(score_in, score_out)))


def fpr_at(score_in: Any, score_out: Any, tpr: float = 0.8) -> float:
    """Share of in-distribution inputs flagged at the highest threshold that flags at least `tpr` of the OOD inputs.

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs; higher should mean OOD.
    tpr : float
        The share of OOD inputs to flag, in (0, 1].

    Examples
    --------
    >>> fpr_at([0.1, 0.2, 0.3, 0.4], [0.3, 0.9, 0.8], tpr=0.9)
    0.5
    """
    from sklearn.metrics import roc_curve

    check_number("tpr", tpr, "a number in (0, 1]", is_number(tpr) and 0.0 < tpr <= 1.0)
    fpr, reached, _ = roc_curve(*_labels_and_ranks(score_in, score_out), drop_intermediate=False)
    return float(fpr[np.argmax(reached >= tpr * (1 - _ROUNDING))])


def fpr80(score_in: Any, score_out: Any) -> float:
    """False positive rate at a true positive rate of 80% (Appendix B.2).

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs; higher should mean OOD.

    Examples
    --------
    >>> fpr80([0.1, 0.2, 0.3, 0.4], [0.3, 0.35, 0.9, 0.8, 0.7])
    0.25
    """
    return fpr_at(score_in, score_out, tpr=0.8)


def _labels_and_ranks(score_in: Any, score_out: Any) -> tuple[np.ndarray, np.ndarray]:
    """1 for OOD, and dense ranks of the scores, which scikit-learn takes for infinite scores too."""
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    ranks = np.unique(np.concatenate([inside, outside]), return_inverse=True)[1]
    return np.repeat([0, 1], [len(inside), len(outside)]), ranks


def checked_scores(**scores: Any) -> list[np.ndarray]:
    """Each of `scores` as a flat float64 array; raises an `InputError` if one is empty or holds NaN."""
    found = []
    for name, values in scores.items():
        try:
            plain = values.detach().cpu() if isinstance(values, Tensor) else values
            found.append(np.asarray(plain, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError):
            raise InputError(f"{name} must hold numbers, got {type(values).__name__}.") from None
        if not len(found[-1]):
            raise InputError(f"{name} must hold at least one score, got none.")
        if np.isnan(found[-1]).any():
            raise InputError(f"{name} must hold numbers, got nan at row {np.isnan(found[-1]).argmax()}.")
    return found
