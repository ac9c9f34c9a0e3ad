"""Folders of beams are read; rays meet solids; simulated products stand on their shelf, and the camera sees them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn.paper.datasets.dataset import split
from ddpn.paper.datasets.shelves import (
    CLEARANCE,
    GEOMETRIES,
    MOST,
    SHELF,
    Camera,
    Rays,
    Solids,
    draw_scenes,
    entrance,
    inventory,
    measure,
    render,
    simulate_shelves,
    through,
)
from ddpn.paper.inputs import unpack
from ddpn.runtime.errors import InputError

# Folders of beams -----------------------------------------------------------------------------------------------------


def cloud(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


@pytest.fixture
def beams(tmp_path):
    """Ten beams, of 0, 10, 20 .. points, cans and boxes."""
    (tmp_path / "points").mkdir()
    for i in range(10):
        np.save(tmp_path / "points" / f"slot.{i}.npy", cloud(10 * i, i))
    kinds = ["can" if i % 3 else "box" for i in range(10)]
    table = pd.DataFrame({"shop": 12, "count": range(10), "class": kinds, "beam": [f"slot.{i}" for i in range(10)]})
    table.to_csv(tmp_path / "beams.csv", index=False)
    return tmp_path


def test_a_folder_is_read(beams):
    data = inventory(beams, max_points=40, seed=5)
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


def test_a_class_keeps_its_number_in_another_folder(beams):
    data = inventory(beams, classes=["can", "jar", "box"])
    assert data.classes == ("can", "jar", "box")
    assert data.X[:4, 0, 0].tolist() == [2, 0, 0, 2]
    with pytest.raises(InputError, match=r"must be one of can, got 'box' at row 1\. Add a new class to `classes`"):
        inventory(beams, classes=["can"])


@pytest.mark.parametrize("classes", ["can", [], ["can", "can"], ["can", ""], [1, 2], 3])
def test_invalid_classes(beams, classes):
    with pytest.raises(InputError) as found:
        inventory(beams, classes=classes)
    assert found.value.argument == "classes"


FAULTS: dict[str | None, str] = {
    None: "^File not found: .*/beams.csv. Pass a folder of beams",
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
def test_an_invalid_table_of_beams(beams, text):
    (beams / "beams.csv").unlink() if text is None else (beams / "beams.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=FAULTS[text]):
        inventory(beams)


def test_an_invalid_point_is_reported_with_its_file(beams):
    np.save(beams / "points" / "slot.4.npy", np.array([[1, 2, 3], [1, np.nan, 3]]))
    with pytest.raises(InputError, match=r"slot\.4\.npy must .*, got \[1.0, nan, 3.0\] at point 2"):
        inventory(beams)


# The camera -----------------------------------------------------------------------------------------------------------


def solids(n: int, rng: np.random.Generator) -> Solids:
    is_round = np.arange(n) % 2 == 0
    width, depth = rng.uniform(0.2, 0.6, (2, n))
    x, z, low = rng.uniform(-0.2, 0.2, n), rng.uniform(0.3, 0.6, n), rng.uniform(-0.1, 0.1, n)
    return Solids(is_round, x, z, width, np.where(is_round, width, depth), low, low + rng.uniform(0.2, 0.5, n))


def is_inside(points: np.ndarray, these: Solids) -> np.ndarray:
    """Points (B, R, T, 3) by the solids' definition."""
    x, y, z = np.moveaxis(points, -1, 0)
    column = [value[:, None, None] for value in these]
    is_round, ax, az, width, depth, low, high = column
    disc = (x - ax) ** 2 + (z - az) ** 2 <= (width / 2) ** 2
    rectangle = (abs(x - ax) <= width / 2) & (abs(z - az) <= depth / 2)
    return np.where(is_round, disc, rectangle) & (low <= y) & (y <= high)


def test_the_entrance_is_where_a_walk_along_the_ray_first_stands_inside():
    rng = np.random.default_rng(0)
    these = solids(12, rng)
    eye = rng.uniform([-0.5, -0.3, -1.5], [0.5, 0.8, -1.0], (12, 3))
    rays = through(eye, np.full(12, 0.6), np.full(12, 0.5), Camera(rows=6, columns=7))
    t = entrance(rays, these)
    steps = np.linspace(0.5, 2.5, 2001)
    walk = rays.origin[:, :, None, :] + steps[:, None] * rays.direction[:, :, None, :]
    inside = is_inside(walk, these)
    first = np.where(inside.any(-1), steps[inside.argmax(-1)], np.inf)
    meets = np.isfinite(first)
    assert 0.2 < meets.mean() < 0.8
    # A ray that grazes may be inside for less than a step.
    assert (np.isfinite(t) != meets).mean() < 0.01
    both = meets & np.isfinite(t)
    assert np.all(np.abs(t[both] - first[both]) <= steps[1] - steps[0])


def test_solids_behind_the_camera_are_missed():
    these = Solids(np.array([False]), *np.array([[0], [-3.0], [1], [1], [-1], [1]], float))
    rays = Rays(np.zeros((1, 1, 3)), np.array([[[0.1, 0.1, 1.0]]]))
    assert np.isinf(entrance(rays, these)).all()


def test_a_ray_in_the_plane_of_a_face_misses():
    these = Solids(np.array([False]), *np.array([[0], [0.5], [0.2], [0.2], [0], [1]], float))
    rays = Rays(np.array([[[0.1, 0.5, -1.0]]]), np.array([[[0.0, 0.0, 1.0]]]))
    assert np.isinf(entrance(rays, these)).all()


def test_rays_go_through_the_middles_of_pixels():
    rays = through(np.array([[0.1, 0.5, -2.0]]), np.array([0.4]), np.array([0.6]), Camera(rows=3, columns=2))
    at = (rays.origin + rays.direction)[0]
    expected = [(x, y, 0.0) for y in (0.1, 0.3, 0.5) for x in (-0.1, 0.1)]
    np.testing.assert_allclose(at, expected, atol=1e-7)


