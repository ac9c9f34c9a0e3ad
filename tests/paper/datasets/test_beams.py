import json
import shutil

import numpy as np
import pytest
import torch

from ddpn.paper.datasets.beams import inventory, write_beams
from ddpn.paper.datasets.dataset import split
from ddpn.paper.inputs.point_clouds import unpack
from ddpn.runtime.errors import InputError


def cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Ten beams, of 0, 10, 20 .. points, cans and boxes."""
    beams = [(cloud(10 * i, i), "can" if i % 3 else "box", i) for i in range(10)]
    return write_beams(tmp_path_factory.mktemp("beams") / "shop", beams)


@pytest.fixture
def folder(template, tmp_path):
    return shutil.copytree(template, tmp_path / "shop")


def test_a_folder_is_read_as_it_was_written(folder):
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
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    folder.rename(tmp_path / "inventory")
    assert len(inventory().y) == 10


def test_files_of_other_kinds_and_columns_that_are_not_asked_for(folder):
    (folder / "points" / "by hand.xyz").write_text("1 2 3\n", encoding="utf-8")
    np.save(folder / "points" / "shelf.7.npy", cloud(3))
    text = "\ufeffshop,count,class,beam\n12,4,box,by hand.xyz\n12,5,can,shelf.7\n12,6,can,000003\n"
    (folder / "beams.csv").write_text(text, encoding="utf-8")
    data = inventory(folder)
    assert data.y.tolist() == [4, 5, 6]
    assert [len(unpack(beam).points) for beam in data.X] == [1, 3, 30]


def test_classes_have_the_order_of_their_file(folder):
    (folder / "classes.json").write_text('["can", "jar", "box"]', encoding="utf-8")
    data = inventory(folder)
    assert data.classes == ("can", "jar", "box")
    assert data.X[:4, 0, 0].tolist() == [2, 0, 0, 2]


def test_classes_are_written(tmp_path):
    for name, given, expected in (("one", ["jar", "can"], ["jar", "can"]), ("two", None, ["box", "can"])):
        beams = [(cloud(3), "can", 1)] if given else [(cloud(3), "can", 1), (cloud(3), "box", 1)]
        folder = write_beams(tmp_path / "new" / name, beams, classes=given)
        assert json.loads((folder / "classes.json").read_text(encoding="utf-8")) == expected
        assert inventory(folder).X[0, 0, 0] == 1


def test_a_class_keeps_its_number_in_another_folder(folder, tmp_path):
    known = inventory(folder).classes
    other = write_beams(tmp_path / "other", [(cloud(3), "can", 1)])
    data = inventory(other, classes=known)
    assert data.classes == known == ("box", "can")
    assert data.X[0, 0, 0] == 1
    (other / "classes.json").unlink()
    assert inventory(other, classes=np.array(known)).classes == known
    with pytest.raises(InputError, match=r"class of .* must be one of can, got 'box' at row 1\. .* or classes= and"):
        inventory(folder, classes=["can"])


@pytest.mark.parametrize("classes", ["can", [], ["can", "can"], ["can", ""], [1, 2], 3])
def test_invalid_classes(folder, tmp_path, classes):
    for call in (lambda: inventory(folder, classes=classes), lambda: write_beams(tmp_path / "new", [], classes)):
        with pytest.raises(InputError, match=r"^classes must be different names such as .*, got "):
            call()


FAULTS = {
    "beams.csv": {
        "beam,class\n0,can\n": "beams.csv must have the columns beam, class, count, got no count",
        "": "beams.csv is an empty file",
        "beam,class,count\n": "beams.csv is an empty table",
        "beam,class,count\n000001,can,-1\n": "count of .* must hold non-negative integers, got -1 at row 1",
        "beam,class,count\n000001,can,1.5\n": "count of .* must hold non-negative integers, got 1.5 at row 1",
        "beam,class,count\n000001,can,many\n": "Column count of .* must hold finite numbers, got 'many' at row 1",
        "beam,class,count\n000001,,1\n": "Column class of .* must hold text, got none at row 1",
        "beam,class,count\n000001,can,1\nlost,can,1\n": "File not found: .*lost.npy",
        "beam,class,count\n000001,can,1e300\n": r"count of .* must be at most 2\^53, got 1e\+300 at row 1",
        "beam,class,count\n000001,can,1\n000002,can,1\n000001,can,1\n": "counted once, got 000001.npy 2 times",
        "beam,class,count\n000001,can,1\n000001.npy,can,2\n": "Every beam of .*beams.csv must be counted once, got",
    },
    "classes.json": {
        '["can"]': "class of .*beams.csv must be one of can, got 'box' at row 1. Add a new class",
        '["can", "box", "can"]': "must hold a list of different names such as",
        '{"can": 0}': "must hold a list of different names such as",
        "[1, 2]": "must hold a list of different names such as",
        "can": "must hold a list of different names such as",
    },
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FAULTS.items() for text in texts])
def test_an_invalid_folder(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=FAULTS[name][text]):
        inventory(folder)


def test_an_invalid_point_is_reported_with_its_file(folder):
    np.save(folder / "points" / "000004.npy", np.array([[1, 2, 3], [1, np.nan, 3]]))
    with pytest.raises(InputError, match=r"000004\.npy must hold finite coordinates, got \[1.0, nan, 3.0\] at point 2"):
        inventory(folder)


def test_a_folder_without_beams(tmp_path):
    with pytest.raises(InputError, match=rf"^File not found: {tmp_path}/beams.csv\. Pass a folder of beams"):
        inventory(tmp_path)


def test_an_empty_folder_is_filled_and_a_full_one_is_not(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert len(inventory(write_beams(tmp_path / "empty", [(cloud(3), "can", 1)])).y) == 1
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["beams.csv", "classes.json", "points"]
    with pytest.raises(InputError, match=r"folder must be new or empty, got .*shop, which holds files"):
        write_beams(folder, [(cloud(3), "can", 1)])
    assert len(inventory(folder).y) == 10


def test_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_beams(".", [(cloud(3), "can", 1)])
    assert len(inventory(".").y) == len(inventory(tmp_path / "here").y) == 1


@pytest.mark.parametrize("kind", [torch.from_numpy, np.ndarray.tolist])
def test_points_and_counts_of_every_kind(tmp_path, kind):
    folder = write_beams(tmp_path / "shop", [(kind(cloud(3)), "can", np.int32(4)), (kind(cloud(0)), "can", 2.0)])
    data = inventory(folder)
    np.testing.assert_array_equal(unpack(data.X[0]).points, cloud(3))
    assert data.y.tolist() == [4, 2]


NO_BEAMS = {
    "count below": ((cloud(3), "can", -1), "The count of beam 1 must be a non-negative integer, got -1"),
    "count nan": ((cloud(3), "can", np.nan), "The count of beam 1 must be a non-negative integer, got nan"),
    "no count": ((cloud(3), "can", None), "The count of beam 1 must be a non-negative integer, got None"),
    "two columns": ((cloud(3)[:, :2], "can", 1), r"The points of beam 1 must be points \(n, 3\), got float32 of shape"),
    "nan": (([[1, 2, np.nan]], "can", 1), r"The points of beam 1 must hold finite coordinates, got \[1.0, 2.0, nan\]"),
    "another class": ((cloud(3), "jar", 1), "The class of beam 1 must be one of can, box, got 'jar'"),
    "no name": ((cloud(3), "", 1), "The class of beam 1 must be a name, got ''"),
    "a number": ((cloud(3), 3, 1), "The class of beam 1 must be a name, got 3"),
    "a pair": ((cloud(3), "can"), r"beams must be \(points, class, count\), got tuple as beam 1"),
}


@pytest.mark.parametrize("name", NO_BEAMS)
@pytest.mark.parametrize("exists", [False, True])
def test_beams_that_could_not_be_read_are_not_written(tmp_path, name, exists):
    beam, fault = NO_BEAMS[name]
    if exists:
        (tmp_path / "shop").mkdir()
    with pytest.raises(InputError, match=f"^{fault}"):
        write_beams(tmp_path / "shop", [(cloud(3), "can", 1), beam], classes=["can", "box"])
    assert [path.name for path in tmp_path.rglob("*")] == ["shop"] * exists


def test_no_beams(tmp_path):
    with pytest.raises(InputError, match=r"^beams must be one or more, got none\."):
        write_beams(tmp_path / "shop", [])
    with pytest.raises(InputError, match=r"^beams must be a list of \(points, class, count\), got NoneType"):
        write_beams(tmp_path / "shop", None)
    assert list(tmp_path.iterdir()) == []


def test_a_writing_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield cloud(3), "can", 1
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_beams(tmp_path / "shop", broken())
    assert list(tmp_path.iterdir()) == []
