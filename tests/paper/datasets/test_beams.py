import numpy as np
import pandas as pd
import pytest
import torch

from ddpn.paper.datasets.beams import inventory
from ddpn.paper.datasets.dataset import split
from ddpn.paper.inputs.point_clouds import unpack
from ddpn.runtime.errors import InputError


def cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    """Ten beams, of 0, 10, 20 .. points, cans and boxes."""
    (tmp_path / "points").mkdir()
    for i in range(10):
        np.save(tmp_path / "points" / f"slot.{i}.npy", cloud(10 * i, i))
    kinds = ["can" if i % 3 else "box" for i in range(10)]
    table = pd.DataFrame({"shop": 12, "count": range(10), "class": kinds, "beam": [f"slot.{i}" for i in range(10)]})
    table.to_csv(tmp_path / "beams.csv", index=False)
    return tmp_path


def test_a_folder_is_read(folder):
    data = inventory(folder, max_points=40, seed=5)
    assert data.X.shape == (10, 42, 4)
    assert data.classes == ("box", "can")
    assert data.y.tolist() == list(range(10))
    for i, row in enumerate(data.X):
        beam = unpack(row)
        assert data.classes[beam.geometry] == ("can" if i % 3 else "box")
        assert len(beam.points) == min(10 * i, 40)
        if 0 < i <= 4:
            np.testing.assert_array_equal(beam.points, cloud(10 * i, i))
    assert data.note == "1 of 10 beams have no point"
    expected = split(10, 5, (0.7, 0.1, 0.2))
    for part in ("train", "validation", "test"):
        rows = getattr(expected, part)
        x, y = data.part(part)
        np.testing.assert_array_equal(y, rows)
        assert torch.equal(x, data.X[torch.from_numpy(rows)])


def test_the_default_is_in_the_data_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path.parent))
    folder.rename(tmp_path.parent / "inventory")
    assert len(inventory().y) == 10


def test_a_class_keeps_its_number_in_another_folder(folder):
    data = inventory(folder, classes=["can", "jar", "box"])
    assert data.classes == ("can", "jar", "box")
    assert data.X[:4, 0, 0].tolist() == [2, 0, 0, 2]
    with pytest.raises(InputError, match=r"must be one of can, got 'box' at row 1\. Add a new class to `classes`"):
        inventory(folder, classes=["can"])


@pytest.mark.parametrize("classes", ["can", [], ["can", "can"], ["can", ""], [1, 2], 3])
def test_invalid_classes(folder, classes):
    with pytest.raises(InputError) as found:
        inventory(folder, classes=classes)
    assert found.value.argument == "classes"


FAULTS = {
    "beam,class\n0,can\n": "got no count",
    "": "is an empty file",
    "beam,class,count\n": "is an empty table",
    "beam,class,count\nslot.1,can,-1\n": "got -1 at row 1",
    "beam,class,count\nslot.1,can,many\n": "got 'many' at row 1",
    "beam,class,count\nslot.1,,1\n": "got none at row 1",
    "beam,class,count\nslot.1,can,1\nlost,can,1\n": "File not found: .*lost.npy",
    "beam,class,count\nslot.1,can,1\nslot.2,can,1\nslot.1,can,1\n": "counted once, got slot.1 2 times",
}


@pytest.mark.parametrize("text", FAULTS)
def test_an_invalid_table(folder, text):
    (folder / "beams.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=FAULTS[text]):
        inventory(folder)


def test_an_invalid_point_is_reported_with_its_file(folder):
    np.save(folder / "points" / "slot.4.npy", np.array([[1, 2, 3], [1, np.nan, 3]]))
    with pytest.raises(InputError, match=r"slot\.4\.npy must .*, got \[1.0, nan, 3.0\] at point 2"):
        inventory(folder)


def test_a_folder_without_beams(tmp_path):
    with pytest.raises(InputError, match=rf"^File not found: {tmp_path}/beams.csv\. Pass a folder of beams"):
        inventory(tmp_path)
