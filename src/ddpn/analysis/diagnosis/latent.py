"""Out-of-fold locations of counts with known bounds or limits: a GLM and boosted trees of the reference distribution.

The reference has the canonical link: the location is exposure * exp(eta) of a Poisson, n / (1 + exp(-eta)) of a
Binomial. Then the score of eta is E[Z | what was recorded] - E[Z], whatever the truncation and censoring.
"""

from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from ddpn.analysis.diagnosis.means import ALPHA, FOLDS, MAX_COLUMNS, Codes, Means, Step, codes, emphasis
from ddpn.analysis.diagnosis.recorded import Limits
from ddpn.members.reader import TableReader
from ddpn.runtime.threads import tree_threads_for
from ddpn.sample import Sample
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.splits import fold_pairs

#: Steps of Fisher scoring, of which the first compute its matrix, and the change of eta at which they end.
_STEPS, _MATRICES, _CHANGE = 60, 6, 1e-4
#: Rounds of boosting, each to the working response of the one before, and the trees of a round at most.
_ROUNDS, _TREES = 3, 100
#: The range of eta around that of a constant.
_REACH = 12.0
#: The smallest location, as a share of the overall mean, and the largest as a share of the upper bound.
_SMALLEST, _LARGEST = 1e-4, 1.0 - 1e-6


class _Rows(NamedTuple):
    """Recorded counts, what is known about them, and folds (rows to fit, rows to predict)."""

    y: np.ndarray
    weight: np.ndarray
    exposure: np.ndarray
    limits: Limits
    folds: list[tuple[np.ndarray, np.ndarray]]
    seed: int

    @classmethod
    def of(cls, sample: Sample, limits: Limits, seed: int) -> "_Rows":
        exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure / sample.exposure.mean()
        folds = fold_pairs(len(sample), FOLDS, seed, sample.group)
        weight = sample.weight_or_ones
        return cls(sample.y, weight / weight.mean(), exposure, limits, folds, seed)

    def part(self, index: np.ndarray) -> "_Rows":
        y, weight, exposure = (values[index] for values in (self.y, self.weight, self.exposure))
        return _Rows(y, weight, exposure, self.limits.rows(index), [], self.seed)

    def location(self, eta: np.ndarray) -> np.ndarray:
        upper = self.limits.upper
        if self.limits.is_bounded:
            return np.asarray(upper * np.clip(1.0 / (1.0 + np.exp(-eta)), _SMALLEST, _LARGEST))
        return np.asarray(np.maximum(self.exposure * np.exp(eta), _SMALLEST * self.y.mean()))

    def emphasis(self, location: np.ndarray) -> np.ndarray:
        """Weights of rows in an estimate of dispersion."""
        return emphasis(self.limits.variance(location), self.weight) * self.limits.dispersed()

    def score(self, location: np.ndarray) -> np.ndarray:
        """Of eta, per row."""
        return self.limits.known(self.y, location).mean - self.limits.expected(location).mean

    def information(self, location: np.ndarray) -> np.ndarray:
        """Of eta, observed, per row: that of complete counts less that of what is missing (Louis 1982)."""
        missing = self.limits.known(self.y, location).variance * self.limits.is_censored(self.y)
        complete = self.limits.expected(location).variance
        return np.maximum(complete - missing, 0.02 * complete)

    def deviance(self, location: np.ndarray) -> float:
        """Mean deviance, against locations that are the recorded counts."""
        best = np.maximum(self.y, 1e-6)
        best = np.minimum(best, self.limits.upper * _LARGEST) if self.limits.is_bounded else best
        exact = np.where(self.limits.is_censored(self.y), 0.0, self.limits.log_likelihood(self.y, best))
        gap = np.maximum(exact, self.limits.log_likelihood(self.y, location))
        return float(np.average(2.0 * (gap - self.limits.log_likelihood(self.y, location)), weights=self.weight))


def latent_means(sample: Sample, limits: Limits, kind: str, seed: int, step: Step) -> Means:
    """The out-of-fold locations of the chosen model, or of the best one."""
    rows = _Rows.of(sample, limits, seed)
    constant = _linear(rows, np.empty((len(rows.y), 0)), "constant", None)
    if kind == "constant":
        return constant
    candidates = [constant]
    step("Fitting a GLM")
    inputs = FeatureEncoder().fit(sample.X, sample.y, sample.weight).transform(sample.X).astype(np.float64)
    if inputs.shape[1] <= MAX_COLUMNS:
        candidates.append(_linear(rows, inputs, "glm", constant.deviance))
    if kind == "glm":
        return candidates[-1]
    base = min(candidates, key=lambda each: each.deviance)
    boosted = _boosted(rows, codes(TableReader().fit(sample.X)), base, constant.deviance, step)
    return boosted if kind == "boosting" else min(*candidates, boosted, key=lambda each: each.deviance)


def _means(rows: _Rows, name: str, location: np.ndarray, noise: tuple[float, float], constant: float | None) -> Means:
    deviance = rows.deviance(location)
    explained = max(0.0, 1.0 - deviance / constant) if constant else 0.0
    return Means(name, location, deviance, *noise, explained)


