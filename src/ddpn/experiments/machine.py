"""What the machine has: cores to work with, and files that may have changed since."""

import os
from pathlib import Path

from ddpn.datasets.sources import data_folder
from ddpn.experiments.experiment import Experiment


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def changed_after(experiment: Experiment, when: float) -> bool:
    """Whether a file of an experiment's data is newer; to read them all and look would take much longer."""
    names = [experiment.data["name"]] if experiment.data is not None else []
    names += [experiment.outside] if experiment.outside is not None else []
    return any(_is_newer(path, when) for name in names for path in (data_folder() / name).rglob("*"))


def _is_newer(path: Path, when: float) -> bool:
    try:
        return path.stat().st_mtime > when
    except OSError:  # gone in between
        return True
