"""`Predictor`: fitted members, their weights in the mixture, and the calibration of their predictions."""

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from ddpn.calibration.groups import IntervalGroups, grouping
from ddpn.calibration.intervals import IntervalLevels, NeededLevels, interval_at
from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.reasons import DISAGREEMENT, combination_reasons, row_reasons
from ddpn.calibration.recalibration import PRIOR_ROWS, Recalibration
from ddpn.count_range import CountRange
from ddpn.distributions import Censored, Mixture, Recalibrated
from ddpn.distributions.arguments import check_coverage
from ddpn.distributions.recording import bounded
from ddpn.errors import ConfigError, InputError
from ddpn.members import MEMBERS
from ddpn.members.blending import mix
from ddpn.members.member import Member, arrays_from_bytes, arrays_to_bytes
from ddpn.model_files import read_files, read_manifest, write_model
from ddpn.sample import BLOCK, Sample, check_vector, row_count, row_labels, rows_named, take_rows
from ddpn.threads import single_thread
from ddpn.validation import check_choice

#: How the mixture is called beside its members.
MIXTURE = "mixture"
_CALIBRATION = "calibration.safetensors"


class Predictor:
    """A weighted mixture of fitted members.

    `weights` (by name) sum to 1; a member of weight 0 is kept for comparison only. `intervals` has calibrated levels
    for the mixture and every member, `groups` those within groups, `recalibration` the map of the mixture's cdf, `ood`
    the out-of-distribution scores; all are empty before calibration.
    `profile` is a summary of the training rows of a table, by which out-of-distribution scores take features into
    account. `seconds` are the times that the fits took, where known; `counts` is the range of possible counts, outside
    of which predictions have no mass.

    >>> from ddpn.members.constant import Constant
    >>> sample = Sample(np.zeros((4, 1)), np.array([1.0, 2.0, 2.0, 4.0]))
    >>> predictor = Predictor({"constant": Constant().fit(sample, None, seed=0)})
    >>> predictor.distribution(np.zeros((1, 1))).mean.round(decimals=2)
    tensor([2.2500], dtype=torch.float64)
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        weights: Mapping[str, float] | None = None,
        needs_exposure: bool = False,
        seconds: Mapping[str, float] | None = None,
        counts: CountRange | None = None,
    ) -> None:
        self.members, self.needs_exposure = dict(members), needs_exposure
        self.counts = CountRange() if counts is None else counts
        self.weights = dict.fromkeys(members, 1.0 / len(members)) if weights is None else dict(weights)
        self.seconds = dict(seconds or {})
        self.intervals: dict[str, IntervalLevels] = {}
        self.groups: IntervalGroups | None = None
        self.recalibration: Recalibration | None = None
        self.ood: OODScores | None = None
        self.profile: FeatureProfile | None = None

    @property
    def mixed(self) -> dict[str, Member]:
        """The members with a weight above 0."""
        return {name: member for name, member in self.members.items() if self.weights.get(name, 0.0) > 0.0}

    def add(self, name: str, member: Member, seconds: float | None = None) -> None:
        """Keep one more member, for comparison: it has no weight in the mixture."""
        if name == MIXTURE or name in self.members:
            raise ConfigError(f"A member to add must have a name of its own, got {name!r}, which exists.")
        self.members[name], self.weights[name] = member, 0.0
        if seconds is not None:
            self.seconds[name] = seconds

    # Predicting --------------------------------------------------------------------------------------------------

    def distribution(self, X: Any, exposure: Any = None, of: str = MIXTURE, upper: Any = None) -> Any:
        """The predicted distribution of every row: of the mixture, or `of` one member. Shape: batch (rows,).

        A `Mixture`; where the mixture is recalibrated, a `Recalibrated` with the mixture as its `base`. `upper` is the
        largest possible count of each row, where the model was fitted with one per row.
        """
        found = self._uncalibrated(X, exposure, of, upper)
        is_changed = of == MIXTURE and self.recalibration is not None and self.recalibration.is_used
        return Recalibrated(found, self.recalibration.map) if is_changed and self.recalibration else found

    def _uncalibrated(self, X: Any, exposure: Any, of: str, upper: Any) -> Mixture:
        bounds = self.counts.bounds(row_count(X), upper, row_labels(X))
        scale = bounds[1] if self.counts.upper_is_total else self._exposure(X, exposure)
        members = self.mixed if of == MIXTURE else {of: self.members[check_choice("of", of, (MIXTURE, *self.members))]}
        parts = [member.distribution(X, scale) for member in members.values()]
        with single_thread():
            parts = [bounded(part, *bounds) for part in parts]
            return mix(parts, [self.weights[name] for name in members] if of == MIXTURE else [1.0])

    def blocks(self, X: Any, exposure: Any = None, of: str = MIXTURE, upper: Any = None) -> Iterator[Any]:
        """The same, a block of rows at a time, which bounds memory."""
        n = row_count(X)
        if n <= BLOCK:
            yield self.distribution(X, exposure, of, upper)
            return
        scale = None if self.counts.upper_is_total else self._exposure(X, exposure)
        if upper is not None:
            _, upper = self.counts.bounds(n, upper, row_labels(X))
        for start in range(0, n, BLOCK):
            part = slice(start, start + BLOCK)
            known = (None if each is None else each[part] for each in (scale, upper))
            with rows_named(np.arange(start, n)):
                block = self.distribution(take_rows(X, part), next(known), of, next(known))
            yield block

    def recorded_blocks(self, sample: Sample, of: str = MIXTURE) -> Iterator[tuple[Any, Sample]]:
        """Blocks of a sample's rows with the distributions of their counts as recorded, by which they are scored."""
        upper, size = sample.upper if self.counts.upper_per_row else None, BLOCK
        for dist, part in zip(self.blocks(sample.X, sample.exposure, of, upper), sample.blocks(size), strict=True):
            yield dist if part.limit is None else Censored(dist, torch.from_numpy(part.limit)), part

    def _exposure(self, X: Any, exposure: Any) -> np.ndarray | None:
        scale = check_vector("exposure", exposure, row_count(X), zero=False, labels=row_labels(X))
        if self.needs_exposure and scale is None:
            raise InputError("exposure is missing: the model was fitted with it. Pass exposure=1 for rates per unit.")
        return scale

    # Calibration -------------------------------------------------------------------------------------------------

    def recalibrate(self, sample: Sample, prior_rows: float = PRIOR_ROWS, always: bool = False) -> Recalibration:
        """Learn from rows that were not trained on how to correct the mixture's cdf, and use it where that helps.

        See `Recalibration.fit`. Intervals of the mixture that were calibrated before are dropped: they belong to the
        distributions as they were.
        """
        self.recalibration = None
        blocks = (dist for dist, _ in self.recorded_blocks(sample))
        self.recalibration = Recalibration.fit(blocks, sample.y, sample.weight, prior_rows, always)
        if self.recalibration.is_used:
            self.intervals.pop(MIXTURE, None)
            self.groups = None
        return self.recalibration

    def calibrate_intervals(
        self, sample: Sample, prior_rows: float = 0.0, groups: Any = None, group_rows: float = 0.0
    ) -> None:
        """Find for the mixture and every member the levels at which intervals cover what is asked.

        The rows must not have been trained on. `prior_rows` shrinks the levels of few rows towards those that the
        predictions themselves expect, as if these were so many rows more. `groups` (a column of X, a label per row, or
        a number of ranges of the predicted mean) calibrates within groups as well, and `group_rows` shrinks their
        levels towards those of all rows.
        """
        found = codes = None
        if groups is not None:
            means = (block.mean.detach().numpy() for block, _ in self.recorded_blocks(sample))
            found, codes = grouping(groups, sample, means, group_rows)
        for name in (MIXTURE, *self.members):
            blocks = (dist for dist, _ in self.recorded_blocks(sample, of=name))
            needed = NeededLevels.of(blocks, sample.y, prior_rows > 0)
            self.intervals[name] = IntervalLevels.of_rows(needed, sample.weight, prior_rows)
            if found is not None and codes is not None:
                found.add(name, needed, codes, sample.weight)
        self.groups = found

    def interval_level(self, coverage: float, of: str = MIXTURE) -> float:
        """The level of the predicted intervals that cover `coverage`; the coverage itself before calibration.

        It is that of all rows together, also where intervals are calibrated by group.
        """
        return self.intervals[of].at(coverage) if of in self.intervals else check_coverage(coverage)

    def interval(
        self, dist: Any, coverage: float, of: str = MIXTURE, labels: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor]:
        """Calibrated intervals (low, high) of predicted distributions; `labels` are the groups of their rows.

        Without labels, rows have the level of all rows, unless groups are ranges of the predicted mean.
        """
        if self.groups is None or of not in self.groups.levels or (self.groups.by and labels is None):
            return interval_at(dist, self.interval_level(coverage, of))
        codes = self.groups.codes(labels, None if self.groups.by else dist.mean.detach().numpy())
        return interval_at(dist, self.groups.at(check_coverage(coverage), of, self.intervals[of], codes))

    def calibrate_ood(
        self,
        X: Any,
        exposure: Any = None,
        kind: str | None = None,
        alpha: float = 0.05,
        features: bool = True,
        upper: Any = None,
    ) -> None:
        """Learn which out-of-distribution scores are ordinary, from rows that no member was trained on.

        `kind` is a score of `ddpn.metrics.ood_score`; by default what the components disagree about, or the variance
        where there is only one. `features` False leaves the features out of account, also where there is a `profile`.
        """
        if kind is None:
            first = take_rows(X, slice(0, 1))
            one = np.ones(1) if self.needs_exposure or self.counts.upper_is_total else None
            size = sum(member.distribution(first, one).batch_shape[-1] for member in self.mixed.values())
            kind = "mutual_information" if size > 1 else "variance"
        known = self.profile.measure(X).score if features and self.profile is not None else None
        self.ood = OODScores.fit(self.blocks(X, exposure, upper=upper), kind, alpha, known)

    def ood_pvalue(self, X: Any, exposure: Any = None, upper: Any = None) -> np.ndarray:
        """Conformal p-value of "this row is like the calibration rows", small for unusual rows. Shape: (rows,)."""
        ood = self.calibrated_ood
        return ood.pvalue(
            self.blocks(X, exposure, upper=upper), self._profile.measure(X).score if len(ood.features) else None
        )

    def ood_reasons(self, X: Any, flagged: np.ndarray | None = None) -> list[list[str]]:
        """What is unusual about each row, the most unusual first: columns, for example "missing 'age'".

        Rows that are `flagged` (a mask) always have a reason: the combination of their values, or the disagreement of
        the members, where no single column explains the flag.
        """
        reasons = [[] for _ in range(row_count(X))] if self.profile is None else row_reasons(self.profile, X)
        unexplained = [row for row, own in enumerate(reasons) if not own and flagged is not None and flagged[row]]
        if unexplained:
            for row, reason in zip(unexplained, self._general_reasons(take_rows(X, unexplained)), strict=True):
                reasons[row] = [reason]
        return reasons

    def _general_reasons(self, X: Any) -> list[str]:
        """Reasons of flagged rows that no single column explains: by which score a row is flagged."""
        if self.ood is None or not len(self.ood.features):
            return [DISAGREEMENT] * row_count(X)
        # Half of alpha: the two scores share it.
        limit = np.quantile(self.ood.features, 1.0 - self.ood.alpha / 2.0)
        is_combination = self._profile.measure(X).score >= limit
        both = zip(is_combination, combination_reasons(self._profile, X), strict=True)
        return [reason if by_features else DISAGREEMENT for by_features, reason in both]

    @property
    def _profile(self) -> FeatureProfile:
        if self.profile is None:
            raise InputError("The model has no summary of its training rows. Fit it again.")
        return self.profile

    @property
    def calibrated_ood(self) -> OODScores:
        """The out-of-distribution scores, or an error where there was no calibration."""
        if self.ood is None:
            raise InputError("Out-of-distribution scores are not calibrated: call fit_ood with rows not used by fit.")
        return self.ood

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files by name, and what the manifest says about them."""
        files: dict[str, bytes] = {}
        about: dict[str, Any] = {}
        for name, member in self.members.items():
            own = member.state()
            files |= {f"{name}/{file}": content for file, content in own.items()}
            about[name] = {"weight": self.weights[name], "seconds": self.seconds.get(name), "facts": member.facts()}
        arrays = {
            f"intervals.{n}.{part}": v for n, each in self.intervals.items() for part, v in each._asdict().items()
        }
        manifest: dict[str, Any] = {"members": about, "needs_exposure": self.needs_exposure}
        manifest["counts"] = self.counts.as_dict()
        manifest["intervals"] = list(self.intervals)
        if self.recalibration is not None:
            arrays["recalibration"] = self.recalibration.value
            manifest["recalibration"] = self.recalibration.facts()
        if self.groups is not None:
            arrays |= self.groups.arrays()
            manifest["groups"] = self.groups.facts()
        if self.ood is not None:
            arrays |= {"ood": self.ood.scores, "ood.features": self.ood.features, "ood.order": self.ood.order}
            manifest["ood"] = {"kind": self.ood.kind, "alpha": self.ood.alpha}
        if self.profile is not None:
            files |= self.profile.state()
        return files | {_CALIBRATION: arrays_to_bytes(**arrays)}, manifest

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: Mapping[str, Any], mixed_only: bool = False) -> Self:
        """The inverse of `state`. Files are data: nothing in them is executed."""
        about = {name: each for name, each in manifest["members"].items() if each["weight"] or not mixed_only}
        try:
            members = {name: MEMBERS.find(name).from_state(_files_of(name, files)) for name in about}
            arrays = arrays_from_bytes(files[_CALIBRATION])
            levels = {name: _levels_from(arrays, name) for name in manifest["intervals"]}
            recalibration = _recalibration_from(arrays, manifest)
            groups = IntervalGroups.from_saved(arrays, manifest["groups"]) if "groups" in manifest else None
            ood = _ood_from(arrays, manifest["ood"]) if "ood" in manifest else None
            profile = FeatureProfile.from_state(files)
            counts = CountRange(**manifest.get("counts", {}))
        except (KeyError, TypeError, json.JSONDecodeError, SafetensorError) as error:
            raise InputError(
                f"The files of the saved model do not fit its manifest ({error}). Fit it again."
            ) from error
        seconds = {name: each["seconds"] for name, each in about.items() if each["seconds"] is not None}
        weights = {name: each["weight"] for name, each in about.items()}
        predictor = cls(members, weights, manifest["needs_exposure"], seconds, counts)
        predictor.intervals, predictor.groups, predictor.recalibration = levels, groups, recalibration
        predictor.ood, predictor.profile = ood, profile
        return predictor

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write everything to a folder, whole or not at all."""
        files, manifest = self.state()
        write_model(Path(path), files, manifest, overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The predictor that `save` wrote; a damaged or changed file is refused."""
        manifest = read_manifest(Path(path))
        return cls.from_state(read_files(Path(path), manifest), manifest)


def _files_of(name: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {file.removeprefix(f"{name}/"): content for file, content in files.items() if file.startswith(f"{name}/")}


def _levels_from(arrays: Mapping[str, np.ndarray], name: str) -> IntervalLevels:
    """Levels of a saved model; those saved before new rows had a weight of their own count a new row once."""
    needed, weight, rows = (arrays[f"intervals.{name}.{part}"] for part in ("needed", "weight", "rows"))
    return IntervalLevels(needed, weight, rows, arrays.get(f"intervals.{name}.new", np.ones(1)))


def _recalibration_from(arrays: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> Recalibration | None:
    if "recalibration" not in manifest:
        return None
    return Recalibration.from_saved(arrays["recalibration"], manifest["recalibration"])


def _ood_from(arrays: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> OODScores:
    """The calibration of a saved model; without features where it was saved before there were any."""
    both = (arrays[f"ood.{name}"] for name in ("features", "order")) if "ood.features" in arrays else ()
    return OODScores(arrays["ood"], known["kind"], known["alpha"], *both)
