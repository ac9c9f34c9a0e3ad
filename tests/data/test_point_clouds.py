import json

import numpy as np
import pytest
import torch

from ddpn.data import point_clouds
from ddpn.data.point_clouds import Clouds, inventory, pack, unpack, write_beams
from ddpn.data.split import split
from ddpn.errors import InputError


def cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    """Ten beams, of 0, 10, 20 .. points, cans and boxes."""
    beams = [(cloud(10 * i, i), "can" if i % 3 else "box", i) for i in range(10)]
    return write_beams(tmp_path / "shop", beams)


def test_a_packed_beam_is_as_the_contract_has_it():
    points = np.array([[1, 2, 3], [3, 2, 7], [2, 6, 5]], dtype=np.float32)
    x = pack([points, points[:0]], np.array([4, 2]), max_points=4)
    assert x.dtype == torch.float32
    assert x[0].tolist() == [[4, 2, 4, 5], [0, 2, 4, 4], [1, 1, 2, 3], [1, 3, 2, 7], [1, 2, 6, 5], [0, 0, 0, 0]]
    assert x[1].tolist() == [[2, 0, 0, 0]] + [[0, 0, 0, 0]] * 5


def test_too_many_points_leave_a_random_subset_and_the_box_of_all():
    clouds = [cloud(500, 1), cloud(500, 1), cloud(8, 2)]
    x = pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=3)
    kept = [unpack(beam).points for beam in x]
    all_points = {tuple(point) for point in clouds[0]}
    assert len({tuple(point) for point in kept[0]} & all_points) == 64
    assert not np.array_equal(kept[0], kept[1]), "each beam has its own subset"
    np.testing.assert_array_equal(kept[2], clouds[2])
    np.testing.assert_array_equal(x[0, 1, 1:], clouds[0].max(0) - clouds[0].min(0))
    assert torch.equal(x, pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=3))
    assert not torch.equal(x, pack(clouds, np.zeros(3, dtype=int), max_points=64, seed=4))


def test_a_subset_is_of_all_points_alike():
    # 400 beams each keep 50 of 100 points: each point 200 times, give or take 10; 5 sd are 50.
    points = np.arange(300, dtype=np.float32).reshape(100, 3)
    x = pack([points] * 400, np.zeros(400, dtype=int), max_points=50)
    times = np.bincount((x[:, 2:, 1].flatten().long() // 3).numpy(), minlength=100)
    assert times.sum() == 400 * 50
    assert np.abs(times - 200).max() < 50


def test_a_beam_comes_out_as_it_went_in():
    beam = unpack(pack([cloud(5)], np.array([2]), max_points=9)[0])
    assert beam.geometry == 2
    np.testing.assert_array_equal(beam.points, cloud(5))
    np.testing.assert_array_equal(beam.extent, cloud(5).max(0) - cloud(5).min(0))
    np.testing.assert_array_equal(beam.centre, (cloud(5).max(0) + cloud(5).min(0)) / 2)


def test_no_points_to_keep():
    with pytest.raises(InputError, match=r"^max_points must be at least 1, got 0\. Keep a point a beam or more\.$"):
        pack([], np.zeros(0, dtype=int), max_points=0)


def test_a_folder_is_read_as_it_was_written(folder):
    data = inventory(folder, max_points=40, seed=5)
    assert data.x.shape == (10, 42, 4)
    assert data.classes == ("box", "can")
    assert data.y.tolist() == list(range(10))
    for i, row in enumerate(data.x):
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
        assert torch.equal(x, data.x[torch.from_numpy(rows)])


def test_the_data_folder_is_where_it_looks(folder, tmp_path, monkeypatch):
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
    assert [len(unpack(beam).points) for beam in data.x] == [1, 3, 30]


def test_classes_have_the_order_of_their_file(folder):
    (folder / "classes.json").write_text('["can", "jar", "box"]', encoding="utf-8")
    data = inventory(folder)
    assert data.classes == ("can", "jar", "box")
    assert data.x[:4, 0, 0].tolist() == [2, 0, 0, 2]


def test_classes_are_written_where_they_are_given(tmp_path):
    folder = write_beams(tmp_path / "new" / "shop", [(cloud(3), "can", 1)], classes=["jar", "can"])
    assert json.loads((folder / "classes.json").read_text(encoding="utf-8")) == ["jar", "can"]
    assert inventory(folder).x[0, 0, 0] == 1


FAULTS = {
    "beams.csv": {
        "beam,class\n0,can\n": "the header of .*beams.csv must name beam, class, count, got no count",
        "": "the header of .*beams.csv must name beam, class, count, got no beam, class, count",
        "beam,class,count\n": "must hold rows, got a header alone",
        "beam,class,count\n000001,can,-1\n": "count of .* must hold non-negative integers, got -1 in row 1",
        "beam,class,count\n000001,can,1.5\n": "count of .* must hold non-negative integers, got 1.5 in row 1",
        "beam,class,count\n000001,can,many\n": "column count of .* must hold finite numbers, got 'many' in row 1",
        "beam,class,count\n000001,,1\n": "column class of .* must hold text, got nothing in row 1",
        "beam,class,count\n000001,can,1\nlost,can,1\n": "lost.npy must be there, got no such file",
    },
    "classes.json": {
        '["can"]': "class of .*beams.csv must be one of can, got 'box' in row 1. Mend that row, or add the class",
        '["can", "box", "can"]': "must hold a list of different names, got something else",
        '{"can": 0}': "must hold a list of different names, got something else",
        "[1, 2]": "must hold a list of different names, got something else",
        "can": "must hold a list of different names, got something else",
    },
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FAULTS.items() for text in texts])
def test_a_folder_that_is_not_in_order(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=FAULTS[name][text]):
        inventory(folder)


def test_a_point_that_is_none_is_told_with_its_file(folder):
    np.save(folder / "points" / "000004.npy", np.array([[1, 2, 3], [1, np.nan, 3]]))
    with pytest.raises(InputError, match=r"000004\.npy must hold finite coordinates, got \[1.0, nan, 3.0\] as point 2"):
        inventory(folder)


def test_a_folder_without_beams(tmp_path):
    with pytest.raises(
        InputError, match=rf"^{tmp_path} must hold beams.csv, got no such file\. Name a folder of beams"
    ):
        inventory(tmp_path)


def test_an_empty_folder_is_filled_and_a_full_one_is_not(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert len(inventory(write_beams(tmp_path / "empty", [(cloud(3), "can", 1)])).y) == 1
    with pytest.raises(InputError, match=r"folder must be new or empty, got .*shop, which holds files"):
        write_beams(folder, [(cloud(3), "can", 1)])
    assert len(inventory(folder).y) == 10


def test_a_writing_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield cloud(3), "can", 1
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_beams(tmp_path / "shop", broken())
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_match_is_refused():
    x = torch.zeros(3, 4, 4)
    with pytest.raises(InputError, match="x, y and split must have the same beams, got 3, 4 and 5"):
        Clouds("bad", x, np.ones(4, dtype=int), ("can",), split(5), "none")
    data = Clouds("good", x, np.ones(3, dtype=int), ("can",), split(3), "none")
    with pytest.raises(InputError, match="part must be train, validation or test, got 'dev'"):
        data.part("dev")


def test_the_contract_is_written_in_the_words_of_the_network():
    from ddpn.backbones import countnet3d

    def contract(text):
        return text.partition("Packed beams:")[2]

    assert contract(point_clouds.__doc__) == contract(countnet3d.__doc__) != ""
