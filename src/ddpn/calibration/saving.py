"""Calibration as arrays and facts of a model folder, and back. Files are data: nothing in them is executed."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from ddpn.calibration.groups import IntervalGroups
from ddpn.calibration.intervals import IntervalLevels
from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.recalibration import Recalibration
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes

_FILE = "calibration.safetensors"
Part = TypeVar("Part", IntervalLevels, Recalibration, OODScores)


class SavedCalibration(NamedTuple):
    """Everything that calibrates the predictions of a mixture; empty or None where it was not calibrated."""

    intervals: dict[str, IntervalLevels]
    groups: IntervalGroups | None
    recalibrations: dict[str, Recalibration]
    ood: OODScores | None
    profile: FeatureProfile | None

    def state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files by name, and what the manifest says about them."""
        parts: dict[str, Any] = {f"intervals.{name}": each for name, each in self.intervals.items()}
        parts |= {f"recalibration.{name}": each for name, each in self.recalibrations.items()}
        manifest: dict[str, Any] = {
            "intervals": list(self.intervals),
            "recalibration": {name: _facts(each) for name, each in self.recalibrations.items()},
        }
        arrays: dict[str, np.ndarray] = {}
        if self.groups is not None:
            own = self.groups
            parts |= {f"groups.{n}.{code}": each for n, of in own.levels.items() for code, each in enumerate(of)}
            arrays["groups.edges"] = own.edges
            names = {"names": list(own.names), "of": list(own.levels)}
            manifest["groups"] = {"by": own.by, "prior_rows": own.prior_rows, **names}
        if self.ood is not None:
            parts["ood"], manifest["ood"] = self.ood, _facts(self.ood)
        for name, part in parts.items():
            fields = part._asdict().items()
            arrays |= {f"{name}.{field}": value for field, value in fields if isinstance(value, np.ndarray)}
        files = {} if self.profile is None else self.profile.state()
        return files | {_FILE: arrays_to_bytes(**arrays)}, manifest

    @classmethod
    def from_state(cls, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Self:
        """The inverse of `state`."""
        arrays = arrays_from_bytes(files[_FILE])

        def part(kind: type[Part], name: str, facts: Mapping[str, Any]) -> Part:
            known: dict[str, Any] = {field: arrays[f"{name}.{field}"] for field in kind._fields if field not in facts}
            return kind(**known, **facts)

        groups, ood, maps = None, None, manifest["recalibration"]
        if "groups" in manifest:
            about = manifest["groups"]
            codes = range(len(about["names"]))
            levels = {name: [part(IntervalLevels, f"groups.{name}.{k}", {}) for k in codes] for name in about["of"]}
            edges = arrays["groups.edges"]
            groups = IntervalGroups(about["by"], tuple(about["names"]), edges, about["prior_rows"], levels)
        if "ood" in manifest:
            ood = part(OODScores, "ood", manifest["ood"])
        return cls(
            {name: part(IntervalLevels, f"intervals.{name}", {}) for name in manifest["intervals"]},
            groups,
            {name: part(Recalibration, f"recalibration.{name}", facts) for name, facts in maps.items()},
            ood,
            FeatureProfile.from_state(files),
        )


def _facts(part: Any) -> dict[str, Any]:
    """The fields that are no arrays: numbers that JSON can hold."""
    return {field: value for field, value in part._asdict().items() if not isinstance(value, np.ndarray)}
