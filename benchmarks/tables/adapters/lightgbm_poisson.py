"""LightGBM with a Poisson loss: the mean of five seeds, as a Negative Binomial or, with `variance`, a Double Poisson.

The recipe: for each of two leaf counts, five folds with early stopping; the leaf count with the smaller out-of-fold
Poisson deviance is chosen; five boosters with different seeds are fitted to all rows, for the mean number of rounds of
the folds, and their means are averaged; one Negative Binomial dispersion is fitted by maximum likelihood to the
out-of-fold means. With `variance`, a second booster, fitted to the squared out-of-fold residuals divided by the mean,
predicts a variance per row, and the prediction is the Double Poisson with that mean and variance.
"""

from typing import Any

import lightgbm
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, xlogy

from .common import Columns, Job, main

FOLDS, SEEDS, LEAVES = 5, 5, (8, 31)
ROUNDS, PATIENCE = 2000, 50
#: The least mean, and the range of variance over mean.
TINY, DISPERSIONS = 1e-6, (0.02, 1000.0)
SETTINGS = {
    "objective": "poisson",
    "learning_rate": 0.05,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "verbosity": -1,
}


def split_folds(rows: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split row numbers into those to fit and those to predict, once per fold."""
    fold = np.random.default_rng(seed).permutation(rows) % FOLDS
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]


def deviance(y: np.ndarray, mean: np.ndarray) -> float:
    """Return the mean Poisson deviance."""
    return float(2.0 * (xlogy(y, y / mean) - y + mean).mean())


def predict_out_of_fold(X: np.ndarray, y: np.ndarray, categories: list[int], settings: dict) -> tuple[np.ndarray, int]:
    """Return out-of-fold means, and the mean number of rounds."""
    means, rounds = np.empty(len(y)), []
    for inner, outer in split_folds(len(y), settings["seed"]):
        train = lightgbm.Dataset(X[inner], y[inner], categorical_feature=categories, params={"verbosity": -1})
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        validation = lightgbm.Dataset(X[outer], y[outer], reference=train)
        booster = lightgbm.train(settings, train, ROUNDS, valid_sets=[validation], callbacks=[stop])
        means[outer] = booster.predict(X[outer], num_threads=settings["num_threads"])
        rounds.append(booster.best_iteration)
    return np.maximum(means, TINY), max(1, round(np.mean(rounds)))


def fit_boosters(X: np.ndarray, y: np.ndarray, categories: list[int], settings: dict) -> tuple[list, np.ndarray]:
    """Choose the leaf count, and fit boosters to all rows; return them and the out-of-fold means."""
    tried = []
    for leaves in LEAVES:
        mean, rounds = predict_out_of_fold(X, y, categories, settings | {"num_leaves": leaves})
        tried.append((deviance(y, mean), leaves, rounds, mean))
    _, leaves, rounds, mean = min(tried, key=lambda result: result[0])
    boosters = []
    for seed in range(SEEDS):
        data = lightgbm.Dataset(X, y, categorical_feature=categories, params={"verbosity": -1})
        options = settings | {"num_leaves": leaves, "seed": 1000 * settings["seed"] + seed}
        boosters.append(lightgbm.train(options, data, rounds))
    return boosters, mean


def fit_overdispersion(y: np.ndarray, mean: np.ndarray) -> float:
    """Fit the alpha of a Negative Binomial (variance = mean + alpha mean^2) by maximum likelihood."""

    def loss(log_alpha: float) -> float:
        size = np.exp(-log_alpha)
        log_p = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        log_p += -size * np.log1p(mean / size) + xlogy(y, mean / (size + mean))
        return float(-log_p.sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-12.0, 5.0), method="bounded").x))


def fit(job: Job) -> Any:
    X, y = job.train.codes(), job.counts
    categories = np.flatnonzero(job.train.is_category).tolist()
    settings = SETTINGS | {"seed": job.seed, "num_threads": job.threads}
    boosters, out_of_fold_means = fit_boosters(X, y, categories, settings)

    def average_boosters(columns: Columns, models: list) -> np.ndarray:
        codes = columns.codes()
        return np.mean([booster.predict(codes, num_threads=job.threads) for booster in models], axis=0)

    if not job.options.get("variance"):
        alpha = fit_overdispersion(y, out_of_fold_means)
        return lambda columns: {
            "family": "negative_binomial",
            "mean": np.maximum(average_boosters(columns, boosters), TINY),
            "alpha": np.full(len(columns), alpha),
        }
    spread, _ = fit_boosters(X, (y - out_of_fold_means) ** 2 / out_of_fold_means, categories, settings)

    def predict(columns: Columns) -> dict[str, Any]:
        mean = np.maximum(average_boosters(columns, boosters), TINY)
        return {
            "family": "double_poisson",
            "mean": mean,
            "gamma": 1.0 / average_boosters(columns, spread).clip(*DISPERSIONS),
        }

    return predict


if __name__ == "__main__":
    main(fit, ("lightgbm",))
