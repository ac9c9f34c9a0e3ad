"""Calibration as arrays and facts of a model folder, and back. Files are data: nothing in them is executed."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

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
        levels = {name: _levels_from(arrays, name) for name in manifest["intervals"]}
        recalibrations = {
            name: Recalibration.from_saved(arrays[f"recalibration.{name}"], facts)
            for name, facts in manifest["recalibration"].items()
        }
        groups = IntervalGroups.from_saved(arrays, manifest["groups"]) if "groups" in manifest else None
        ood = _ood_from(arrays, manifest["ood"]) if "ood" in manifest else None
        return cls(levels, groups, recalibrations, ood, FeatureProfile.from_state(files))


def _levels_from(arrays: Mapping[str, np.ndarray], name: str) -> IntervalLevels:
    """Levels of a saved model; those saved before new rows had a weight of their own count a new row once."""
    needed, weight, rows = (arrays[f"intervals.{name}.{part}"] for part in ("needed", "weight", "rows"))
    return IntervalLevels(needed, weight, rows, arrays.get(f"intervals.{name}.new", np.ones(1)))


def _ood_from(arrays: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> OODScores:
    """The calibration of a saved model; without features where it was saved before there were any."""
    both = (arrays[f"ood.{name}"] for name in ("features", "order")) if "ood.features" in arrays else ()
    return OODScores(arrays["ood"], known["kind"], known["alpha"], *both)
