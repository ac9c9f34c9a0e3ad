"""`Predictor`: the fitted members of a mixture with their weights and their calibration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors import SafetensorError
from torch.distributions import Distribution

from ddpn.calibration.calibrate import CalibratedRows
from ddpn.calibration.calibration import Calibration
from ddpn.distributions import CountDistribution, Mixture, Recalibrated
from ddpn.distributions.limits import censor_rows, truncate_rows
from ddpn.members import MEMBERS
from ddpn.members.blending import MIXTURE, mix_members
from ddpn.members.folds import Folds, get_fold_copies, load_member
from ddpn.members.held_out import HeldOutPredictions, MemberPredictions
from ddpn.members.member import Member, collect_state, is_shipped, predict_valid_components
from ddpn.prediction.prediction import Prediction
from ddpn.rows.checks import TableLike, check_vector, get_row_count, get_row_labels, label_row_errors
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import BLOCK, CountRows, take_rows
from ddpn.runtime.deadlines import check_deadline
from ddpn.runtime.display import TextTable
from ddpn.runtime.errors import ConfigError, DDPNError, InputError, describe_error
from ddpn.runtime.frames import library_name
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_choice
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import TASK, read_files, read_manifest, wrap_load_errors, write_model
from ddpn.tables.columns import ColumnTable
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema


class Predictor:
    """A weighted mixture of fitted models, the members, with its calibration.

    Parameters
    ----------
    members : mapping of str to Member
        Fitted members by name.
    weights : mapping of str to float, optional
        The mixture weights of the members, which sum to 1. A member of weight 0 is kept for comparison only. Default:
        equal weights.
    needs_exposure : bool
        True if the members were fitted with exposures. Predictions then need exposures as well.
    seconds : mapping of str to float, optional
        The time that the fit of each member took.
    counts : CountRange, optional
        The range of possible counts. Predictions give no probability to counts outside. Default: no bounds.
    fold_weights : sequence of mappings, optional
        For cross-fitted members: for each fold, the mixture weights that were chosen on all other folds. Default:
        `weights` for all folds.

    Attributes
    ----------
    calibration : Calibration
        Calibrated levels of intervals, recalibration maps of the cdf, and out-of-distribution scores. Empty before
        calibration.
    scales : dict
        For the exposures ("exposure") and the upper bounds ("upper") of the training rows, if they have any: a list of
        the minimum, the median and the maximum.

    Examples
    --------
    >>> from ddpn.members.constant import Constant
    >>> sample = CountRows(np.zeros((4, 1)), np.array([1.0, 2.0, 2.0, 4.0]))
    >>> predictor = Predictor({"constant": Constant.fit(sample, None, seed=0)})
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
        fold_weights: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self.fold_weights = [dict(weights) for weights in fold_weights]
        self.members, self.needs_exposure = dict(members), needs_exposure
        self.counts = CountRange() if counts is None else counts
        self.weights = dict.fromkeys(members, 1.0 / len(members)) if weights is None else dict(weights)
        self.seconds = dict(seconds or {})
        self.calibration = Calibration()
        self.scales: dict[str, list[float]] = {}

    @property
    def active_members(self) -> dict[str, Member]:
        """The members with a weight above 0."""
        return {name: member for name, member in self.members.items() if self.weights.get(name, 0.0) > 0.0}

    def _make_table(self) -> TextTable:
        """Make the table that notebooks and terminals show: members with weights and fitting times, by weight."""
        order = sorted(self.members, key=lambda name: -self.weights.get(name, 0.0))
        labels = {name: member.label or name.replace("_", " ") for name, member in self.members.items()}
        rows = [(labels[name], f"{self.weights.get(name, 0.0):.0%}", self.seconds.get(name)) for name in order]
        return TextTable(("member", "weight", "fit, s"), rows)

    def __repr__(self) -> str:
        return f"Predictor\n{self._make_table()}\n{self.calibration.describe()}"

    def _repr_html_(self) -> str:
        return f"{self._make_table().to_html()}<p>{self.calibration.describe()}</p>"

    @property
    def sole_member(self) -> str | None:
        """The name of the only member with a weight above 0.

        None if there are several, or if the mixture is recalibrated and so differs from the member.
        """
        names = list(self.active_members)
        return names[0] if len(names) == 1 and not self.calibration.is_recalibrated() else None

    def add(self, name: str, member: Member, seconds: float | None = None) -> None:
        """Add a fitted member for comparison. Its weight in the mixture is 0.

        Parameters
        ----------
        name : str
            A name that is not used by another member.
        member : Member
            The fitted member.
        seconds : float, optional
            The time that its fit took.
        """
        if name == MIXTURE or name in self.members:
            raise ConfigError(f"The name {name!r} is already used by another member. Choose another name.")
        self.members[name], self.weights[name] = member, 0.0
        if seconds is not None:
            self.seconds[name] = seconds

    def summarise_scales(self, sample: CountRows) -> None:
        """Set the attribute `scales` from the training rows' exposures and upper bounds.

        The median is always one of the values, so it is an integer if all values are.

        Parameters
        ----------
        sample : CountRows
            The training rows.
        """
        columns = {"exposure": sample.exposure, "upper": sample.upper if self.counts.upper_per_row else None}
        self.scales = {
            name: np.quantile(values, [0.0, 0.5, 1.0], method="lower").tolist()
            for name, values in columns.items()
            if values is not None
        }

    # Predicting --------------------------------------------------------------------------------------------------

    def predict(
        self,
        X: TableLike,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        groups: np.ndarray | None = None,
        member: str = MIXTURE,
    ) -> Prediction:
        """Predict the distribution of every row, with calibrated intervals and out-of-distribution scores.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        exposure : array-like or float, optional
            The known scale of each row. Required if the model was fitted with exposures.
        upper : array-like, optional
            The largest possible count of each row. Required if the model was fitted with one per row.
        groups : array, shape (rows,), optional
            The groups of the rows, if intervals are calibrated by group. Without groups, the same level is used for all
            rows. Rows of a group without calibration rows get this level as well.
        member : str
            "mixture", or the name of one member.
        """
        library, labels, X = library_name(X), get_row_labels(X), self.parse(X)
        with single_thread(), np.errstate(all="ignore"):
            distribution = self.distribution(X, exposure, member, upper)
        return replace(self.wrap(distribution, member, groups), table=X, labels=labels, library=library)

    def wrap(
        self, distribution: Mixture | CountDistribution, member: str = MIXTURE, groups: np.ndarray | None = None
    ) -> Prediction:
        """Make a `Prediction` from distributions that `Predictor.distribution` returned.

        Parameters
        ----------
        distribution : Mixture or Recalibrated
            The predicted distribution of every row.
        member : str
            "mixture", or the name of the member that predicted them.
        groups : array, shape (rows,), optional
            The groups of the rows, if intervals are calibrated by group.
        """
        return Prediction(distribution, self.calibration, member, self.interval_kind, groups=groups)

    @property
    def interval_kind(self) -> str:
        """The default kind of interval: "central" if training or calibration counts were censored, else "narrowest".

        A central interval lies between two quantiles, a narrowest interval has the fewest counts. Censored counts
        contain no information about the upper tail, in which a narrowest interval may end anywhere.
        """
        return self._choose_kind(self.calibration)

    def _choose_kind(self, calibration: Calibration) -> str:
        is_censored = self.counts.censored_above is not None or calibration.is_censored
        return "central" if is_censored else "narrowest"

    @torch.no_grad()
    def distribution(
        self, X: TableLike, exposure: ArrayLike | None = None, member: str = MIXTURE, upper: ArrayLike | None = None
    ) -> Mixture | Recalibrated:
        """Predict the distribution of every row, as one torch distribution of batch shape (rows,).

        The result is a `Mixture` or, if the mixture is recalibrated, a `Recalibrated` with the mixture as its `base`.
        The prediction of a row does not depend on the other rows, to at least twelve digits.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        exposure : array-like or float, optional
            The known scale of each row. Required if the model was fitted with exposures.
        member : str
            "mixture", or the name of one member.
        upper : array-like, optional
            The largest possible count of each row. Required if the model was fitted with one per row.
        """
        bounds = self.counts.bounds(get_row_count(X), upper, get_row_labels(X))
        scale = bounds[1] if self.counts.upper_is_total else self._check_exposure(X, exposure)
        is_mixture = member == MIXTURE
        names = self.active_members if is_mixture else [check_choice("member", member, (MIXTURE, *self.members))]
        X = self.parse(X)
        parts = [predict_valid_components(self.members[name], X, scale) for name in names]
        with single_thread():
            parts = [[truncate_rows(part, *bounds) for part in components] for components in parts]
            mixture = mix_members(parts, [self.weights[name] for name in names] if is_mixture else [1.0])
        return self.calibration.recalibrate(mixture, member)

    @property
    def schema(self) -> Schema | None:
        """The names and kinds of the training columns; None if neither the calibration nor a member stores them."""
        profile = self.calibration.profile
        if profile is not None:
            return profile.schema
        return next((member.schema for member in self.members.values() if member.schema is not None), None)

    def parse(self, X: TableLike) -> ColumnTable:
        """Convert a table to a `ColumnTable` with the columns of the training rows.

        All members can then read the result without converting it again. A `ColumnTable` is returned unchanged.
        """
        if isinstance(X, ColumnTable):
            return X
        schema = self.schema
        return read_table(X) if schema is None else schema.parse(X)

    def blocks(
        self, X: TableLike, exposure: ArrayLike | None = None, member: str = MIXTURE, upper: ArrayLike | None = None
    ) -> Iterator[Mixture | Recalibrated]:
        """Predict like `distribution`, but yield the distributions of one block of rows at a time, to limit memory.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        exposure : array-like or float, optional
            The known scale of each row. Required if the model was fitted with exposures.
        member : str
            "mixture", or the name of one member.
        upper : array-like, optional
            The largest possible count of each row. Required if the model was fitted with one per row.
        """
        n = get_row_count(X)
        if n <= BLOCK:
            yield self.distribution(X, exposure, member, upper)
            return
        X = self.parse(X)
        scale = None if self.counts.upper_is_total else self._check_exposure(X, exposure)
        if upper is not None:
            _, upper = self.counts.bounds(n, upper, get_row_labels(X))
        for start in range(0, n, BLOCK):
            check_deadline()
            part = slice(start, start + BLOCK)
            block_scale, block_upper = (None if values is None else values[part] for values in (scale, upper))
            with label_row_errors(np.arange(start, n)):
                block = self.distribution(take_rows(X, part), block_scale, member, block_upper)
            yield block

    def iter_recorded_blocks(self, sample: CountRows) -> Iterator[tuple[Distribution, CountRows]]:
        """Predict rows with known counts, block by block, for scoring; censor distributions at recording limits.

        Yield the distributions that the mixture predicts for each block, and the rows of the block. A count above the
        recording limit of its row was recorded as the limit. So each distribution is censored at this limit as well.

        Parameters
        ----------
        sample : CountRows
            The rows.
        """
        for prediction, block in self.predict_rows(sample):
            yield censor_rows(prediction.distribution, block.limit), block

    def predict_rows(self, sample: CountRows, member: str = MIXTURE) -> Iterator[tuple[Prediction, CountRows]]:
        """Predict rows with known counts, block by block; yield the `Prediction` and the rows of each block.

        Use it to score predictions together with their calibrated intervals.

        Parameters
        ----------
        sample : CountRows
            The rows.
        member : str
            "mixture", or the name of one member.
        """
        positions = np.arange(len(sample))
        for number, block in enumerate(sample.replace(X=self.parse(sample.X)).blocks(BLOCK)):
            check_deadline()
            arguments = self.counts.to_arguments(block)
            with label_row_errors(positions[number * BLOCK :] if block.labels is None else block.labels):
                distribution = self.distribution(block.X, arguments["exposure"], member, arguments["upper"])
            yield self.wrap(distribution, member, block.interval_groups), block

    # Held-out rows -----------------------------------------------------------------------------------------------

    def predict_held_out(self, rows: CountRows | Folds, seed: int = 0) -> HeldOutPredictions:
        """Return the predictions of rows that no member was fitted to, by each member and by the mixture.

        They are not calibrated, and are computed when they are first used. The result also assigns each row to one of
        several parts, between which a later calibration is cross-fitted. If the members are cross-fitted and `rows` are
        their folds, the parts are the folds, and each fold is predicted by the copies of the members that were fitted
        without it. Otherwise, the parts are random.

        Parameters
        ----------
        rows : CountRows or Folds
            The rows; or the folds of the fit, with the rows that it held out: all training rows if the members are
            cross-fitted, else the validation rows.
        seed : int
            Seed of the random parts, and of the choice of rows if there is no time to calibrate on all of them. It does
            not change the predictions.
        """
        if isinstance(rows, Folds):
            return self.mix_held_out(MemberPredictions.from_folds(rows, seed))
        parsed = rows.replace(X=self.parse(rows.X))
        return self.mix_held_out(MemberPredictions.from_rows(parsed, seed))

    def mix_held_out(self, predictions: MemberPredictions) -> HeldOutPredictions:
        """Combine the members' predictions of held-out rows into predictions of the mixture, before calibration.

        The predictions are computed when they are first used. If the members are cross-fitted, each fold is mixed with
        the weights that were chosen on the other folds.

        Parameters
        ----------
        predictions : MemberPredictions
            The members' predictions. If it lacks a member of this predictor, the member is added to it.
        """
        for name, member in self.members.items():
            if name not in predictions.names:
                predictions.add(name, member)
        is_chosen_by_fold = predictions.is_crossed and self.fold_weights
        weights = self.fold_weights if is_chosen_by_fold else [self.weights] * predictions.n_parts
        return HeldOutPredictions(predictions, weights, np.arange(len(predictions)))

    def predict_out_of_fold(
        self, rows: CalibratedRows, member: str = MIXTURE
    ) -> Iterator[tuple[Prediction, CountRows]]:
        """Predict the training rows of a cross-fitted model out of fold, with their calibration, block by block.

        Yield the `Prediction` and the rows of each block. Each row is predicted by copies of the members that were
        fitted without its fold, and calibrated on the other folds.

        Parameters
        ----------
        rows : CalibratedRows
            The rows with their stored predictions and, for each fold, the calibration on the other folds.
        member : str
            "mixture", or the name of one member.
        """
        for number, index, distribution in rows.held_out.blocks(member):
            calibration, block = rows.parts[number], rows.held_out.rows.rows(index)
            calibrated, kind = calibration.recalibrate(distribution, member), self._choose_kind(calibration)
            yield Prediction(calibrated, calibration, member, kind, groups=block.interval_groups), block

    def for_fold(self, number: int, calibration: Calibration) -> Predictor:
        """Return a predictor for the rows of one fold of a cross-fitted model, which has not seen these rows.

        Its members are the copies that were fitted without this fold. Its weights were chosen without this fold.

        Parameters
        ----------
        number : int
            The number of the fold, from 0.
        calibration : Calibration
            The calibration on the other folds.
        """
        copies = {name: get_fold_copies(member)[number] for name, member in self.members.items()}
        chosen = self.fold_weights[number] if self.fold_weights else self.weights
        weights = {name: chosen.get(name, 0.0) for name in copies}
        predictor = Predictor(copies, weights, self.needs_exposure, None, self.counts)
        predictor.calibration = calibration
        return predictor

    def _check_exposure(self, X: TableLike, exposure: ArrayLike | None) -> np.ndarray | None:
        scale = check_vector("exposure", exposure, get_row_count(X), allow_zero=False, labels=get_row_labels(X))
        if self.needs_exposure and scale is None:
            raise InputError(
                "exposure is missing: the model was fitted with exposures. Pass them, or exposure=1 for rates per unit."
            )
        return scale

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, bytes], JsonObject]:
        """Return what `save` writes: the contents of the files by name, and entries of the manifest (model.json)."""
        files: dict[str, bytes] = {}
        member_entries: JsonObject = {}
        for name, member in self.members.items():
            files |= {f"{name}/{file}": content for file, content in collect_state(member).items()}
            member_entries[name] = {
                "weight": self.weights[name],
                "seconds": self.seconds.get(name),
                "facts": member.get_facts(),
            }
        calibration_files, calibration = self.calibration.state()
        counts = self.counts.as_dict()
        entries = {"needs_exposure": self.needs_exposure, "counts": counts, "scales": self.scales}
        manifest = {"members": member_entries, **entries, **calibration}
        return files | calibration_files, manifest | ({"fold_weights": self.fold_weights} if self.fold_weights else {})

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: JsonObject, mixed_only: bool = False) -> Self:
        """Rebuild a predictor from the two results of `state`. No code in the files is executed.

        With `mixed_only=True`, members of weight 0, which serve for comparison, are not loaded.
        """
        member_entries = {
            name: entry for name, entry in manifest["members"].items() if entry["weight"] or not mixed_only
        }
        try:
            member_files: dict[str, dict[str, bytes]] = {name: {} for name in member_entries}
            for path, content in files.items():
                name, _, file = path.partition("/")
                if name in member_files:
                    member_files[name][file] = content
            members = {name: _load_saved_member(name, files) for name, files in member_files.items()}
            counts = CountRange(**manifest.get("counts", {}))
            seconds = {name: entry["seconds"] for name, entry in member_entries.items() if entry["seconds"] is not None}
            weights = {name: entry["weight"] for name, entry in member_entries.items()}
            fold_weights = manifest.get("fold_weights", ())
            predictor = cls(members, weights, manifest["needs_exposure"], seconds, counts, fold_weights)
            predictor.scales = manifest["scales"]
            predictor.calibration = Calibration.from_state(files, manifest)
            profile, saved = predictor.calibration.profile, manifest.get("estimator")
            if profile is not None and saved is not None and profile.schema != Schema.from_dict(saved["schema"]):
                raise InputError("The saved model has a profile of other columns than its manifest. Fit it again.")
        except (KeyError, TypeError, json.JSONDecodeError, SafetensorError) as error:
            raise InputError(
                f"The files of the saved model do not fit its manifest ({error}). Fit it again."
            ) from error
        return predictor

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Save the predictor to a folder, completely or not at all.

        Parameters
        ----------
        path : path
            The folder to create.
        overwrite : bool
            Whether to replace an existing model.
        """
        files, manifest = self.state()
        write_model(Path(path), files, manifest, overwrite)

    @classmethod
    @wrap_load_errors
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a predictor that `save` wrote. Damaged or changed files raise an `InputError`.

        Parameters
        ----------
        path : path
            The folder of the model.
        """
        manifest = read_manifest(Path(path))
        return cls.from_state(read_predictor_files(Path(path), manifest), manifest)


def read_predictor_files(path: Path, manifest: JsonObject, mixed_only: bool = False) -> dict[str, bytes]:
    """Read the files of a saved model from which `Predictor.from_state` rebuilds its predictor.

    With `mixed_only=True`, the files of members of weight 0 are left out.
    """
    members = [name for name, entry in manifest["members"].items() if entry["weight"] or not mixed_only]
    about_model = {name: digest for name, digest in manifest["files"].items() if name != TASK}
    return read_files(path, {"files": about_model}, members)


def _load_saved_member(name: str, files: Mapping[str, bytes]) -> Member:
    """Load the member with the registered name `name` from the contents of its files, by file name.

    Raise an `InputError` if the member is not registered, or if it is a user's class whose `from_state` fails.
    """
    kind = MEMBERS.find_saved(name)
    try:
        return load_member(kind, files)
    except (DDPNError, OSError, ImportError):
        raise
    except Exception as error:
        if is_shipped(kind):
            raise
        raise InputError(
            f"The member {name!r} of the saved model cannot be loaded: {kind.__name__}.from_state raised "
            f"{describe_error(error).removesuffix('.')}. Check that it reads what `state` of this class writes."
        ) from error
