"""What every fitted estimator offers: distributions, points, intervals, probabilities, scores, calibration, saving."""

import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ddpn.distributions import Mixture, discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.errors import InputError
from ddpn.estimators.calibrated import Calibrated
from ddpn.members.reader import TableReader
from ddpn.metrics import crps, nll, point
from ddpn.model_files import read_files, read_manifest, write_model
from ddpn.predictor import MIXTURE, Predictor
from ddpn.sample import Sample, check_counts, checked_sample, row_count
from ddpn.threads import single_thread
from ddpn.validation import check_choice


class CountPredictions(Calibrated, RegressorMixin):
    """Predictions, scores, calibration and saving of an estimator that keeps a `Predictor` as `predictor_`."""

    predictor_: Predictor
    feature_kinds_: list[str] | None
    fractional: str
    #: Arguments that a saved model does not keep.
    _not_saved: ClassVar[tuple[str, ...]] = ()

    def _set_fitted(self, reader: TableReader, predictor: Predictor) -> None:
        """Replace what an earlier fit left, all at once: a fit that fails or is interrupted changes nothing."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.__dict__.update({name: value for name, value in vars(reader).items() if name.endswith("_in_")})
        self.feature_kinds_, self.predictor_ = reader.kinds_, predictor

    @property
    def _fitted(self) -> Predictor:
        check_is_fitted(self)
        return self.predictor_

    def _over_blocks(self, f: Callable[[Mixture], Tensor], X: Any, exposure: Any, upper: Any) -> np.ndarray:
        """f of the predicted distributions, a block of rows at a time."""
        parts = []
        with torch.no_grad():
            for block in self._fitted.blocks(X, exposure, upper=upper):  # members choose their threads themselves
                with single_thread():
                    parts.append(f(block).double())
        return torch.cat(parts).numpy()

    # Predicting --------------------------------------------------------------------------------------------------

    def predict_distribution(self, X: Any, exposure: Any = None, upper: Any = None) -> Any:
        """The whole predicted distribution of every row, with its `aleatoric` and `epistemic` variance.

        A `Mixture`, or a `Recalibrated` whose `base` is the mixture where `fit_recalibration` is in use.
        """
        return self._fitted.distribution(X, exposure, upper=upper)

    def predict(self, X: Any, exposure: Any = None, statistic: str = "mean", upper: Any = None) -> np.ndarray:
        """One number per row: the "mean", "median" or "mode" of the predicted distribution.

        Median and mode are counts; those of a Gaussian are of its rounded values.
        """
        return self._over_blocks(
            lambda dist: point(dist if statistic == "mean" else discretized(dist), statistic), X, exposure, upper
        )

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        exposure: Any = None,
        kind: str = "auto",
        groups: Any = None,
        upper: Any = None,
    ) -> np.ndarray:
        """Counts (low, high), both included. Shape: (rows, 2).

        "central" leaves at most half of the rest on either side, "highest" is the shortest: both cover at least
        `coverage` by each row's distribution. "calibrated" intervals are central ones that cover it over all rows
        together: see `fit_intervals`. "auto" is "calibrated" after `fit_intervals` (and for models of `ddpn fit`, which
        calibrates), else "central".

        `groups` are the labels of the rows' groups, where `fit_intervals` was given labels. Rows of a group that it did
        not have get the level of all rows, with a warning.
        """
        check_choice("kind", kind, ("auto", "central", "highest", "calibrated"))
        if kind == "calibrated" and MIXTURE not in self._fitted.intervals:
            raise InputError('kind="calibrated" needs fit_intervals with rows that fit was not trained on.')
        if kind in ("central", "highest"):
            level = check_coverage(coverage)

            def plain(dist: Any) -> Tensor:
                return torch.stack(discretized(dist).interval(level, kind), 1)

            found = self._over_blocks(plain, X, exposure, upper)
        else:
            found = self._calibrated_intervals(X, coverage, exposure, self._group_labels(X, groups), upper)
        return found.astype(np.int64)

    def _calibrated_intervals(
        self, X: Any, coverage: float, exposure: Any, labels: np.ndarray | None, upper: Any
    ) -> np.ndarray:
        predictor, done = self._fitted, 0

        def of_block(dist: Any) -> Tensor:
            nonlocal done
            part = None if labels is None else labels[done : done + dist.batch_shape[0]]
            done += dist.batch_shape[0]
            return torch.stack(predictor.interval(dist, coverage, labels=part), dim=1)

        return self._over_blocks(of_block, X, exposure, upper)

    def _group_labels(self, X: Any, groups: Any) -> np.ndarray | None:
        """The groups of rows by which intervals are calibrated, with a warning about those that are unknown."""
        known = self._fitted.groups
        if known is None:
            if groups is not None:
                raise InputError("groups must be None: fit_intervals was not given groups.")
            return None
        labels = known.labels(X, groups)
        if sentence := known.unseen(labels):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return labels

    def predict_quantiles(self, X: Any, q: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """Quantiles at every level of `q`, one or more numbers from 0 to 1: counts. Shape: (rows, number of levels)."""
        levels = torch.from_numpy(_checked_levels(q))
        found = self._over_blocks(
            lambda dist: torch.stack([discretized(dist).icdf(level) for level in levels] or [dist.mean], 1),
            X,
            exposure,
            upper,
        )
        return found[:, : len(levels)]

    def predict_uncertainty(self, X: Any, exposure: Any = None, upper: Any = None) -> dict[str, np.ndarray]:
        """The variance of every row ("total") and its parts.

        "aleatoric" is what more data would not remove; "epistemic" is the disagreement of the mixture's components.
        After recalibration, the total is that of the recalibrated distribution, divided in the mixture's proportions.
        """
        parts = self._over_blocks(lambda dist: torch.stack([dist.aleatoric, dist.epistemic], dim=1), X, exposure, upper)
        return {"aleatoric": parts[:, 0], "epistemic": parts[:, 1], "total": parts.sum(1)}

    def predict_proba_of(self, X: Any, counts: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """The probability of each of `counts`; for Gaussians that of rounding to it. Shape: (rows, counts)."""
        plain = np.atleast_1d(np.asarray(counts))
        values = torch.from_numpy(check_counts(plain, row_count(plain), name="counts"))

        def probabilities(dist: Mixture) -> Tensor:
            of_counts = discretized(dist)
            return torch.stack([of_counts.log_prob(value) for value in values], dim=1).exp()

        return self._over_blocks(probabilities, X, exposure, upper)

    # Scores ------------------------------------------------------------------------------------------------------

    def _sample(self, X: Any, y: Any, sample_weight: Any, exposure: Any, upper: Any, censored: Any) -> Sample:
        sample = checked_sample(X, y, sample_weight, exposure, self.fractional)
        return self._fitted.counts.of(sample, upper, censored)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """D^2, the share of the Poisson deviance that the predicted means explain; 1 is best, 0 a constant's.

        Where counts are censored, means are those of the counts as they are recorded.
        """
        from sklearn.metrics import mean_poisson_deviance  # slow to import

        sample = self._sample(X, y, sample_weight, exposure, upper, censored)
        # A Gaussian's mean may be negative; no count divided by this bound overflows.
        mean = np.maximum(self._recorded_means(sample), 1e-290)
        scale = np.ones_like(mean) if sample.exposure is None else sample.exposure
        # Of rates weighted by exposure, which is the deviance of the counts.
        rate, weight = sample.y / scale, sample.weight_or_ones * scale
        constant = np.full_like(rate, np.average(rate, weights=weight))
        null = mean_poisson_deviance(rate, constant, sample_weight=weight) if constant[0] > 0 else 0.0
        left = mean_poisson_deviance(rate, mean / scale, sample_weight=weight)
        return float(1.0 - left / null) if null > 0 else float(left < 1e-6)

    def _recorded_means(self, sample: Sample) -> np.ndarray:
        with torch.no_grad():
            blocks = self._fitted.recorded_blocks(sample)
            return np.concatenate([dist.mean.double().numpy() for dist, _ in blocks])

    def crps(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """Mean continuous ranked probability score; smaller is better. Censored counts: see `Censored`."""
        return self._mean_score(crps, self._sample(X, y, sample_weight, exposure, upper, censored))

    def nll(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        upper: Any = None,
        censored: Any = None,
    ) -> float:
        """Mean negative log-likelihood; smaller is better. Of a censored count, -log of P(that many or more)."""
        return self._mean_score(nll, self._sample(X, y, sample_weight, exposure, upper, censored))

    def _mean_score(self, score: Any, sample: Sample) -> float:
        with torch.no_grad():
            each = [self._scored(score, dist, part.y) for dist, part in self._fitted.recorded_blocks(sample)]
        return float(np.average(np.concatenate(each), weights=sample.weight))

    @staticmethod
    def _scored(score: Any, dist: Any, y: np.ndarray) -> np.ndarray:
        with single_thread():
            return score(dist, torch.from_numpy(y)).numpy()

    # Saving ------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files and JSON values that the estimator keeps besides its predictor."""
        return {}, {}

    def _restore_extra(self, files: dict[str, bytes], extra: dict[str, Any]) -> None:
        """The inverse of `_extra_state`."""

    def saved_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Everything that `save` writes: files by name and the manifest."""
        files, manifest = self._fitted.state()
        more, extra = self._extra_state()
        names = getattr(self, "feature_names_in_", None)
        manifest["estimator"] = {
            "class": type(self).__name__,
            "options": _plain_options(self, self._not_saved),
            "features": None if names is None else list(map(str, names)),
            "kinds": self.feature_kinds_,
            "n_features": int(self.n_features_in_),
            "extra": extra,
        }
        return files | more, manifest

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder, whole or not at all. No pickle is written."""
        write_model(Path(path), *self.saved_state(), overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str], mixed_only: bool = False) -> Self:
        """The model that `save` wrote; nothing in its files is executed, and a damaged file is refused.

        `mixed_only` leaves out the members that are kept for comparison, which predictions do not need.
        """
        manifest = read_manifest(Path(path))
        known = manifest.get("estimator", {"class": "Predictor"})
        if known["class"] != cls.__name__:
            raise InputError(f"{path} holds a {known['class']}, not a {cls.__name__}. Use {known['class']}.load.")
        needed = [name for name, each in manifest["members"].items() if each["weight"] or not mixed_only]
        files = read_files(Path(path), manifest, needed)
        options = {name: tuple(v) if isinstance(v, list) else v for name, v in known["options"].items()}
        model: Any = cls(**options)
        model.predictor_ = Predictor.from_state(files, manifest, mixed_only)
        model.n_features_in_, model.feature_kinds_ = known["n_features"], known.get("kinds")
        if known["features"] is not None:
            model.feature_names_in_ = np.array(known["features"], dtype=object)
        model._restore_extra(files, known["extra"])
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.positive_only = True
        return tags


def _plain_options(model: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """Constructor arguments that JSON can hold; a random stream or a path cannot be kept."""
    options = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in without}
    return {name: value for name, value in options.items() if isinstance(value, str | float | list | dict | int | None)}


def _plain(value: Any) -> Any:
    """Numbers of numpy, sequences and dictionaries as JSON has them; anything else as it is."""
    if isinstance(value, Mapping):
        return {name: _plain(option) for name, option in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(option) for option in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _checked_levels(q: Any) -> np.ndarray:
    try:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"q must hold numbers, got {q!r:.60}.") from None
    if levels.ndim != 1:
        raise InputError(f"q must be a number or a list of numbers, got shape {levels.shape}.")
    bad = levels[~((levels >= 0.0) & (levels <= 1.0))]
    if len(bad):
        raise InputError(f"q must lie in [0, 1], got {bad[0]:g}.")
    return levels
