"""`crps_scorer`: the CRPS as the argument `scoring` of scikit-learn's searches and cross-validation."""

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from ddpn.rows.checks import TableLike


class CRPSScorer(BaseEstimator):
    """A scorer for scikit-learn that returns minus the mean CRPS of a fitted estimator, so that larger is better.

    `ddpn.metrics.crps_scorer` is an instance. Pass it as `scoring` to searches and cross-validation. scikit-learn's
    default is the estimator's method `score`, which evaluates only predicted means, and so can hardly choose between
    likelihoods.

    Sample weights, exposures, bounds and censoring reach the scorer by scikit-learn's metadata routing. Request them
    for a new scorer, as in ``CRPSScorer().set_score_request(exposure=True)``, and for `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from ddpn import CountGLM
    >>> from ddpn.metrics import crps_scorer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(400, 1))
    >>> y = rng.negative_binomial(1, 1 / (1 + 5 * X[:, 0]))
    >>> grid = {"likelihood": ["poisson", "negative_binomial"]}
    >>> GridSearchCV(CountGLM(covariance="robust"), grid, scoring=crps_scorer).fit(X, y).best_params_
    {'likelihood': 'negative_binomial'}
    """

    #: The estimator is no metadata.
    __metadata_request__score = {"estimator": UNUSED}

    def score(
        self,
        estimator: BaseEstimator,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
    ) -> float:
        """Return minus the mean CRPS of an estimator on a test set. Calling the scorer does the same.

        Parameters
        ----------
        estimator : estimator or Pipeline
            A fitted estimator of ddpn, or a pipeline that ends with one.
        X : table
            The rows.
        y : array-like
            Their counts.
        sample_weight, exposure, upper, censored : array-like, optional
            One value per row, as for the method `crps` of the estimator.
        """
        if hasattr(estimator, "steps"):
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        return -estimator.crps(X, y, sample_weight, exposure, upper, censored)

    __call__ = score


crps_scorer = CRPSScorer()
