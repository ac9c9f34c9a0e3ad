import numpy as np
import pytest
import torch

from ddpn.paper.inputs import point_clouds
from ddpn.paper.inputs.point_clouds import pack, read_points, unpack
from ddpn.runtime.errors import InputError


def cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


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
    np.testing.assert_array_equal(beam.center, (cloud(5).max(0) + cloud(5).min(0)) / 2)


@pytest.mark.parametrize("kind", [torch.from_numpy, np.ndarray.tolist, lambda points: points.astype(np.float64)])
def test_clouds_and_classes_of_every_kind(kind):
    clouds = [cloud(5), cloud(0), cloud(9)]
    expected = pack(clouds, np.array([2, 0, 1]), max_points=6)
    for geometry in ([2, 0, 1], torch.tensor([2, 0, 1]), np.array([2.0, 0.0, 1.0])):
        assert torch.equal(pack([kind(points) for points in clouds], geometry, max_points=6), expected)


TWO = [cloud(4), cloud(4)]
INVALID = {
    "one axis": ([cloud(1)[0]], [0], {}, r"cloud 0 must be points \(n, 3\), got .* shape \(3,\)\."),
    "one column": ([cloud(4)[:, :1]], [0], {}, r"cloud 0 must be points \(n, 3\), got .* shape \(4, 1\)"),
    "two columns": ([cloud(4), cloud(4)[:, :2]], [0, 0], {}, r"cloud 1 must be .* shape \(4, 2\)"),
    "four columns": ([np.zeros((4, 4))], [0], {}, r"cloud 0 must be .*float64 of shape \(4, 4\)"),
    "ragged": ([[[1, 2, 3], [1, 2]]], [0], {}, r"cloud 0 must be points \(n, 3\), got list"),
    "no clouds": (None, [0], {}, r"clouds must be a list of points \(n, 3\), got NoneType"),
    "no cloud": ([None], [0], {}, r"cloud 0 must be points \(n, 3\), got NoneType"),
    "words": ([[["a", "b", "c"]]], [0], {}, r"cloud 0 must be points \(n, 3\), got <U1"),
    "nan": ([[[1, 2, 3], [1, np.nan, 3]]], [0], {}, r"finite coordinates, got \[1.0, nan, 3.0\] at point 2"),
    "too large": ([[[1, 2, 1e60]]], [0], {}, r"cloud 0 must hold finite coordinates, got \[1.0, 2.0, 1e\+60"),
    "one class": (TWO, [1], {}, "geometry must have one count per row of X, got 1 for 2 rows"),
    "no class": (TWO, None, {}, r"geometry must have one dimension, got shape \(\)"),
    "a name": (TWO, ["box", "can"], {}, "geometry must hold numbers, got 'box' at rows 0, 1"),
    "a class below": (TWO, [0, -1], {}, "geometry must hold non-negative integers, got -1 at row 1"),
    "half a class": (TWO, [0, 0.5], {}, "geometry must hold non-negative integers, got 0.5 at row 1"),
    "no number": (TWO, [0, np.nan], {}, "geometry must be finite, got nan at row 1"),
    "half a point": (TWO, [0, 1], {"max_points": 2.5}, "max_points must be an integer of at least 1, got 2.5"),
    "no points": (TWO, [0, 1], {"max_points": 0}, "max_points must be an integer of at least 1, got 0"),
    "a seed below": (TWO, [0, 1], {"seed": -1}, "seed must be an integer of at least 0, got -1"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_clouds(name):
    clouds, geometry, options, fault = INVALID[name]
    with pytest.raises(InputError, match=fault):
        pack(clouds, geometry, **options)


def test_points_of_a_file(tmp_path):
    np.save(tmp_path / "a.npy", cloud(5).astype(np.float64))
    found = read_points(tmp_path / "a.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, cloud(5))


@pytest.mark.parametrize(
    ("content", "fault"),
    [(None, "File not found"), (b"", "EOFError"), (b"x,y,z", "got ValueError"), (np.zeros((4, 2)), "float64 of shape")],
)
def test_files_without_points(tmp_path, content, fault):
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(InputError, match=fault):
        read_points(path)


def test_one_beam_is_unpacked_and_not_many():
    x = pack([cloud(5)], [2], max_points=9)
    assert unpack(x[0].requires_grad_()).geometry == unpack(x[0].detach().numpy()).geometry == 2
    for strange in (x, x[0, 0], x[0, :1], x[0, :, :3]):
        with pytest.raises(InputError, match=r"^x must be one packed beam \(2 \+ N, 4\), got shape .* Take one: x"):
            unpack(strange)


def test_the_contract_is_written_in_the_words_of_the_network():
    from ddpn.networks.backbones import countnet3d

    def contract(text):
        return text.partition("Packed beams:")[2]

    assert contract(point_clouds.__doc__) == contract(countnet3d.__doc__) != ""
