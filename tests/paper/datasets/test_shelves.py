"""Simulated shelves: products stand on their shelf, the camera sees their surfaces, and counts are hard to infer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ddpn.paper.datasets.dataset import split
from ddpn.paper.datasets.depth_camera import Camera
from ddpn.paper.datasets.shelves import (
    CLEARANCE,
    GEOMETRIES,
    MOST,
    SHELF,
    draw_scenes,
    measure,
    render,
    simulate_shelves,
)
from ddpn.paper.inputs.point_clouds import unpack
from ddpn.runtime.errors import InputError

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


def test_products_have_the_sizes_of_their_class(scenes):
    assert list(GEOMETRIES) == sorted(GEOMETRIES), "classes are numbered in the order of their names"
    for number, kind in enumerate(GEOMETRIES.values()):
        chosen = scenes.geometry == number
        assert 0.2 < chosen.mean() < 0.3
        for sizes, ends in (
            (scenes.width, kind.width),
            (scenes.height, kind.height),
            (scenes.depth / scenes.width, kind.depth),
        ):
            assert sizes[chosen].min() >= ends[0] - 1e-6
            assert sizes[chosen].max() <= ends[1] + 1e-6
        if kind.is_round:
            np.testing.assert_array_equal(scenes.depth[chosen], scenes.width[chosen])


def test_counts_vary_from_one_to_a_dozen(scenes):
    assert scenes.count.min() == 1
    assert scenes.count.max() == MOST
    assert np.all(scenes.count <= np.maximum(1, SHELF[1] // scenes.depth))


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


def test_no_camera_sees_behind_the_front_of_boxes_it_looks_up_to():
    below = replace(PERFECT, above=(-0.09, -0.05))
    scenes = draw_scenes(200, below, np.random.default_rng(2))
    boxes = scenes.geometry == list(GEOMETRIES).index("box")
    # Through the air above them the camera sees no top, and past their sides at most what is no wider than the slot.
    _, _, which = render(scenes, below)
    assert (which[boxes] > 0).mean() < 0.02
    assert (which[boxes] == 0).mean() > 0.4


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


def test_lost_pixels():
    scenes = draw_scenes(50, PERFECT, np.random.default_rng(1))
    rng = np.random.default_rng
    full = [len(points) for points in measure(scenes, PERFECT, rng(3))]
    half = [len(points) for points in measure(scenes, replace(PERFECT, dropout=(0.5, 0.5)), rng(3))]
    none = [len(points) for points in measure(scenes, replace(PERFECT, dropout=(1.0, 1.0)), rng(3))]
    assert abs(sum(half) / sum(full) - 0.5) < 0.01
    assert sum(none) == 0


def test_a_seed_is_a_simulation():
    first, again, other = (simulate_shelves(30, seed=seed, max_points=32) for seed in (1, 1, 2))
    assert torch.equal(first.X, again.X)
    assert not torch.equal(first.X, other.X)
    assert first.classes == tuple(GEOMETRIES)
    for rows, expected in zip(first.split, split(30, 1, (0.7, 0.1, 0.2)), strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_the_box_is_that_of_what_is_seen_and_no_more():
    data = simulate_shelves(40, seed=1, max_points=2000)
    for row in data.X:
        beam = unpack(row)
        np.testing.assert_array_equal(beam.extent, beam.points.max(0) - beam.points.min(0))
        np.testing.assert_array_equal(beam.center, (beam.points.max(0) + beam.points.min(0)) / 2)
    assert data.note == ""


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
