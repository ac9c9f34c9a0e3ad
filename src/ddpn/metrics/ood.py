"""Out-of-distribution (OOD) scores of predictions, and measures of how well a score separates OOD inputs."""

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


def _ensemble(dist: Predicted, kind: str) -> Mixture:
    """Return `dist` if it is a mixture of at least two components; raise an `InputError` for anything else.

    `kind` is the score that needs the components, for the message.
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
    "epistemic": lambda dist: _ensemble(dist, "epistemic").epistemic,
    "entropy": lambda dist: dist.entropy(),
    "mutual_information": lambda dist: _ensemble(dist, "mutual_information").mutual_information,
}


def ood_score(dist: Predicted, kind: str = "variance") -> Tensor:
    """Score how unfamiliar each row is: higher scores are further out of distribution (OOD).

    A recalibrated distribution has the scores of its base.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row. "epistemic" and "mutual_information" need a `Mixture`.
    kind : {"variance", "epistemic", "entropy", "mutual_information"}
        "variance" is the total variance (the paper's score, Section 4.4), and "epistemic" the variance of the
        components' means. "entropy" (total) and "mutual_information" (disagreement of components) are the
        corresponding scores in nats.

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
    """Compute the area under the ROC curve: P(OOD score > in-distribution score) + P(equal) / 2 (Appendix B.2).

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
    """Compute the area under the precision-recall curve of OOD inputs (average precision, without interpolation).

    An uninformative score has an area equal to the share of OOD inputs, not 1/2.

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
    """Compute the false positive rate at a true positive rate of 80% (Appendix B.2).

    It is the share of in-distribution inputs at or above the highest threshold that at least 80% of the OOD inputs
    reach.

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
    """Return a label (1 for OOD, else 0) and the dense rank of each score, for the metrics of scikit-learn.

    scikit-learn accepts ranks, but no infinite scores.
    """
    inside, outside = validate_scores(score_in=score_in, score_out=score_out)
    ranks = np.unique(np.concatenate([inside, outside]), return_inverse=True)[1]
    return np.repeat([0, 1], [len(inside), len(outside)]), ranks


def validate_scores(**scores: Any) -> list[np.ndarray]:
    """Convert arrays of scores, keyed by argument name, to flat float64 arrays.

    Raise an `InputError` if an array is empty or holds NaN.
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
