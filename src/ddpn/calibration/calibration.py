"""`Calibration`: recalibration maps, interval levels and out-of-distribution scores, fitted to held-out rows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np

from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.intervals import IntervalGroups, IntervalLevels
from ddpn.calibration.ood import OODScores
from ddpn.calibration.recalibration import Recalibration
from ddpn.calibration.unusual_cells import COMBINATION, describe_unusual_cells
from ddpn.distributions import Mixture
from ddpn.distributions.arguments import check_coverage
from ddpn.distributions.recalibrated import Recalibrated
from ddpn.members.blending import MIXTURE
from ddpn.rows.checks import TableLike, get_row_count
from ddpn.rows.count_rows import take_rows
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes

_FILE = "calibration.safetensors"
_Part = TypeVar("_Part", IntervalLevels, Recalibration, OODScores)


@dataclass(frozen=True)
class Calibration:
    """Recalibration maps, interval levels and out-of-distribution scores of a mixture and its members.

    A calibration is fitted to held-out rows and is immutable. A predictor holds one and applies it to its predictions.
    Mappings are keyed by "mixture" and the names of the members (the models in the mixture).

    Parameters
    ----------
    intervals : mapping of str to IntervalLevels
        The levels of calibrated intervals: their minimum probability by the predicted distribution, for any coverage.
        Empty before calibration.
    groups : IntervalGroups, optional
        The levels of calibrated intervals within groups of rows.
    recalibrations : mapping of str to Recalibration
        Monotone maps of predicted cdfs, including maps that are not used because they did not help.
    profile : FeatureProfile, optional
        A summary of the training rows. It scores how unusual a row is.
    ood : OODScores, optional
        The out-of-distribution scores of ordinary rows. The scores of new rows are compared with them.
    """

    intervals: Mapping[str, IntervalLevels] = field(default_factory=dict)
    groups: IntervalGroups | None = None
    recalibrations: Mapping[str, Recalibration] = field(default_factory=dict)
    profile: FeatureProfile | None = None
    ood: OODScores | None = None

    # Distributions and intervals ---------------------------------------------------------------------------------

    def is_recalibrated(self, member: str = MIXTURE) -> bool:
        """Return True if the predictions of `member` are recalibrated.

        `member` is "mixture" or the name of one model in it.
        """
        return member in self.recalibrations and self.recalibrations[member].is_used

    def recalibrate(self, distribution: Mixture, member: str = MIXTURE) -> Mixture | Recalibrated:
        """Recalibrate the distributions that `member` predicts; return them unchanged if no map is used for them.

        `member` is "mixture" or the name of one model in it.
        """
        return (
            Recalibrated(distribution, self.recalibrations[member].map)
            if self.is_recalibrated(member)
            else distribution
        )

    @property
    def recalibration(self) -> Recalibration | None:
        """The recalibration map that was fitted for the mixture, even if it is not used; None if none was fitted."""
        return self.recalibrations.get(MIXTURE)

    @property
    def is_censored(self) -> bool:
        """True if some of the counts on which intervals were calibrated are censored."""
        return any(levels.is_censored for levels in self.intervals.values())

    def interval_level(self, coverage: float, member: str = MIXTURE) -> float:
        """Return the level of intervals for a coverage: their minimum probability by the predicted distribution.

        Before calibration, the level is the coverage itself. After calibration, it is at least the coverage. If
        intervals are calibrated by group, this is the level over all rows.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.
        member : str
            "mixture", or the name of one model in it.
        """
        return self.intervals[member].at(coverage) if member in self.intervals else check_coverage(coverage)

    def row_levels(
        self, coverage: float, member: str = MIXTURE, labels: np.ndarray | None = None
    ) -> float | np.ndarray:
        """Return the interval level for a coverage: a number or, if intervals are calibrated by group, one per row.

        Parameters
        ----------
        coverage, member
            As for `interval_level`.
        labels : array, shape (rows,), optional
            The group of each row. If None, the level over all rows is returned.
        """
        if self.groups is None or member not in self.groups.levels or labels is None:
            return self.interval_level(coverage, member)
        return self.groups.at(
            check_coverage(coverage), member, self.intervals[member], self.groups.encode_labels(labels)
        )

    def describe(self) -> str:
        """Return a sentence that says what is calibrated, and on how many rows."""
        levels = self.intervals.get(MIXTURE)
        words = "not calibrated" if levels is None else f"calibrated on {int(levels.rows[0]):,} held-out rows"
        within = "" if self.groups is None else f", within groups of {self.groups.by}"
        more = "; distributions are recalibrated" if self.is_recalibrated() else ""
        return f"Intervals are {words}{within}{more}."

    # Out-of-distribution flags -----------------------------------------------------------------------------------

    def require_profile(self) -> FeatureProfile:
        """Return the summary of the training rows; raise an `InputError` if the model has none."""
        if self.profile is None:
            raise InputError("The model has no summary of its training rows. Fit it again.")
        return self.profile

    def require_ood(self) -> OODScores:
        """Return the out-of-distribution scores; raise an `InputError` if none were fitted."""
        if self.ood is None:
            raise InputError("Out-of-distribution scores are not calibrated: call fit_ood with rows not used by fit.")
        return self.ood

    def ood_pvalue(self, X: TableLike) -> np.ndarray:
        """Return an out-of-distribution p-value per row: the probability that an ordinary row is at least as unusual.

        If out-of-distribution scores are not calibrated, an `InputError` is raised.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.

        Returns
        -------
        array, shape (rows,)
            The p-values (`OODScores.pvalue`): from 1 / (n + 1), for the most unusual rows, to 1, with n rows of
            calibration.
        """
        return self.require_ood().pvalue(self.require_profile().measure(X).score)

    def ood_reasons(
        self, X: TableLike, flagged: np.ndarray | None = None, days: Collection[str] = ()
    ) -> list[list[str]]:
        """List what is unusual about each row, for example "missing 'age'"; the most unusual column comes first.

        The list of a row is empty if nothing is unusual, or if the model has no summary of its training rows.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        flagged : array of bool, shape (rows,), optional
            True for rows that are flagged as out-of-distribution. If no single column explains a flag, the reason
            is the combination of values.
        days : collection of str
            Names of columns that contain days since 1970, which are shown as dates.
        """
        if self.profile is None:
            return [[] for _ in range(get_row_count(X))]
        reasons = describe_unusual_cells(self.profile, X, days)
        unexplained = [row for row, words in enumerate(reasons) if not words and flagged is not None and flagged[row]]
        if unexplained:
            columns = self.profile.name_misfits(take_rows(X, unexplained))
            for row, name in zip(unexplained, columns, strict=True):
                reasons[row] = [COMBINATION + (f", mostly {name!r}" if name else "")]
        return reasons

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, bytes], JsonObject]:
        """Return what a model folder stores: the contents of files, keyed by name, and the entries of the manifest.

        `from_state` is the reverse.
        """
        parts: dict[str, IntervalLevels | Recalibration | OODScores] = {
            f"intervals.{name}": levels for name, levels in self.intervals.items()
        }
        parts |= {f"recalibration.{name}": recalibration for name, recalibration in self.recalibrations.items()}
        manifest: JsonObject = {
            "intervals": list(self.intervals),
            "recalibration": {name: _collect_json_fields(value) for name, value in self.recalibrations.items()},
        }
        if (groups := self.groups) is not None:
            parts |= {
                f"groups.{name}.{code}": group_levels
                for name, levels in groups.levels.items()
                for code, group_levels in enumerate(levels)
            }
            names = {"names": list(groups.names), "of": list(groups.levels)}
            manifest["groups"] = {"by": groups.by, "prior_rows": groups.prior_rows, **names}
        if self.ood is not None:
            parts["ood"], manifest["ood"] = self.ood, _collect_json_fields(self.ood)
        arrays: dict[str, np.ndarray] = {}
        for name, part in parts.items():
            fields = part._asdict().items()
            arrays |= {f"{name}.{key}": value for key, value in fields if isinstance(value, np.ndarray)}
        files = {} if self.profile is None else self.profile.state()
        return files | {_FILE: arrays_to_bytes(**arrays)}, manifest

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: JsonObject) -> Self:
        """Rebuild a calibration from the files and manifest entries that `state` returned when the model was saved."""
        arrays = arrays_from_bytes(files[_FILE])

        def read(kind: type[_Part], name: str, plain: JsonObject | None = None) -> _Part:
            stored = plain or {}
            values: JsonObject = {key: arrays[f"{name}.{key}"] for key in kind._fields if key not in stored}
            return kind(**values, **stored)

        groups = None
        if "groups" in manifest:
            about = manifest["groups"]
            codes = range(len(about["names"]))
            levels = {name: [read(IntervalLevels, f"groups.{name}.{code}") for code in codes] for name in about["of"]}
            groups = IntervalGroups(about["by"], tuple(about["names"]), about["prior_rows"], levels)
        return cls(
            intervals={name: read(IntervalLevels, f"intervals.{name}") for name in manifest["intervals"]},
            groups=groups,
            recalibrations={
                name: read(Recalibration, f"recalibration.{name}", plain)
                for name, plain in manifest["recalibration"].items()
            },
            profile=FeatureProfile.from_state(files),
            ood=read(OODScores, "ood", manifest["ood"]) if "ood" in manifest else None,
        )


#: An empty calibration.
UNCALIBRATED = Calibration()


def _collect_json_fields(part: IntervalLevels | Recalibration | OODScores) -> JsonObject:
    """Return the fields of a part of the calibration that JSON can store (all that are not arrays), by name."""
    return {name: value for name, value in part._asdict().items() if not isinstance(value, np.ndarray)}
