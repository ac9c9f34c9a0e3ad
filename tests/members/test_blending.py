"""Test mixture weights against brute force: the CRPS of mixtures over a grid of weights."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, DoublePoisson, Mixture, NegativeBinomial, Poisson
from ddpn.members.blending import MixtureScores, choose_mixture_weights, mix_members
from ddpn.rows.count_rows import CountRows

RNG = np.random.default_rng(1)


def make_tensor(values) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def draw_rows(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draw means, and counts that are a little overdispersed."""
    rng = np.random.default_rng(seed)
    mean = rng.gamma(3.0, 1.5, n)
    return mean, rng.poisson(mean * rng.gamma(4.0, 0.25, n)).astype(float)


def make_three_members(mean: np.ndarray, worse: float = 1.0) -> list[Distribution]:
    """Make two Poissons (`worse` by this factor), a Negative Binomial and three Double Poissons, all of them wrong."""
    m = make_tensor(mean)[:, None]
    return [
        Poisson(worse * m * make_tensor([0.6, 1.1])),
        NegativeBinomial(1.3 * m, torch.full_like(m, 0.2)),
        DoublePoisson(m * make_tensor([0.9, 1.0, 1.2]), torch.full((len(m), 3), 0.5, dtype=torch.float64)),
    ]


def compute_crps_directly(parts: list[Distribution], weights, y: np.ndarray) -> np.ndarray:
    """Compute the CRPS of the mixture itself, in which components of a member share its weight."""
    component_weights = [
        np.full(part.batch_shape[-1], w / part.batch_shape[-1]) for part, w in zip(parts, weights, strict=True)
    ]
    return Mixture.concatenate(parts, make_tensor(np.concatenate(component_weights))).crps(make_tensor(y)).numpy()


def make_scores(parts: list[Distribution], y: np.ndarray) -> MixtureScores:
    """Scores of members with one distribution each, on rows that are one block."""
    scores = MixtureScores([CountRows(None, y)])
    for part in parts:
        scores.add([[part]])
    return scores


# Mixing ----------------------------------------------------------------------------------------------------------


def test_components_of_a_member_share_its_weight():
    parts = make_three_members(np.array([1.0, 5.0]))
    mixture = mix_members([[part] for part in parts], [0.2, 0.3, 0.5])
    assert mixture.batch_shape == (2,)
    assert mixture.size == 6
    assert mixture.weights.tolist() == pytest.approx([0.1, 0.1, 0.3, 0.5 / 3, 0.5 / 3, 0.5 / 3])
    means = np.stack([part.mean.numpy().mean(1) for part in parts])
    assert mixture.mean.numpy() == pytest.approx(np.array([0.2, 0.3, 0.5]) @ means)
    assert mix_members([parts[:1]], [1.0]).size == 2


def test_normals_are_rounded_beside_counts_only():
    normal, poisson = Normal(make_tensor([[3.0]]), make_tensor([[1.5]])), Poisson(make_tensor([[2.0]]))
    assert not isinstance(mix_members([[normal], [normal]], [0.5, 0.5]), CountDistribution)
    both = mix_members([[normal], [poisson]], [0.25, 0.75])
    assert isinstance(both, CountDistribution)
    rounded = np.diff(stats.norm(3.0, 1.5).cdf([1.5, 2.5])).item()
    assert both.log_prob(make_tensor(2.0)).exp().item() == pytest.approx(
        0.25 * rounded + 0.75 * stats.poisson.pmf(2, 2.0)
    )


# Scores of all mixtures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_normals", [False, True], ids=["counts", "with Normals"])
def test_scores_are_those_of_the_mixtures(with_normals):
    mean, y = draw_rows(30)
    parts = make_three_members(mean)
    if with_normals:
        parts[1] = Normal(make_tensor(mean)[:, None], torch.ones(30, 1, dtype=torch.float64))
    scores = make_scores(parts, y)
    for weights in (*np.eye(3), *RNG.dirichlet(np.ones(3), 4)):
        result = mix_members([[part] for part in parts], weights).crps(make_tensor(y)).numpy()
        assert scores.compute_crps(weights) == pytest.approx(result, rel=1e-7, abs=1e-9)


def test_weights_of_the_least_crps_are_those_of_brute_force():
    mean, y = draw_rows(12)
    parts, share = make_three_members(mean), np.random.default_rng(1).uniform(0.0, 1.0, 12)
    share /= share.sum()
    result = make_scores(parts, y).minimize_crps(share)
    assert result.sum() == pytest.approx(1.0)
    assert (result >= 0).all()
    grid = [(a / 6, b / 6, 1 - (a + b) / 6) for a, b in product(range(7), range(7)) if a + b <= 6]
    means = [share @ compute_crps_directly(parts, weights, y) for weights in grid]
    assert share @ compute_crps_directly(parts, result, y) <= min(means) + 1e-9
    assert result == pytest.approx(grid[int(np.argmin(means))], abs=0.17)
    # None of the small steps away from them is better.
    for step in (0.02 * (a - b) for a in np.eye(3) for b in np.eye(3) if (a != b).any()):
        if ((result + step) >= 0).all():
            assert (
                share @ compute_crps_directly(parts, result + step, y)
                >= share @ compute_crps_directly(parts, result, y) - 1e-12
            )