# Shelves --------------------------------------------------------------------------------------------------------------


PERFECT = Camera(noise=0.0, dropout=(0.0, 0.0))


@pytest.fixture(scope="module")
def scenes():
    return draw_scenes(2000, Camera(), np.random.default_rng(0))


@pytest.fixture(scope="module")
def few():
    return draw_scenes(200, PERFECT, np.random.default_rng(1))


def test_products_stand_behind_one_another_on_their_shelf(scenes):
    there = np.arange(MOST) < scenes.count[:, None]
    front, back = scenes.z - scenes.depth[:, None] / 2, scenes.z + scenes.depth[:, None] / 2
    gaps = np.where(there[:, 1:], front[:, 1:] - back[:, :-1], 0.0)
    assert gaps.min() > -1e-6
    assert front[:, 0].min() >= 0
    assert back[there].max() <= SHELF[1] + 1e-6
    assert np.all(np.abs(scenes.x) + scenes.width[:, None] / 2 <= scenes.slot[:, None] / 2 + 1e-6)
    assert np.all(scenes.opening - scenes.height >= CLEARANCE[0] - 1e-6)


def test_what_is_seen_lies_on_the_surface_of_the_product_that_is_seen(few):
    rays, t, which = render(few, PERFECT)
    beam, pixel = np.nonzero(which >= 0)
    assert np.array_equal(np.isfinite(t), which >= 0)
    points = rays.origin[beam, 0] + t[beam, pixel, None] * rays.direction[beam, pixel]
    item = which[beam, pixel]
    x, y, z = points[:, 0] - few.x[beam, item], points[:, 1], points[:, 2] - few.z[beam, item]
    kinds = list(GEOMETRIES.values())
    is_round = np.array([kind.is_round for kind in kinds])[few.geometry[beam]]
    up, wide, deep = np.array([kind.top for kind in kinds])[few.geometry[beam]].T
    width, depth, height = few.width[beam], few.depth[beam], few.height[beam]

    def off(width, depth, low, high):
        """How far outside of a solid, and how far inside of its nearest face."""
        middle, half = (low + high) / 2, (high - low) / 2
        sides = np.where(is_round, np.hypot(x, z) - width / 2, np.maximum(abs(x) - width / 2, abs(z) - depth / 2))
        return np.abs(np.maximum(sides, abs(y - middle) - half))

    body = off(width, depth, 0 * height, height * (1 - up))
    top = np.where(up > 0, off(width * wide, depth * deep, height * (1 - up), height), np.inf)
    assert np.minimum(body, top).max() < 2e-6


def test_the_nearest_hides_what_is_behind(few):
    _, t, which = render(few, PERFECT)
    # With the products in the opposite order nothing else is seen: the depth decides, not the order.
    order = few.count[:, None] - 1 - np.arange(MOST)
    turned = np.where(order >= 0, order, np.arange(MOST))
    x, z = (np.take_along_axis(a, turned, axis=1) for a in (few.x, few.z))
    _, again, other = render(replace(few, x=x, z=z), PERFECT)
    np.testing.assert_array_equal(again, t)
    assert np.array_equal(np.where(other >= 0, np.take_along_axis(turned, other, 1), -1), which)
    seen_of = np.array([len(np.unique(row[row >= 0])) for row in which])
    assert np.all(seen_of <= few.count)
    # Of a quarter of the rows something is hidden, and no row is hidden from its front.
    assert 0.1 < (seen_of < few.count).mean() < 0.5
    assert np.all((which == 0).any(1))


def test_noise_grows_with_the_square_of_the_distance(few):
    camera = replace(PERFECT, noise=0.002)
    clean, noisy = (measure(few, each, np.random.default_rng(3)) for each in (PERFECT, camera))
    a, b = np.concatenate(clean), np.concatenate(noisy)
    distance, length = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(b / length[:, None], a / distance[:, None], atol=1e-5)
    error = (length - distance) / distance**2
    # 100,000 draws of a normal with sd .002: their mean and sd are off by less than 1%.
    assert len(error) > 100_000
    assert abs(error.mean()) < 2e-5
    assert abs(error.std() / 0.002 - 1) < 0.01


def test_a_seed_is_a_simulation():
    first, again, other = (simulate_shelves(30, seed=seed, max_points=32) for seed in (1, 1, 2))
    assert torch.equal(first.X, again.X)
    assert not torch.equal(first.X, other.X)
    assert first.classes == tuple(GEOMETRIES)
    for rows, expected in zip(first.split, split(30, 1, (0.7, 0.1, 0.2)), strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_counts_given_class_and_depth_are_under_dispersed():
    """Most of what a count is can be seen: what is left varies less than a Poisson distribution of the same mean."""
    data = simulate_shelves(600, seed=1, max_points=8)
    depth, geometry = data.X[:, 1, 3].numpy(), data.X[:, 0, 0].numpy()
    ratios = []
    for number in range(len(GEOMETRIES)):
        order = np.argsort(np.where(geometry == number, depth, np.inf))[: int((geometry == number).sum())]
        ratios += [data.y[part].var() / data.y[part].mean() for part in np.array_split(order, 5)]
    assert np.mean(ratios) < 0.6
    assert data.y.var() / data.y.mean() > 0.7


@pytest.mark.parametrize(("options", "name"), [({"n": 0}, "n"), ({"n": 2.5}, "n"), ({"n": 2, "seed": -1}, "seed")])
def test_invalid_arguments(options, name):
    with pytest.raises(InputError) as found:
        simulate_shelves(**options)
    assert found.value.argument == name
