"""Out-of-fold conditional means: what the features explain, without the optimism of predicting the fitted rows."""

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
from ddpn.runtime.threads import tree_threads_for
from ddpn.statistics import poisson_deviance

#: Mean models and their labels. "auto" chooses the one with the smallest out-of-fold deviance.
LABELS = {"constant": "constant mean", "glm": "Poisson GLM", "boosting": "Poisson GLM with boosted trees on top"}
MEAN_MODELS = ("auto", *LABELS)
#: Small trees on top of a GLM. Among several settings, these had the smallest or nearly the smallest error of the mean
#: on simulated Poisson counts with linear, smooth and stepped means.
_TREES = Settings(leaves=8, rate=0.1, rounds=400, patience=10)
#: The number of folds that are fitted again to measure the noise of means. Two are enough.
_NOISE_FOLDS = 2
#: The smallest mean, as a share of the overall rate.
_MIN_RATE_SHARE = 1e-4

Step = Callable[[str], object]


class OutOfFold(NamedTuple):
    """What a mean model predicts: `mean` out of fold (NaN for folds that were not fitted), `typical` by all fits.

    `typical` is the average of the predictions of all fits for the same row.
    """

    mean: np.ndarray
    typical: np.ndarray


#: A function that fits a mean model: (rows, number of folds to fit) -> out-of-fold means.
Model = Callable[[CountRows, int], OutOfFold]


class Means(NamedTuple):
    """Out-of-fold means, and how far they are from the true conditional means.

    `noise` is the mean of (estimate - mean)^2 / mean that arises when the model is fitted to Poisson counts with these
    means; it increases every estimate of dispersion. `most_noise` is an upper estimate, in case the true mean is
    rougher than its estimate. Averages over rows use the weights of `emphasis`. `explained` is the share of the
    deviance of a constant mean that the model explains.
    """

    name: str
    mean: np.ndarray
    noise: float
    most_noise: float
    explained: float


def emphasis(sample: CountRows, mean: np.ndarray) -> np.ndarray:
    """Return the weights of rows for estimates of dispersion. Rows with a mean below 1 contain little information."""
    return np.asarray(sample.weight_or_ones * np.minimum(mean, 1.0))


def out_of_fold_means(sample: CountRows, kind: str, seed: int, step: Step) -> Means:
    """Predict the mean of every row by a model that was fitted to other rows, and measure the noise of these means.

    `kind` is one of `MEAN_MODELS`. `seed` determines folds and trees, and `step` is called with the name of each step.
    If the table is too wide for a GLM, none is fitted.
    """
    number = assign_folds(len(sample), FOLDS, seed, sample.group)
    folds, models = int(number.max()) + 1, dict[str, Model]()
    predictions, deviance = dict[str, OutOfFold](), dict[str, float]()

    def add(name: str, model: Model) -> None:
        models[name], predictions[name] = model, model(sample, folds)
        deviance[name] = float(np.average(poisson_deviance(sample.y, predictions[name].mean), weights=sample.weight))

    def best() -> str:
        return min(deviance, key=lambda name: deviance[name])

    add(
        "constant",
        lambda rows, some: _combine_folds(rows, number, [_predict_rate(rows, number != k) for k in range(some)]),
    )
    if kind != "constant":
        step("Fitting a Poisson GLM")
        try:
            add("glm", lambda rows, some: _fit_glm(rows, number, seed, some))
        except NotApplicableError:
            models.pop("glm")
    if kind in ("auto", "boosting"):
        step("Fitting boosted trees")
        base = predictions[best()].mean
        add("boosting", lambda rows, some: _fit_boosting(rows, base, number, seed, some))
    chosen = best() if kind == "auto" else kind if kind in predictions else "constant"
    step("Measuring the noise of the mean")
    noise = _measure_noise(sample, models[chosen], predictions[chosen].typical, min(folds, _NOISE_FOLDS), seed)
    # In simulations, the squared error of boosted means was up to twice the bootstrap estimate, whose means are
    # smoother.
    most_noise = 2.0 * noise if chosen == "boosting" else noise
    explained = 0.0 if chosen == "constant" else max(0.0, 1.0 - deviance[chosen] / deviance["constant"])
    return Means(chosen, predictions[chosen].mean, noise, most_noise, explained)


