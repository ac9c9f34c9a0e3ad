"""How frequent levels and values were in the training, from the summary that a model keeps."""

import numpy as np

from ddpn.calibration.columns import ColumnProfile


def key_shares(profile: ColumnProfile) -> np.ndarray:
    """The share of each level or value (`keys`) among the training values that were not missing.

    The surprise of a level is -log of the share of all levels that are as rare, so that shares are its differences.

    >>> known = ColumnProfile("category", np.ones(2), np.zeros(2), keys=np.arange(3, dtype=np.uint64),
    ...                       key_surprise=-np.log([0.4, 1.0, 0.4]))
    >>> key_shares(known).round(3).tolist()
    [0.2, 0.6, 0.2]
    """
    as_rare = np.exp(-profile.key_surprise).round(12)
    level, place, number = np.unique(as_rare, return_inverse=True, return_counts=True)
    return (np.diff(level, prepend=0.0) / number)[place]
