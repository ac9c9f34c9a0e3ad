"""Out-of-fold conditional means: what the features explain, without the optimism of a fit to the same rows."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ddpn.analysis.diagnosis.reference import LARGEST, Reference
from ddpn.members.folds import Folds
from ddpn.members.glm import GLM
from ddpn.members.member import NotApplicableError, as_tensor
from ddpn.members.trees.boosting import Fold, MeanFit, Settings, TreeRows, with_columns
from ddpn.members.trees.member import TreeTable
from ddpn.networks.heads import Head, make_head
from ddpn.runtime.threads import tree_threads_for
from ddpn.sample import Sample
from ddpn.tables.splits import FOLDS, fold_numbers

#: Mean models that can be chosen; "auto" takes the one with the smallest out-of-fold deviance.
MEAN_MODELS = ("auto", "constant", "glm", "boosting")
LABELS = {"constant": "constant mean", "glm": "{}", "boosting": "{} with boosted trees on top"}
#: Small trees on top of a GLM: of the settings tried on simulated Poisson counts with linear, smooth and stepped means,
#: these had the smallest error of the mean, or nearly so, in all.
_TREES = Settings(leaves=8, rate=0.1, rounds=400, patience=10)
#: How often trees are boosted to counts of which some are censored or truncated.
_REPEATS = 3
#: Folds that are fitted again to measure the noise of a mean: that of two folds is that of all.
_NOISE_FOLDS = 2

Step = Callable[[str], object]


class OutOfFold(NamedTuple):
    """Locations of rows by fits that left them out, NaN for folds that were not fitted; and what all fits predict."""

    location: np.ndarray
    typical: np.ndarray


#: The rows of a reference, and how many of the folds are fitted -> locations.
Model = Callable[[Reference, int], OutOfFold]


class MeanGLM(GLM):
    """A GLM with one dispersion for all rows."""

    _dispersion = "constant"


class Means(NamedTuple):
    """Out-of-fold means and how far they are from the conditional means.

    `noise` is the mean of (estimate - mean)^2 / variance per row that refitting to counts of the reference with these
    means causes: it adds to every estimate of dispersion. `most_noise` allows for a mean that is rougher than its
    estimate. Means of all rows use the weights `Reference.emphasis`. `explained` is the share of the deviance of a
    constant mean.
    """

    name: str
    mean: np.ndarray
    noise: float
    most_noise: float
    explained: float

    def label(self, reference: Reference) -> str:
        """What sentences call the mean model."""
        return LABELS[self.name].format(_glm_name(reference))


def _glm_name(reference: Reference) -> str:
    return "logistic GLM" if reference.is_bounded else "Poisson GLM"


def out_of_fold_means(reference: Reference, kind: str, seed: int, step: Step) -> Means:
    """The locations of the chosen model, or of the best one, by five-fold cross-fitting.

    Parameters
    ----------
    reference : Reference
        The rows, and the distribution that they are compared with.
    kind : str
        One of `MEAN_MODELS`. A GLM is left out where a table is too wide for it.
    seed : int
        Seed of the folds, the trees and the counts that measure the noise.
    step : callable
        Called with the name of each step.
    """
    number = fold_numbers(len(reference.y), FOLDS, seed, reference.sample.group)
    folds, models = int(number.max()) + 1, dict[str, Model]()
    found, deviance = dict[str, OutOfFold](), dict[str, float]()

    def add(name: str, model: Model) -> None:
        models[name], found[name] = model, model(reference, folds)
        deviance[name] = _deviance(reference, found[name].location)

    def best() -> str:
        return min(deviance, key=lambda name: deviance[name])

    add("constant", lambda rows, some: _constant(rows, number, some))
    if kind != "constant":
        step(f"Fitting a {_glm_name(reference)}")
        try:
            add("glm", lambda rows, some: _glm(rows, number, seed, some))
        except NotApplicableError:
            models.pop("glm")
    if kind in ("auto", "boosting"):
        step("Fitting boosted trees")
        base = found[best()].location
        add("boosting", lambda rows, some: _boosted(rows, base, number, seed, some))
    chosen = best() if kind == "auto" else kind if kind in found else "constant"
    step("Measuring the noise of the mean")
    noise = _noise(reference, models[chosen], found[chosen].typical, min(folds, _NOISE_FOLDS), seed)
    # In simulations the squared error of boosted means was up to twice what the bootstrap finds, whose means are
    # smoother.
    most = 2.0 * noise if chosen == "boosting" else noise
    explained = 0.0 if chosen == "constant" else max(0.0, 1.0 - deviance[chosen] / deviance["constant"])
    return Means(chosen, found[chosen].location, noise, most, explained)


def _deviance(reference: Reference, location: np.ndarray) -> float:
    """Mean deviance, against locations that are the recorded counts; a censored count can be predicted for certain."""
    best = np.maximum(reference.y, 1e-6)
    best = np.minimum(best, reference.sample.upper * LARGEST) if reference.is_bounded else best
    likelihood = reference.log_likelihood(location)
    perfect = np.where(reference.is_censored, 0.0, reference.log_likelihood(best))
    return float(np.average(2.0 * np.maximum(perfect - likelihood, 0.0), weights=reference.weight))


def _noise(reference: Reference, model: Model, location: np.ndarray, folds: int, seed: int) -> float:
    """How far the model is from known means when it is fitted to counts of the reference (parametric bootstrap)."""
    drawn = reference.drawn(location, np.random.default_rng(seed))
    if not np.ptp(drawn.y):
        return 0.0
    again = model(drawn, folds).location
    fitted = ~np.isnan(again)
    errors = (np.square(again - location) / reference.variance(again))[fitted]
    return float(np.average(errors, weights=reference.emphasis(location)[fitted]))


def _for_members(reference: Reference) -> tuple[Sample, Head]:
    """The rows as members take them, whose exposures are totals if counts have an upper bound, and the likelihood."""
    sample = reference.sample
    if not reference.is_bounded:
        return sample, make_head("poisson")
    return sample.replace(exposure=sample.upper), make_head("double_binomial")


def _gathered(reference: Reference, number: np.ndarray, fits: Sequence[np.ndarray]) -> OutOfFold:
    """From the locations of all rows by each fit, in the order of the folds that were left out."""
    location, each = np.full(len(number), np.nan), [reference.clipped(fit) for fit in fits]
    for fold, own in enumerate(each):
        location[number == fold] = own[number == fold]
    return OutOfFold(location, np.mean(each, axis=0))


@torch.no_grad()
def _constant(reference: Reference, number: np.ndarray, folds: int) -> OutOfFold:
    """The location that makes the counts of the other folds most likely."""
    sample, head = _for_members(reference.without_features())
    scale, fits = None if sample.exposure is None else as_tensor(sample.exposure), []
    for fold in range(folds):
        raw = head.sample_start(sample.rows(number != fold).map(as_tensor))
        fits.append(head(raw.expand(len(sample), -1), scale).mean.numpy())
    return _gathered(reference, number, fits)


@torch.no_grad()
def _glm(reference: Reference, number: np.ndarray, seed: int, folds: int) -> OutOfFold:
    sample, head = _for_members(reference)
    rows = Folds(sample, None, number)
    copies = (rows.fit_copy(MeanGLM(head), fold, seed) for fold in range(folds))
    fits = [copy.distribution(sample.X, sample.exposure).mean[:, 0].numpy() for copy in copies]
    return _gathered(reference, number, fits)


def _boosted(reference: Reference, base: np.ndarray, number: np.ndarray, seed: int, folds: int) -> OutOfFold:
    """Boosted trees that multiply the out-of-fold locations `base`.

    They are boosted to Poisson counts with the scores of the recorded ones: location + E[Z | what was recorded] - E[Z].
    Where a count is known exactly and not truncated, that is the count itself.
    """
    table, location = TreeTable(), base
    matrix, weight = table.fit(reference.sample.X), reference.weight * base
    parts = [Fold(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(int(number.max()) + 1)]
    is_complete = not (reference.is_truncated or reference.is_censored.any())
    with tree_threads_for(matrix.size):
        for _ in range(1 if is_complete else _REPEATS):
            score = reference.known(location).mean - reference.expected(location).mean
            rate = np.maximum(location + score, 0.0) / base
            rows = TreeRows(matrix, table.is_category, None, rate, weight, with_columns(parts, matrix, rate, weight))
            fit = MeanFit(rows, _TREES._replace(seed=seed))
            fit.run(folds)
            location = reference.clipped(base * np.exp(np.nan_to_num(fit.out_of_fold)))
    return OutOfFold(np.where(number < folds, location, np.nan), location)