# Shrinking towards equal weights ---------------------------------------------------------------------------------


def choose_weights(n: int, *wrong: float, seed: int = 1) -> np.ndarray:
    """Choose weights of Poissons whose means are wrong by these factors, on n rows."""
    mean = np.random.default_rng(seed).uniform(1.0, 9.0, n)
    y = np.random.default_rng(seed + 100).poisson(mean).astype(float)
    parts = [Poisson(factor * make_tensor(mean)[:, None]) for factor in wrong]
    return choose_mixture_weights(make_scores(parts, y), np.ones(n))


@pytest.mark.parametrize("seed", range(5))
def test_few_rows_keep_nearly_equal_weights_unless_one_member_is_clearly_worse(seed):
    rng = np.random.default_rng(seed)
    mean = rng.uniform(1.0, 9.0, 25)
    y = rng.poisson(mean).astype(float)
    parts = [Poisson(make_tensor(mean * np.exp(0.3 * rng.normal(size=25)))[:, None]) for _ in range(2)]
    scores = make_scores(parts, y)
    best, result = scores.minimize_crps(np.full(25, 0.04)), choose_mixture_weights(scores, np.ones(25))
    assert result == pytest.approx([0.5, 0.5], abs=0.2)
    assert abs(result[0] - 0.5) < abs(best[0] - 0.5), "chance alone moves the best weights further"
    assert choose_weights(25, 1.0, 8.0, seed=seed)[1] < 0.15


@pytest.mark.parametrize(("n", "worse"), [(40, 4.0), (400, 2.5)])
def test_weights_are_the_nearest_to_equal_within_half_a_standard_error(n, worse):
    mean, y = draw_rows(n, seed=3)
    parts = make_three_members(mean, worse)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, n)
    share = weight / weight.sum()
    scores = make_scores(parts, y)
    best, result = scores.minimize_crps(share), choose_mixture_weights(scores, weight)
    lowest, equal = compute_crps_directly(parts, best, y), np.full(3, 1 / 3)

    def is_allowed(weights: np.ndarray) -> bool:
        worse = compute_crps_directly(parts, weights, y) - lowest
        gap = share @ worse
        return gap <= 0.5 * np.sqrt(share**2 @ (worse - gap) ** 2)

    assert result.sum() == pytest.approx(1.0)
    assert is_allowed(result)
    position = np.linalg.norm(result - best) / np.linalg.norm(equal - best)
    assert 0.02 < position < 0.98, "the case should not be at either end"
    assert result == pytest.approx(best + position * (equal - best), abs=1e-9)
    assert not is_allowed(best + (position + 0.011) * (equal - best))


def test_two_networks_of_ten_tell_the_score_of_all():
    # Two of ten networks tell what the mixture of all ten scores.
    rows, rng = 40_000, np.random.default_rng(0)
    means = torch.from_numpy(rng.gamma(4.0, 1.0, (rows, 10)))
    y, other = rng.poisson(4.0, rows).astype(float), Poisson(torch.full((rows, 1), 3.0).double())
    partial, whole = make_scores([other], y), make_scores([other], y)
    for scores, part in ((partial, Poisson(means[:, :2])), (whole, Poisson(means))):
        scores.add([[part]], 10)
    weights = np.array([0.4, 0.6])
    assert partial.compute_crps(weights).mean() == pytest.approx(whole.compute_crps(weights).mean(), abs=0.004)
    assert partial.member_crps[1].mean() == pytest.approx(whole.member_crps[1].mean(), abs=0.006)
    assert partial.raw_member_crps[1].mean() > whole.member_crps[1].mean() + 0.05


def test_blocks_are_scored_by_their_own_distributions():
    """Folds have copies of their own; parts of a copy that are of several families share its weight equally."""
    mean, y = draw_rows(30)
    halves = [slice(0, 10), slice(10, 30)]
    members = [
        [[part] for half in halves for part in make_three_members(mean[half])[:1]],
        [make_three_members(mean[half], worse=2.0)[1:] for half in halves],
    ]
    scores = MixtureScores([CountRows(None, y[half]) for half in halves])
    for member in members:
        scores.add(member)
    weights = np.array([0.3, 0.7])
    for number, half in enumerate(halves):
        parts = [part for member in members for part in member[number]]
        assert scores.compute_crps(weights)[half] == pytest.approx(
            compute_crps_directly(parts, [0.3, 0.35, 0.35], y[half]), rel=1e-7
        )


def test_two_members_that_are_given_by_some_of_their_distributions_are_scored_as_by_all():
    """Both members have ten networks per row, of which two are given: their mixture has the CRPS of all twenty."""
    rng = np.random.default_rng(0)
    y = rng.poisson(4.0, 5000).astype(float)
    means = [make_tensor(rng.gamma(4.0, 1.0, (5000, 10))) for _ in range(2)]
    some, every = MixtureScores([CountRows(None, y)]), MixtureScores([CountRows(None, y)])
    for stack in means:
        some.add([[Poisson(stack[:, :2])]], 10)
        every.add([[Poisson(stack)]], 10)
    weights, difference = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert some.compute_crps(difference).mean() == pytest.approx(every.compute_crps(difference).mean(), abs=0.02)
    assert some.compute_crps(weights).mean() == pytest.approx(every.compute_crps(weights).mean(), abs=0.02)
