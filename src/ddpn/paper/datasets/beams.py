"""Load point clouds of real shelves from your own file, because the paper's inventory data are private.

Save the arrays of the file `inventory/beams.npz`, in the data folder, like this:

    X = ddpn.paper.inputs.pack(clouds, geometry).numpy()
    numpy.savez("inventory/beams.npz", X=X, y=counts, classes=["bottle", "can"])

A beam is the point cloud of one slot of a shelf. `clouds` is a list of arrays with shape (points, 3), one per beam.
`geometry` has the geometry class of each beam, as a number 0, 1, ... `counts` has the number of products of each beam.
`classes` has the names of the geometry classes; it is optional.
"""

import zipfile

import numpy as np
import torch

from ddpn.paper.datasets.dataset import LARGE_SHARES, Dataset, as_counts, split
from ddpn.paper.datasets.sources import SOURCES
from ddpn.runtime.errors import InputError

SOURCE = SOURCES["inventory"]


def inventory() -> Dataset:
    """Load point clouds of shelves and their numbers of products from `inventory/beams.npz`; split them 70/10/20."""
    path = SOURCE.find_file(
        "The paper's data are private. Pack your own beams with ddpn.paper.inputs.pack and save them there with "
        "numpy.savez(path, X=..., y=..., classes=...)."
    )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            X, y = arrays["X"], arrays["y"]
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} must be a file of numpy.savez with the arrays X and y, got: {error}.") from error
    if X.ndim != 3 or X.shape[1] < 2 or X.shape[2] != 4 or X.dtype.kind != "f" or y.shape != (len(X),):
        got = f"X of shape {X.shape} ({X.dtype}) and y of shape {y.shape}"
        raise InputError(f"{path} must have packed beams X (n, 2 + N, 4) and counts y (n,), got {got}.")
    classes = _check_classes(X[:, 0, 0], arrays.get("classes"), str(path))
    counts, parts = as_counts(y, "y"), split(len(X), shares=LARGE_SHARES)
    terms = SOURCE.license, SOURCE.citation
    return Dataset("inventory", torch.from_numpy(X.astype(np.float32)), counts, parts, *terms, classes=classes)


def _check_classes(numbers: np.ndarray, names: np.ndarray | None, path: str) -> tuple[str, ...]:
    """Return the names of all geometry classes; raise an `InputError` if a point cloud has a class without a name.

    `numbers` has the class number of each point cloud. If `names` is None, classes are named by their numbers.
    """
    class_names = np.arange(numbers.max(initial=0) + 1).astype(int) if names is None else names
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= len(class_names)))
    if len(bad):
        must = f"must have geometry classes from 0 to {len(class_names) - 1} in X[:, 0, 0]"
        raise InputError(f"{path} {must}, got {numbers[bad[0]]:g} at row {bad[0] + 1}.")
    return tuple(map(str, class_names))