def _measure_noise(sample: CountRows, model: Model, mean: np.ndarray, folds: int, seed: int) -> float:
    """Measure the error of a mean model, as in `Means.noise`: fit it to Poisson counts with known means.

    The counts are drawn with the means `mean` (parametric bootstrap). Only the first `folds` folds are fitted.
    """
    drawn = sample.replace(y=np.random.default_rng(seed).poisson(mean).astype(float))
    if not np.ptp(drawn.y):
        return 0.0
    again = model(drawn, folds).mean
    fitted = ~np.isnan(again)
    errors = (np.square(again - mean) / again)[fitted]
    return float(np.average(errors, weights=emphasis(sample, mean)[fitted]))


def _clip_means(sample: CountRows, mean: np.ndarray) -> np.ndarray:
    """Raise means below 0.01% of the overall rate to this value, because the deviance of a mean of 0 is infinite."""
    return np.maximum(mean, _MIN_RATE_SHARE * _predict_rate(sample, np.ones(len(mean))))


def _combine_folds(sample: CountRows, number: np.ndarray, fits: Sequence[np.ndarray]) -> OutOfFold:
    """Combine the predictions of all rows by fits that left out one fold each.

    `fits` are in the order of the folds, and `number` has the fold of each row.
    """
    mean, clipped = np.full(len(number), np.nan), [_clip_means(sample, fit) for fit in fits]
    for fold, fold_mean in enumerate(clipped):
        mean[number == fold] = fold_mean[number == fold]
    return OutOfFold(mean, np.mean(clipped, axis=0))


def _predict_rate(sample: CountRows, used: np.ndarray) -> np.ndarray:
    """Predict every row by one rate per unit of exposure, estimated on the rows `used`."""
    weight = sample.weight_or_ones * used
    scale = np.ones(len(sample)) if sample.exposure is None else np.asarray(sample.exposure)
    return (weight @ sample.y) / (weight @ scale) * scale


@torch.no_grad()
def _fit_glm(sample: CountRows, number: np.ndarray, seed: int, folds: int) -> OutOfFold:
    """Fit a Poisson GLM without each of the first `folds` folds; `number` has the fold of each row."""
    rows, spec = Folds(sample, None, number), MemberSpec("glm", GLM, {"head": make_head("poisson")})
    copies = (rows.fit_copy(spec, fold, seed) for fold in range(folds))
    fits = [copy.distribution(sample.X, sample.exposure).mean[:, 0].numpy() for copy in copies]
    return _combine_folds(sample, number, fits)


def _fit_boosting(sample: CountRows, base: np.ndarray, number: np.ndarray, seed: int, folds: int) -> OutOfFold:
    """Fit boosted trees, which multiply the means `base`, without each of the first `folds` folds.

    `base` are out-of-fold means of another model, and `number` has the fold of each row.
    """
    table, matrix = TreeTable.fit(sample.X)
    weight, rate = sample.weight_or_ones * base, sample.y / base
    parts = [Fold(inner, outer) for inner, outer in list_fold_pairs(number)]
    with tree_threads_for(matrix.size):
        rows = TreeRows(matrix, table.is_category, rate, weight, choose_fold_columns(parts, matrix, rate, weight))
        fit = MeanFit(rows, _TREES._replace(seed=seed))
        fit.run(folds)
    mean = _clip_means(sample, base * np.exp(np.nan_to_num(fit.out_of_fold)))
    return OutOfFold(np.where(number < folds, mean, np.nan), mean)
