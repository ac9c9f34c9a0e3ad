"""Calibration as arrays and facts of a model folder, and back. Files are data: nothing in them is executed."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from ddpn.calibration.groups import IntervalGroups
from ddpn.calibration.intervals import IntervalLevels
from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.recalibration import Recalibration
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes

_FILE = "calibration.safetensors"


class SavedCalibration(NamedTuple):
    """Everything that calibrates the predictions of a mixture; empty or None where it was not calibrated."""

    intervals: dict[str, IntervalLevels]
    groups: IntervalGroups | None
    recalibrations: dict[str, Recalibration]
    ood: OODScores | None
    profile: FeatureProfile | None

    def state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files by name, and what the manifest says about them."""
        arrays = {
            f"intervals.{n}.{part}": v for n, each in self.intervals.items() for part, v in each._asdict().items()
        }
        manifest: dict[str, Any] = {"intervals": list(self.intervals)}
        arrays |= {f"recalibration.{name}": each.value for name, each in self.recalibrations.items()}
        manifest["recalibration"] = {name: each.facts() for name, each in self.recalibrations.items()}
        if self.groups is not None:
            arrays |= self.groups.arrays()
            manifest["groups"] = self.groups.facts()
        if self.ood is not None:
            arrays |= {"ood": self.ood.scores, "ood.features": self.ood.features, "ood.order": self.ood.order}
            manifest["ood"] = {"kind": self.ood.kind, "alpha": self.ood.alpha}
        files = {} if self.profile is None else self.profile.state()
        return files | {_FILE: arrays_to_bytes(**arrays)}, manifest

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Self:
        """The inverse of `state`."""
        arrays = arrays_from_bytes(files[_FILE])
        levels = {
            name: IntervalLevels(*(arrays[f"intervals.{name}.{part}"] for part in IntervalLevels._fields))
            for name in manifest["intervals"]
        }
        recalibrations = {
            name: Recalibration.from_saved(arrays[f"recalibration.{name}"], facts)
            for name, facts in manifest["recalibration"].items()
        }
        groups = IntervalGroups.from_saved(arrays, manifest["groups"]) if "groups" in manifest else None
        ood = None
        if "ood" in manifest:
            about = manifest["ood"]
            ood = OODScores(arrays["ood"], about["kind"], about["alpha"], arrays["ood.features"], arrays["ood.order"])
        return cls(levels, groups, recalibrations, ood, FeatureProfile.from_state(files))
