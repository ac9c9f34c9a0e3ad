"""The levels at which baselines' intervals are taken, learnt from the same rows as the model's: all are alike."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ddpn.calibration.intervals import FILE, Levels, levels_by_blocks
from ddpn.errors import InputError
from ddpn.workflow.baselines import Baseline
from ddpn.workflow.sample import Sample

#: A few hundred validation rows tell the right level to some points; the laws' own word counts as so many more.
LAW_ROWS = 100.0


@torch.no_grad()
def levels_of(baselines: Mapping[str, Baseline], sample: Sample) -> dict[str, Levels]:
    """What rows that no baseline was fitted to need of each; none where there are no such rows."""
    if not len(sample):
        return {}
    found = {}
    for name, baseline in baselines.items():
        laws = (baseline.law(part.X, part.exposure) for part in sample.blocks())
        needed, expected = levels_by_blocks(laws, torch.from_numpy(sample.y), LAW_ROWS)
        found[name] = Levels.of(needed, sample.weight, expected, LAW_ROWS)
    return found


def save_levels(levels: Mapping[str, Levels], folder: Path) -> None:
    """Into one file; none where there is nothing to keep."""
    arrays = {f"{name}.{part}": values for name, each in levels.items() for part, values in each._asdict().items()}
    if arrays:
        (folder / FILE).write_bytes(save_arrays(arrays))


def load_levels(folder: Path) -> dict[str, Levels]:
    """Those that were saved. A model of an earlier version has none: its intervals are taken at the asked level."""
    if not (folder / FILE).is_file():
        return {}
    try:
        arrays = load_arrays((folder / FILE).read_bytes())
        names = sorted({key.rpartition(".")[0] for key in arrays})
        return {name: Levels(*(_array(arrays, f"{name}.{part}") for part in Levels._fields)) for name in names}
    except (OSError, KeyError, SafetensorError) as error:
        raise InputError(f"{folder / FILE} must be as it was saved, got {error}. Fit the model again.") from None


def _array(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return np.ascontiguousarray(arrays[name])
