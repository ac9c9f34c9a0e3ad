"""OOD scores of predictive distributions, against sums over their probabilities."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Laplace, Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.metrics import OOD_SCORES, ood_score
from ddpn.runtime.errors import ConfigError, InputError

MEANS = torch.tensor([[4.0, 4.0, 4.0], [1.0, 4.0, 7.0]], dtype=torch.float64)


def test_scores_of_an_ensemble_against_sums_over_its_pmf():
    ensemble, y = Mixture(Poisson(MEANS)), np.arange(200)
    each = stats.poisson.pmf(y, MEANS.numpy()[..., None])
    mixed = each.mean(1)
    mean = mixed @ y
    entropy, inner = (stats.entropy(p, axis=-1) for p in (mixed, each))
    wanted = {
        "variance": mixed @ y**2 - mean**2,
        "epistemic": MEANS.numpy().var(1),
        "entropy": entropy,
        "mutual_information": entropy - inner.mean(1),
        "none": np.zeros(len(mean)),
    }
    assert set(wanted) == set(OOD_SCORES)
    for kind, values in wanted.items():
        assert ood_score(ensemble, kind).numpy() == pytest.approx(values, rel=1e-9, abs=1e-12), kind


def test_scores_of_single_distributions_and_of_normals():
    assert ood_score(Poisson(torch.tensor([2.0, 5.0]))).tolist() == [2.0, 5.0]
    normal = Normal(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 2.0]))
    assert ood_score(normal, "entropy").numpy() == pytest.approx(stats.norm(0, [1.0, 2.0]).entropy(), rel=1e-6)
    assert ood_score(Mixture(normal), "epistemic").item() == pytest.approx(2.25)


@pytest.mark.parametrize("kind", ["epistemic", "mutual_information"])
def test_disagreement_needs_an_ensemble(kind):
    with pytest.raises(InputError, match=f"2 members for kind='{kind}', got a single Poisson.*kind='variance'"):
        ood_score(Poisson(torch.tensor([2.0])), kind)
    with pytest.raises(InputError, match=f"2 members for kind='{kind}', got one of a single member"):
        ood_score(Mixture(Poisson(torch.tensor([[2.0]]))), kind)


def test_unknown_kinds_and_distributions_are_refused():
    with pytest.raises(
        ConfigError, match="kind must be one of variance, epistemic, entropy, mutual_information, none, got"
    ):
        ood_score(Poisson(torch.tensor([2.0])), "surprise")
    with pytest.raises(InputError, match=r"dist must be a count distribution .*, got Laplace"):
        ood_score(Laplace(0.0, 1.0))