# A GLM ---------------------------------------------------------------------------------------------------------------


def _linear(rows: _Rows, inputs: np.ndarray, name: str, constant: float | None) -> Means:
    x = np.column_stack([np.ones(len(inputs)), inputs])
    location, noise = np.empty_like(rows.y), np.empty_like(rows.y)
    for inner, outer in rows.folds:
        beta, covariance = _fisher_scoring(rows.part(inner), x[inner])
        eta = x @ beta
        location[outer] = rows.location(np.clip(eta, eta[inner].min(), eta[inner].max()))[outer]
        variance = np.einsum("ij,jk,ik->i", x[outer], covariance, x[outer])
        noise[outer] = rows.limits.rows(outer).variance(location[outer]) * variance
    average = float(np.average(noise, weights=rows.emphasis(location)))
    return _means(rows, name, location, (average, average), constant)


def _fisher_scoring(rows: _Rows, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients with the largest penalised likelihood, and their covariance by the sandwich formula for weights."""
    start = np.average(np.clip(rows.y / rows.exposure, 1e-3, None), weights=rows.weight * rows.exposure)
    if rows.limits.is_bounded:
        share = np.clip(np.average(rows.y, weights=rows.weight) / np.average(rows.limits.upper, weights=rows.weight),
                        1e-3, 1.0 - 1e-3)  # fmt: skip
        start = share / (1.0 - share)
    beta = np.zeros(x.shape[1])
    beta[0] = np.log(start)
    penalty = np.diag([0.0, *np.full(x.shape[1] - 1, ALPHA * rows.weight.sum())])
    middle, bread = beta[0], np.empty(0)
    for number in range(_STEPS):
        location = rows.location(np.clip(x @ beta, middle - _REACH, middle + _REACH))
        if number < _MATRICES:
            # The information of complete counts is never too small, so no step is too long.
            complete = rows.limits.expected(location).variance
            bread = np.linalg.pinv((x * (rows.weight * complete)[:, None]).T @ x + penalty, hermitian=True)
        change = bread @ (x.T @ (rows.weight * rows.score(location)) - penalty @ beta)
        beta = beta + change
        if np.abs(x @ change).max() < _CHANGE:
            break
    information = rows.information(rows.location(np.clip(x @ beta, middle - _REACH, middle + _REACH)))
    bread = np.linalg.pinv((x * (rows.weight * information)[:, None]).T @ x + penalty, hermitian=True)
    return beta, bread @ ((x * (rows.weight**2 * information)[:, None]).T @ x) @ bread


# Boosted trees -------------------------------------------------------------------------------------------------------


def _boosted(rows: _Rows, table: Codes, base: Means, constant: float, step: Step) -> Means:
    """Trees that add to eta of the out-of-fold `base`; one parametric bootstrap measures their noise."""
    step("Fitting boosted trees")
    location = _cross_boosted(rows, table, base.mean, rows.folds)
    step("Measuring the noise of the mean")
    rng = np.random.default_rng(rows.seed)
    drawn = rows.limits.draw(location, rows.limits.all_limits(rows.y, rng), rng)
    noise = 0.0
    if np.ptp(drawn):
        folds = rows.folds[:2]
        again = _cross_boosted(rows._replace(y=drawn), table, base.mean, folds)
        some = np.concatenate([outer for _, outer in folds])
        errors = ((again - location) ** 2 / rows.limits.variance(again))[some]
        noise = float(np.average(errors, weights=rows.emphasis(location)[some]))
    # As for counts without bounds: the squared error of the mean is up to twice what the bootstrap finds.
    return _means(rows, "boosting", location, (noise, 2.0 * noise), constant)


def _cross_boosted(
    rows: _Rows, table: Codes, base: np.ndarray, folds: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    matrix, is_category = table
    upper = rows.limits.upper
    eta = np.log(base) - (np.log(upper - base) if rows.limits.is_bounded else np.log(rows.exposure))
    location = base.copy()
    for number, (inner, outer) in enumerate(folds):
        part, own = rows.part(inner), eta[inner].copy()
        others = eta[outer].copy()
        for turn in range(_ROUNDS):
            now = part.location(own)
            weight = part.weight * np.maximum(part.limits.expected(now).variance, 1e-9)
            trees = HistGradientBoostingRegressor(
                categorical_features=is_category, max_leaf_nodes=8, learning_rate=0.1, max_iter=_TREES,
                early_stopping=len(inner) >= 200, n_iter_no_change=10,
                max_features=min(1.0, 500 / matrix.shape[1]), random_state=rows.seed + 10 * turn + number,
            )  # fmt: skip
            if len(inner) < 200:
                trees.set_params(max_iter=10)
            with tree_threads_for(matrix.size):
                trees.fit(matrix[inner], part.weight * part.score(now) / weight, sample_weight=weight)
                own = own + np.clip(trees.predict(matrix[inner]), -1.0, 1.0)
                others = others + np.clip(trees.predict(matrix[outer]), -1.0, 1.0)
        location[outer] = rows.part(outer).location(others)
    return location
