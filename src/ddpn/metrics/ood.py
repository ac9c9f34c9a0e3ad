"""Out-of-distribution (OOD) scores of predictions, and measures of how well a score separates OOD rows from others."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from ddpn.distributions import Mixture, Recalibrated
from ddpn.metrics.predictive import Predicted, Supported, require_supported
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice

#: Relative tolerance of shares, because 0.29 * 100 is not exactly 29 in floating point.
_ROUNDING = 1e-12


def _require_ensemble(dist: Predicted, kind: str) -> Mixture:
    """Return `dist` unchanged if it is a mixture of at least two components; raise an `InputError` otherwise.

    The message names `kind`, the OOD score that needs several components.
    """
    if isinstance(dist, Mixture) and dist.size > 1:
        return dist
    got = "a single component" if isinstance(dist, Mixture) else f"a single {type(dist).__name__}"
    remedy = "Use kind='variance' or kind='entropy', or train more networks."
    must = f"be a mixture of at least 2 components for kind={kind!r}"
    raise InputError(argument="dist", must=must, got=got, remedy=remedy)


#: Name -> function (dist) -> one value per row.
_SCORES: dict[str, Callable[[Supported], Tensor]] = {
    "variance": lambda dist: dist.variance,
    "epistemic": lambda dist: _require_ensemble(dist, "epistemic").epistemic,
    "entropy": lambda dist: dist.entropy(),
    "mutual_information": lambda dist: _require_ensemble(dist, "mutual_information").mutual_information,
}


def ood_score(dist: Predicted, kind: str = "variance") -> Tensor:
    """Score how unusual each row is for the model; higher scores are further out of distribution (OOD).

    If distributions are recalibrated, the scores are those before recalibration.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row. "epistemic" and "mutual_information" need a `Mixture`.
    kind : {"variance", "epistemic", "entropy", "mutual_information"}
        "variance" is the total variance (the paper's score, Section 4.4). "epistemic" is the variance of the
        components' means. "entropy" is the entropy of the whole distribution, and "mutual_information" the part of it
        that comes from the disagreement of components, both in nats.

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> ood_score(Mixture(Poisson(torch.tensor([[4.0, 4.0], [2.0, 6.0]]))), "epistemic")
    tensor([0., 4.])
    """
    score = _SCORES[check_choice("kind", kind, _SCORES)]
    return score(dist.base if isinstance(dist, Recalibrated) else require_supported(dist))


# Detection -------------------------------------------------------------------------------------------------------


def auroc(score_in: ArrayLike, score_out: ArrayLike) -> float:
    """Compute the area under the ROC curve for detecting OOD inputs by a score (Appendix B.2 of the paper).

    It is the probability that a random OOD input has a higher score than a random in-distribution input. Ties count as
    1/2.

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


def aupr(score_in: ArrayLike, score_out: ArrayLike) -> float:
    """Compute the area under the precision-recall curve for detecting OOD inputs by a score (average precision).

    For an uninformative score, the area is the share of OOD inputs, not 1/2.

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


def fpr80(score_in: ArrayLike, score_out: ArrayLike) -> float:
    """Compute the false positive rate of a score at a true positive rate of 80% (Appendix B.2 of the paper).

    Inputs are flagged as OOD if their score reaches a threshold. The threshold is the highest one at which at least 80%
    of the OOD inputs are flagged. The result is the share of in-distribution inputs that are flagged as well.

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs; higher should mean OOD.

    Examples
    --------
    >>> fpr80([0.1, 0.2, 0.3, 0.4], [0.3, 0.35, 0.9, 0.8, 0.7])
    0.25
    """
    from sklearn.metrics import roc_curve

    fpr, reached, _ = roc_curve(*_labels_and_ranks(score_in, score_out), drop_intermediate=False)
    return float(fpr[np.argmax(reached >= 0.8 * (1 - _ROUNDING))])


def _labels_and_ranks(score_in: ArrayLike, score_out: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (1 for OOD inputs, else 0) and ranks of the scores, the inputs of scikit-learn's metrics.

    The scores of all in-distribution inputs come first. Equal scores have equal ranks. Ranks replace scores because
    scikit-learn does not accept infinite scores.
    """
    inside, outside = validate_scores(score_in=score_in, score_out=score_out)
    ranks = np.unique(np.concatenate([inside, outside]), return_inverse=True)[1]
    return np.repeat([0, 1], [len(inside), len(outside)]), ranks


def validate_scores(**scores: Any) -> list[np.ndarray]:
    """Convert each array of scores to a flat float64 array.

    Raise an `InputError` if an array is empty or has NaN. The keywords name the arguments in its message.
    """
    arrays = []
    for name, values in scores.items():
        try:
            plain = values.detach().cpu() if isinstance(values, Tensor) else values
            arrays.append(np.asarray(plain, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError):
            raise InputError(argument=name, must="hold numbers", got=type(values).__name__) from None
        if not len(arrays[-1]):
            raise InputError(argument=name, must="hold at least one score", got="none")
        if np.isnan(arrays[-1]).any():
            rows = [int(np.isnan(arrays[-1]).argmax())]
            raise InputError(argument=name, must="hold numbers", got="nan", rows=rows)
    return arrays
