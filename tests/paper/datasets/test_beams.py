"""Test packed beams from a file: what `pack` and `simulate_shelves` make is read as it was."""

import numpy as np
import pytest
import torch

from ddpn.paper.datasets import inventory, load, simulate_shelves, split
from ddpn.paper.datasets.dataset import LARGE_SHARES
from ddpn.runtime.errors import InputError


def save_arrays(folder, **arrays):
    (folder / "inventory").mkdir(exist_ok=True)
    np.savez(folder / "inventory" / "beams.npz", **arrays)


def test_simulated_shelves_are_read_as_they_were_written(tmp_path):
    drawn = simulate_shelves(30, max_points=16)
    save_arrays(tmp_path, X=drawn.X.numpy(), y=drawn.y, classes=list(drawn.classes))
    data = load("inventory")
    assert torch.equal(data.X, drawn.X)
    assert (data.X.dtype, data.classes) == (torch.float32, drawn.classes)
    np.testing.assert_array_equal(data.y, drawn.y)
    np.testing.assert_array_equal(data.split.train, split(30, shares=LARGE_SHARES).train)
    save_arrays(tmp_path, X=drawn.X.numpy(), y=drawn.y)
    assert inventory().classes == ("0", "1", "2", "3")


BEAMS = np.zeros((6, 5, 4), dtype=np.float32)
COUNTS = np.arange(6)
UNKNOWN, BROKEN = BEAMS.copy(), BEAMS.copy()
UNKNOWN[2, 0, 0], BROKEN[3, 0, 0] = 2.0, 0.5


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": BEAMS}, "must be a file of numpy.savez with the arrays X and y"),
        (
            {"X": BEAMS[:, :, :3], "y": COUNTS},
            r"must have packed beams X \(n, 2 \+ N, 4\) .*got X of shape \(6, 5, 3\)",
        ),
        ({"X": BEAMS, "y": COUNTS[:5]}, r"y of shape \(5,\)"),
        ({"X": BEAMS, "y": COUNTS - 1}, "y must"),
        ({"X": UNKNOWN, "y": COUNTS, "classes": ["a", "b"]}, r"classes from 0 to 1 in X\[:, 0, 0\], got 2 at row 3"),
        ({"X": BROKEN, "y": COUNTS}, r"got 0\.5 at row 4"),
        ({"X": BEAMS, "y": np.array([object()] * 6)}, "must be a file of numpy.savez"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, arrays, words):
    save_arrays(tmp_path, **arrays)
    with pytest.raises(InputError, match=words):
        inventory()


def test_a_missing_file_says_how_to_get_it():
    with pytest.raises(InputError, match=r"^File not found: .*beams\.npz\. The paper's data are private\. Pack"):
        inventory()
