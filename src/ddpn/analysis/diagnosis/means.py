"""Conditional means of the counts given the features, predicted out of fold.

If a model predicted the rows that it was fitted to, its means would be too close to the counts and hide dispersion.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ddpn.members.folds import Folds
from ddpn.members.glm import GLM
from ddpn.members.member import MemberSpec, NotApplicableError
from ddpn.members.trees.boosting import Fold, Settings, TreeRows, choose_fold_columns
from ddpn.members.trees.mean import MeanFit
from ddpn.members.trees.table import TreeTable
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, assign_folds, list_fold_pairs
from ddpn.runtime.threads import limit_tree_threads
from ddpn.statistics import poisson_deviance

#: Mean models and their labels. "auto" chooses the one with the smallest out-of-fold deviance.
LABELS = {"constant": "constant mean", "glm": "Poisson GLM", "boosting": "Poisson GLM with boosted trees on top"}
MEAN_MODELS = ("auto", *LABELS)
#: Small trees on top of a GLM. Among several settings, these had the smallest or nearly the smallest error of the mean
#: on simulated Poisson counts with linear, smooth and stepped means.
_TREES = Settings(leaves=8, learning_rate=0.1, rounds=400, patience=10)
#: The number of folds that are fitted again to measure the noise of means. Two are enough.
_NOISE_FOLDS = 2
#: The smallest mean, as a share of the overall rate.
_MIN_RATE_SHARE = 1e-4

Progress = Callable[[str], object]


class OutOfFoldMeans(NamedTuple):
    """Predictions of a mean model that is fitted once per fold, each time without the rows of this fold.

    Attributes
    ----------
    mean : array, shape (rows,)
        The prediction of each row by the fit without its fold. NaN for rows of folds for which no model was fitted.
    average : array, shape (rows,)
        The average of the predictions of each row by all fits. For boosted trees, these are the out-of-fold predictions
        instead.
    """

    mean: np.ndarray
    average: np.ndarray


#: A function that fits a mean model: (rows, number of folds to fit) -> out-of-fold means.
MeanModel = Callable[[CountRows, int], OutOfFoldMeans]


class Means(NamedTuple):
    """Out-of-fold means of the chosen mean model, and estimates of their error.

    Attributes
    ----------
    name : str
        The name of the mean model.
    mean : array, shape (rows,)
        The out-of-fold mean of each row.
    noise : float
        The estimated average of (predicted mean - true mean)^2 / predicted mean over the rows, weighted by
        `dispersion_weights`. Estimates of variance / mean are too large by this amount.
    max_noise : float
        An upper estimate of `noise`. It allows for true means that vary less smoothly with the features than the
        predicted ones.
    explained : float
        The share of the deviance of a constant mean that the model explains out of fold.
    """

    name: str
    mean: np.ndarray
    noise: float
    max_noise: float
    explained: float


def dispersion_weights(sample: CountRows, mean: np.ndarray) -> np.ndarray:
    """Return the weights of rows in estimates of the dispersion: the sample weight, times the mean if it is below 1.

    Rows with a mean below 1 contain little information about the dispersion.
    """
    return np.asarray(sample.weight_or_ones * np.minimum(mean, 1.0))


def predict_out_of_fold_means(sample: CountRows, mean_model: str, seed: int, progress: Progress) -> Means:
    """Predict the mean of every row by a model that was fitted to other folds, and estimate the error of these means.

    `mean_model` is one of `MEAN_MODELS`; "auto" takes the model with the smallest out-of-fold deviance. If the table
    has too many columns for a GLM, "glm" uses a constant mean, and "auto" and "boosting" do without the GLM. `seed`
    determines the folds and the trees. `progress` is called with the name of each step.
    """
    fold_numbers = assign_folds(len(sample), FOLDS, seed, sample.group)
    n_folds, models = int(fold_numbers.max()) + 1, dict[str, MeanModel]()
    predictions, deviance = dict[str, OutOfFoldMeans](), dict[str, float]()

    def add(name: str, model: MeanModel) -> None:
        models[name], predictions[name] = model, model(sample, n_folds)
        deviance[name] = float(np.average(poisson_deviance(sample.y, predictions[name].mean), weights=sample.weight))

    def best() -> str:
        return min(deviance, key=lambda name: deviance[name])

    add(
        "constant",
        lambda rows, n_fits: _combine_folds(
            rows, fold_numbers, [_predict_rate(rows, fold_numbers != k) for k in range(n_fits)]
        ),
    )
    if mean_model != "constant":
        progress("Fitting a Poisson GLM")
        try:
            add("glm", lambda rows, n_fits: _fit_glm(rows, fold_numbers, seed, n_fits))
        except NotApplicableError:
            models.pop("glm")
    if mean_model in ("auto", "boosting"):
        progress("Fitting boosted trees")
        start_means = predictions[best()].mean
        add("boosting", lambda rows, n_fits: _fit_boosting(rows, start_means, fold_numbers, seed, n_fits))
    chosen = best() if mean_model == "auto" else mean_model if mean_model in predictions else "constant"
    progress("Measuring the noise of the mean")
    noise = _measure_noise(sample, models[chosen], predictions[chosen].average, min(n_folds, _NOISE_FOLDS), seed)
    # In simulations, the squared error of boosted means was up to twice the bootstrap estimate, whose means are
    # smoother.
    max_noise = 2.0 * noise if chosen == "boosting" else noise
    explained = 0.0 if chosen == "constant" else max(0.0, 1.0 - deviance[chosen] / deviance["constant"])
    return Means(chosen, predictions[chosen].mean, noise, max_noise, explained)


def _measure_noise(sample: CountRows, model: MeanModel, mean: np.ndarray, n_folds: int, seed: int) -> float:
    """Estimate the average of (predicted mean - true mean)^2 / predicted mean of a model, by a parametric bootstrap.

    Poisson counts with the means `mean`, shape (rows,), are drawn with `seed` for the rows of `sample`. The model is
    fitted to these counts, and its out-of-fold predictions are compared with `mean`. To save time, only the first
    `n_folds` folds are predicted, and the average is over their rows. It is weighted by `dispersion_weights`. If all
    drawn counts are equal, 0 is returned.
    """
    drawn = sample.replace(y=np.random.default_rng(seed).poisson(mean).astype(float))
    if not np.ptp(drawn.y):
        return 0.0
    again = model(drawn, n_folds).mean
    fitted = ~np.isnan(again)
    errors = (np.square(again - mean) / again)[fitted]
    return float(np.average(errors, weights=dispersion_weights(sample, mean)[fitted]))


def _clip_means(sample: CountRows, mean: np.ndarray) -> np.ndarray:
    """Raise means to at least 0.01% of the means at a constant rate, because a mean of 0 can have infinite deviance.

    `mean` has the mean of each row. The constant rate is the total count of the sample per unit of exposure.
    """
    return np.maximum(mean, _MIN_RATE_SHARE * _predict_rate(sample, np.ones(len(mean))))


def _combine_folds(
    sample: CountRows, fold_numbers: np.ndarray, fold_predictions: Sequence[np.ndarray]
) -> OutOfFoldMeans:
    """Combine the predictions of several fits, each of which left out one fold.

    `sample` has the rows, and `fold_numbers` the fold of each row. `fold_predictions[k]` has the predictions of all
    rows by the fit without fold k. If there are fewer of them than folds, `OutOfFoldMeans.mean` is NaN for the rows of
    the folds without one.
    """
    mean, clipped = np.full(len(fold_numbers), np.nan), [_clip_means(sample, fit) for fit in fold_predictions]
    for fold, fold_mean in enumerate(clipped):
        mean[fold_numbers == fold] = fold_mean[fold_numbers == fold]
    return OutOfFoldMeans(mean, np.mean(clipped, axis=0))


def _predict_rate(sample: CountRows, is_training_row: np.ndarray) -> np.ndarray:
    """Return the mean of every row at a constant rate: the rate of the training rows times the row's exposure.

    The rate is the total count of the training rows per unit of exposure. Without exposures, it is their mean count.
    `is_training_row` is a mask of the rows.
    """
    weight = sample.weight_or_ones * is_training_row
    exposure = sample.exposure_or_ones
    return (weight @ sample.y) / (weight @ exposure) * exposure


@torch.no_grad()
def _fit_glm(sample: CountRows, fold_numbers: np.ndarray, seed: int, n_folds: int) -> OutOfFoldMeans:
    """Predict means out of fold by a Poisson GLM.

    `fold_numbers` has the fold of each row. Only the first `n_folds` folds are predicted, each by a GLM fitted to all
    other folds. For all other rows, `OutOfFoldMeans.mean` is NaN.
    """
    rows, spec = Folds(sample, None, fold_numbers), MemberSpec("glm", GLM, {"head": make_head("poisson")})
    copies = (rows.fit_copy(spec, fold, seed) for fold in range(n_folds))
    fits = [copy.distribution(sample.X, sample.exposure).mean[:, 0].numpy() for copy in copies]
    return _combine_folds(sample, fold_numbers, fits)


def _fit_boosting(
    sample: CountRows, start_means: np.ndarray, fold_numbers: np.ndarray, seed: int, n_folds: int
) -> OutOfFoldMeans:
    """Predict means out of fold by boosted trees that correct the out-of-fold means of another model.

    `start_means` has the mean of each row by the other model, shape (rows,). The trees predict the factor by which it
    is multiplied. `fold_numbers` has the fold of each row. Only the first `n_folds` folds are predicted, each by trees
    fitted to all other folds. For all other rows, `OutOfFoldMeans.mean` is NaN.
    """
    table, matrix = TreeTable.fit(sample.X)
    weight, rate = sample.weight_or_ones * start_means, sample.y / start_means
    parts = [Fold(inner, outer) for inner, outer in list_fold_pairs(fold_numbers)]
    with limit_tree_threads(matrix.size):
        rows = TreeRows(matrix, table.is_category, rate, weight, choose_fold_columns(parts, matrix, rate, weight))
        fit = MeanFit(rows, _TREES._replace(seed=seed))
        fit.run(n_folds)
    mean = _clip_means(sample, start_means * np.exp(np.nan_to_num(fit.out_of_fold)))
    return OutOfFoldMeans(np.where(fold_numbers < n_folds, mean, np.nan), mean)
