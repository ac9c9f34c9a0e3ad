"""A Poisson or Negative Binomial (NB2) GLM by statsmodels, on standardised columns with indicators.

The Negative Binomial alternates between the coefficients and the dispersion, each by maximum likelihood, as glm.nb in R
does. Means are at most ten times the largest training count.
"""

from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy.linalg import qr
from scipy.optimize import minimize_scalar

from .common import Columns, Design, Job, main

STEPS, TOLERANCE = 25, 1e-4


def fit_negative_binomial(y: np.ndarray, X: np.ndarray) -> tuple[Any, float]:
    """Fit coefficients and dispersion in turn; return the model and its alpha."""
    fitted, alpha = sm.GLM(y, X, sm.families.Poisson()).fit(), None
    for _ in range(STEPS):
        mean = np.maximum(fitted.mu, 1e-9)

        def loss(log_alpha: float, mean: np.ndarray = mean) -> float:
            return -float(sm.families.NegativeBinomial(alpha=np.exp(log_alpha)).loglike(y, mean))

        new_alpha = float(np.exp(minimize_scalar(loss, bounds=(-12.0, 5.0), method="bounded").x))
        fitted = sm.GLM(y, X, sm.families.NegativeBinomial(alpha=new_alpha)).fit(start_params=fitted.params)
        if alpha is not None and abs(new_alpha - alpha) < TOLERANCE * (1.0 + alpha):
            break
        alpha = new_alpha
    return fitted, new_alpha


def find_independent_columns(X: np.ndarray) -> np.ndarray:
    """Return the columns of X that are no linear combination of others, as R's glm does.

    With dependent columns the search may diverge.
    """
    _, triangle, order = qr(X, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(order[: int((size > 1e-7 * size[0]).sum())])


def fit(job: Job) -> Any:
    design, max_mean = Design(job.train), 10.0 * job.counts.max()
    X = sm.add_constant(design(job.train), has_constant="add")
    kept = find_independent_columns(X)
    X = X[:, kept]
    if job.options["family"] == "poisson":
        fitted, alpha = sm.GLM(job.counts, X, sm.families.Poisson()).fit(), None
    else:
        fitted, alpha = fit_negative_binomial(job.counts, X)

    def predict(columns: Columns) -> dict[str, Any]:
        linear = sm.add_constant(design(columns), has_constant="add")[:, kept] @ fitted.params
        prediction = {"family": job.options["family"], "mean": np.exp(np.clip(linear, -20.0, np.log(max_mean)))}
        return prediction if alpha is None else prediction | {"alpha": np.full(len(columns), alpha)}

    return predict


if __name__ == "__main__":
    main(fit, ("statsmodels",))
