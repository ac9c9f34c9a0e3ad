"""Test that rays meet solids, that simulated products stand on their shelf, and that the camera sees them."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from ddpn.paper.datasets.dataset import split
from ddpn.paper.datasets.shelves import (
    CLEARANCE,
    GEOMETRIES,
    SHELF,
    Scene,
    compute_entrance,
    draw_scenes,
    measure_points,
    render,
    simulate_shelves,
)
from ddpn.runtime.errors import InputError

# The camera -----------------------------------------------------------------------------------------------------------


def is_inside(points, is_round, ax, az, width, depth, low, high):
    """Return True for points (..., 3) inside of a solid, by its definition."""
    x, y, z = np.moveaxis(points, -1, 0)
    disc = (x - ax) ** 2 + (z - az) ** 2 <= (width / 2) ** 2
    rectangle = (abs(x - ax) <= width / 2) & (abs(z - az) <= depth / 2)
    return np.where(is_round, disc, rectangle) & (low <= y) & (y <= high)


@pytest.mark.parametrize("is_round", [False, True])
def test_the_entrance_is_where_a_walk_along_the_ray_first_stands_inside(is_round):
    rng, steps = np.random.default_rng(0), np.linspace(0.5, 2.5, 2001)
    differ, seen = [], []
    for _ in range(6):
        low = rng.uniform(-0.1, 0.1)
        x, z, width, depth = rng.uniform([-0.2, 0.3, 0.2, 0.2], [0.2, 0.6, 0.6, 0.6])
        sides = (width, width if is_round else depth, low, low + rng.uniform(0.2, 0.5))
        eye = rng.uniform([-0.5, -0.3, -1.5], [0.5, 0.8, -1.0])
        rays = np.stack([rng.uniform(-0.3, 0.3, 42), rng.uniform(0.0, 0.5, 42), np.zeros(42)], -1) - eye
        (t,) = compute_entrance(eye, rays, is_round, np.array([[x]]), np.array([[z]]), *sides)
        inside = is_inside(eye + steps[:, None] * rays[:, None, :], is_round, x, z, *sides)
        first = np.where(inside.any(-1), steps[inside.argmax(-1)], np.inf)
        both = np.isfinite(first) & np.isfinite(t)
        assert np.all(np.abs(t[both] - first[both]) <= steps[1] - steps[0])
        differ += (np.isfinite(t) != np.isfinite(first)).tolist()
        seen += np.isfinite(first).tolist()
    assert 0.2 < np.mean(seen) < 0.8
    # A ray that grazes may be inside for less than a step.
    assert np.mean(differ) < 0.01


@pytest.mark.parametrize(
    ("eye", "ray", "z"),
    [([0.0, 0.0, 0.0], [0.1, 0.1, 1.0], -3.0), ([0.1, 0.5, -1.0], [0.0, 0.0, 1.0], 0.5)],
    ids=["behind the camera", "in the plane of a face"],
)
def test_a_ray_that_misses_a_box_never_meets_it(eye, ray, z):
    box = (np.array([[0.0]]), np.array([[z]]), 0.2, 0.2, -1.0, 1.0)
    assert np.isinf(compute_entrance(np.array(eye), np.array([ray]), False, *box)).all()


# Shelves --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few_scenes():
    return draw_scenes(200, np.random.default_rng(1))


def test_products_stand_behind_one_another_on_their_shelf():
    for scene in draw_scenes(2000, np.random.default_rng(0)):
        x, z = scene.x[: scene.products], scene.z[: scene.products]
        front, back = z - scene.depth / 2, z + scene.depth / 2
        assert np.all(front[1:] - back[:-1] > -1e-6)
        assert front[0] >= 0
        assert back[-1] <= SHELF[1] + 1e-6
        assert np.all(np.abs(x) + scene.width / 2 <= scene.slot_width / 2 + 1e-6)
        assert scene.opening_height - scene.height >= CLEARANCE[0] - 1e-6


def measure_offset(scene: Scene, points, item, width, depth, low, high):
    """Measure how far points are outside of a solid, or inside of its nearest face."""
    x, y, z = points[:, 0] - scene.x[item], points[:, 1], points[:, 2] - scene.z[item]
    is_round = list(GEOMETRIES.values())[scene.geometry].is_round
    sides = np.hypot(x, z) - width / 2 if is_round else np.maximum(abs(x) - width / 2, abs(z) - depth / 2)
    return np.abs(np.maximum(sides, abs(y - (low + high) / 2) - (high - low) / 2))


def test_seen_points_lie_on_the_surface_of_their_product(few_scenes):
    for scene in few_scenes:
        rays, met = render(scene)
        seen = np.isfinite(met.min(0))
        assert seen.any()
        points, item = scene.eye + met.min(0)[seen, None] * rays[seen], met.argmin(0)[seen]
        up, wide, deep = list(GEOMETRIES.values())[scene.geometry].top
        shoulder = scene.height * (1 - up)
        distance = measure_offset(scene, points, item, scene.width, scene.depth, 0.0, shoulder)
        if up > 0:
            top = measure_offset(scene, points, item, scene.width * wide, scene.depth * deep, shoulder, scene.height)
            distance = np.minimum(distance, top)
        assert distance.max() < 2e-6


def test_products_in_front_hide_those_behind(few_scenes):
    nearest = [met.argmin(0)[np.isfinite(met.min(0))] for _, met in map(render, few_scenes)]
    assert all((items == 0).any() for items in nearest), "no row is hidden from its front"
    hidden = np.mean([len(np.unique(items)) < scene.products for scene, items in zip(few_scenes, nearest, strict=True)])
    assert 0.1 < hidden < 0.5


def test_noise_grows_with_the_square_of_the_distance(few_scenes):
    # Twice, so that there are enough draws.
    scenes, errors = [*few_scenes, *few_scenes], []
    for scene, cloud in zip(scenes, measure_points(scenes, np.random.default_rng(3)), strict=True):
        rays, met = render(scene)
        seen = np.isfinite(met.min(0))
        points = met.min(0)[seen, None] * rays[seen]
        distance, length = np.linalg.norm(points, axis=1), np.linalg.norm(cloud, axis=1)
        # Points are moved along their rays.
        gap, pixel = cKDTree(points / distance[:, None]).query(cloud / length[:, None])
        assert gap.max() < 1e-5
        errors.append((length - distance[pixel]) / distance[pixel] ** 2)
    error = np.concatenate(errors)
    # 100,000 draws of a normal with sd .002: their mean and sd are off by less than 1%.
    assert len(error) > 100_000
    assert abs(error.mean()) < 2e-5
    assert abs(error.std() / 0.002 - 1) < 0.01


def test_a_seed_determines_a_simulation():
    first, again, other = (simulate_shelves(30, seed=seed, max_points=32) for seed in (1, 1, 2))
    assert torch.equal(first.X, again.X)
    assert not torch.equal(first.X, other.X)
    assert first.classes == tuple(GEOMETRIES)
    for rows, expected in zip(first.split, split(30, 1, (0.7, 0.1, 0.2)), strict=True):
        np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize(("options", "name"), [({"n": 0}, "n"), ({"n": 2.5}, "n"), ({"n": 2, "seed": -1}, "seed")])
def test_invalid_arguments_are_refused(options, name):
    with pytest.raises(InputError) as error:
        simulate_shelves(**options)
    assert error.value.argument == name
