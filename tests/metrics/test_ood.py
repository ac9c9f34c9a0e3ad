"""Test OOD scores against sums over probabilities, areas and rates against their definitions."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.metrics import aupr, auroc, fpr80, ood_score
from ddpn.runtime.errors import InputError

MEANS = torch.tensor([[4.0, 4.0, 4.0], [1.0, 4.0, 7.0]], dtype=torch.float64)


def test_scores_of_an_ensemble_are_sums_over_its_pmf():
    ensemble, y = Mixture(Poisson(MEANS)), np.arange(200)
    component_pmfs = stats.poisson.pmf(y, MEANS.numpy()[..., None])
    mixed = component_pmfs.mean(1)
    mean = mixed @ y
    entropy, inner = (stats.entropy(p, axis=-1) for p in (mixed, component_pmfs))
    expected = {
        "variance": mixed @ y**2 - mean**2,
        "epistemic": MEANS.numpy().var(1),
        "entropy": entropy,
        "mutual_information": entropy - inner.mean(1),
    }
    for kind, values in expected.items():
        assert ood_score(ensemble, kind).numpy() == pytest.approx(values, rel=1e-9, abs=1e-12), kind


def test_single_distributions_and_normals_have_scores():
    assert ood_score(Poisson(torch.tensor([2.0, 5.0]))).tolist() == [2.0, 5.0]
    normal = Normal(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 2.0]))
    assert ood_score(normal, "entropy").numpy() == pytest.approx(stats.norm(0, [1.0, 2.0]).entropy(), rel=1e-6)
    assert ood_score(Mixture(normal), "epistemic").item() == pytest.approx(2.25)


def draw_two_sets(n_in: int, n_out: int, digits: int | None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw OOD scores that are a bit higher; rounded ones tie."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(0, 1, n_in), rng.normal(0.8, 1.3, n_out)
    return pair if digits is None else tuple(x.round(digits) for x in pair)


def compute_average_precision(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the mean over OOD scores of the precision at the threshold that the score is."""
    return float(np.mean([(outside >= t).sum() / ((outside >= t).sum() + (inside >= t).sum()) for t in outside]))


@pytest.mark.parametrize("digits", [None, 1, 0])
@pytest.mark.parametrize("sizes", [(100, 30), (1, 1), (7, 80), (3, 2)])
def test_areas_follow_their_definitions(sizes, digits):
    for seed in range(2):
        inside, outside = draw_two_sets(*sizes, digits, seed)
        higher, equal = outside[:, None] > inside, outside[:, None] == inside
        assert auroc(inside, outside) == pytest.approx((higher + 0.5 * equal).mean(), rel=1e-12)
        assert aupr(inside, outside) == pytest.approx(compute_average_precision(inside, outside), rel=1e-12)
        threshold = max(t for t in outside if (outside >= t).mean() >= 0.8 - 1e-12)
        assert fpr80(inside, outside) == pytest.approx((inside >= threshold).mean(), abs=1e-15)


def test_separated_and_equal_scores_have_known_areas():
    assert (auroc([1, 2], [3, 4]), aupr([1, 2], [3, 4]), fpr80([1, 2], [3, 4])) == (1.0, 1.0, 0.0)
    assert (auroc([3, 4], [1, 2]), fpr80([3, 4], [1, 2])) == (0.0, 1.0)
    assert (auroc([1] * 30, [1] * 10), aupr([1] * 30, [1] * 10), fpr80([1] * 30, [1] * 10)) == (0.5, 0.25, 1.0)


def test_tensors_of_any_shape_and_infinite_scores_are_taken():
    inside, outside = torch.tensor([[0.1, 0.2], [0.4, -math.inf]]), torch.tensor([0.3, math.inf], requires_grad=True)
    assert auroc(inside, outside) == pytest.approx(7 / 8)
    assert isinstance(aupr(inside, outside), float)


@pytest.mark.parametrize("scores", [[0.1, math.nan], [math.nan, math.nan], []])
def test_scores_without_a_value_are_refused(scores):
    for pair in ((scores, [0.5, 0.6]), ([0.5, 0.6], scores)):
        with pytest.raises(InputError, match="score_in" if pair[0] is scores else "score_out"):
            auroc(*pair)
