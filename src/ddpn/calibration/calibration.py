"""`Calibration`: everything that held-out rows teach about the predictions of a mixture and its members."""

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
    """What was fitted to held-out rows: interval levels, maps of the cdf, and out-of-distribution scores; immutable.

    A predictor holds one and applies it to its predictions. Mappings are keyed by "mixture" and the names of the
    members.

    Parameters
    ----------
    intervals : mapping of str to IntervalLevels
        Calibrated interval levels. Empty before calibration.
    groups : IntervalGroups, optional
        Interval levels of each group of rows.
    recalibrations : mapping of str to Recalibration
        Maps of the cdf, including maps that were tried but are not used.
    profile : FeatureProfile, optional
        A summary of the training rows, which scores how unusual a row is.
    ood : OODScores, optional
        The scores of ordinary rows, with which the scores of new rows are compared.
    """

    intervals: Mapping[str, IntervalLevels] = field(default_factory=dict)
    groups: IntervalGroups | None = None
    recalibrations: Mapping[str, Recalibration] = field(default_factory=dict)
    profile: FeatureProfile | None = None
    ood: OODScores | None = None

    # Distributions and intervals ---------------------------------------------------------------------------------

    def is_recalibrated(self, member: str = MIXTURE) -> bool:
        """Return True if a map of the cdf is applied to the predictions of `member`, a member's name or "mixture"."""
        return member in self.recalibrations and self.recalibrations[member].is_used

    def recalibrate(self, distribution: Mixture, member: str = MIXTURE) -> Mixture | Recalibrated:
        """Apply the map of the cdf to the distributions that `member` predicts; without a map, return them unchanged.

        `member` is "mixture", or the name of a member.
        """
        return (
            Recalibrated(distribution, self.recalibrations[member].map)
            if self.is_recalibrated(member)
            else distribution
        )

    @property
    def recalibration(self) -> Recalibration | None:
        """The recalibration of the mixture; None if it was not tried."""
        return self.recalibrations.get(MIXTURE)

    @property
    def is_censored(self) -> bool:
        """True if intervals were calibrated on some censored counts."""
        return any(levels.is_censored for levels in self.intervals.values())

    def interval_level(self, coverage: float, member: str = MIXTURE) -> float:
        """Return the probability that intervals must have by their own distributions to reach a coverage.

        It is never less than the coverage, and equals it before calibration. If intervals are calibrated by group, it
        is the overall level.

        Parameters
        ----------
        coverage : float
            The share of counts that intervals should contain.
        member : str
            "mixture", or the name of one member.
        """
        return self.intervals[member].at(coverage) if member in self.intervals else check_coverage(coverage)

    def row_levels(
        self, coverage: float, member: str = MIXTURE, labels: np.ndarray | None = None
    ) -> float | np.ndarray:
        """Return the interval level for a coverage: one for all rows, or one per row if it is calibrated by group.

        Parameters
        ----------
        coverage, member
            As for `interval_level`.
        labels : array, optional
            The groups of the rows. Without them, the overall level is returned.
        """
        if self.groups is None or member not in self.groups.levels or labels is None:
            return self.interval_level(coverage, member)
        return self.groups.at(
            check_coverage(coverage), member, self.intervals[member], self.groups.encode_labels(labels)
        )

    def describe(self) -> str:
        """Describe in a sentence what is calibrated, and on how many rows."""
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
        """Return the out-of-distribution scores; raise an `InputError` before calibration."""
        if self.ood is None:
            raise InputError("Out-of-distribution scores are not calibrated: call fit_ood with rows not used by fit.")
        return self.ood

    def ood_pvalue(self, X: TableLike) -> np.ndarray:
        """Return, per row, the probability that an ordinary row is at least as unusual. Shape: (rows,).

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        """
        return self.require_ood().pvalue(self.require_profile().measure(X).score)

    def ood_reasons(
        self, X: TableLike, flagged: np.ndarray | None = None, days: Collection[str] = ()
    ) -> list[list[str]]:
        """List what is unusual about each row, for example "missing 'age'"; the most unusual column comes first.

        Parameters
        ----------
        X : table
            Rows with the columns of the training rows.
        flagged : array of bool, optional
            True for flagged rows. If no single column explains the flag, the reason is the combination of values.
        days : collection of str
            Columns with days since 1970, which are shown as dates.
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
        """Return the files of the calibration by name, and its entries in the manifest."""
        parts: dict[str, IntervalLevels | Recalibration | OODScores] = {
            f"intervals.{name}": levels for name, levels in self.intervals.items()
        }
        parts |= {f"recalibration.{name}": recalibration for name, recalibration in self.recalibrations.items()}
        manifest: JsonObject = {
            "intervals": list(self.intervals),
            "recalibration": {name: _list_plain_fields(value) for name, value in self.recalibrations.items()},
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
            parts["ood"], manifest["ood"] = self.ood, _list_plain_fields(self.ood)
        arrays: dict[str, np.ndarray] = {}
        for name, part in parts.items():
            fields = part._asdict().items()
            arrays |= {f"{name}.{key}": value for key, value in fields if isinstance(value, np.ndarray)}
        files = {} if self.profile is None else self.profile.state()
        return files | {_FILE: arrays_to_bytes(**arrays)}, manifest

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: JsonObject) -> Self:
        """Rebuild the calibration from the files and the manifest of a saved model."""
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


def _list_plain_fields(part: IntervalLevels | Recalibration | OODScores) -> JsonObject:
    """Return the fields of a part of the calibration that are not arrays, so that JSON can hold their values."""
    return {name: value for name, value in part._asdict().items() if not isinstance(value, np.ndarray)}
