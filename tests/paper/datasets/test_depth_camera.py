"""Rays meet solids where a walk along them first stands inside."""

import numpy as np

from ddpn.paper.datasets.depth_camera import Camera, Rays, Solids, entrance, through


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


def test_a_box_and_a_can_seen_head_on():
    these = Solids(
        np.array([False, True]), *np.array([[0, 0], [0.5, 0.5], [0.2, 0.2], [0.2, 0.2], [0, 0], [1, 1]], float)
    )
    rays = Rays(np.full((2, 1, 3), [0, 0.5, -1.0]), np.array([[[0, 0, 1.0], [0.2, 0, 1.0]]] * 2))
    # The box begins at z = 0.4, and so does the can on its axis; at a slope of 0.2 both are passed by.
    np.testing.assert_allclose(entrance(rays, these), [[1.4, np.inf]] * 2)


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
