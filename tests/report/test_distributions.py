"""Distributions of some rows, over counts, and of ranges of counts."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Normal

from ddpn import Conflation, DoublePoisson, InputError, NegativeBinomial, Poisson, Mixture, discretized
from ddpn.report.distributions import bin_probabilities, count_distribution, rows_of

MU = torch.tensor([[1.0, 2.0], [5.0, 9.0], [30.0, 31.0], [400.0, 380.0]], dtype=torch.float64)
LAWS = {
    "poisson": Poisson(MU[:, 0]),
    "double poisson, one gamma": DoublePoisson(MU[:, 0], 2.0),
    "negative binomial": NegativeBinomial(MU[:, 0], 0.5),
    "mixture": Mixture(DoublePoisson(MU, 0.5)),
    "normals": discretized(Mixture(Normal(MU, MU.sqrt()))),
    "conflation": Conflation([Poisson(MU[:, 0]), DoublePoisson(torch.tensor(7.0).double(), 2.0)]),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_rows_of_a_distribution_are_its_rows(law):
    index, y = torch.tensor([2, 0, 2]), torch.tensor([8.0, 3.0, 5.0], dtype=torch.float64)
    everywhere = torch.stack([law.log_prob(value) for value in y], dim=1)
    assert torch.allclose(rows_of(law, index).log_prob(y), everywhere[index, torch.arange(3)], rtol=1e-10)


def test_one_distribution_serves_every_row_and_a_normal_is_rounded():
    assert count_distribution("constant", Poisson(2.0), 4).batch_shape == (4,)
    dist = count_distribution("line", Normal(torch.tensor([3.0, 9.0]).double(), 2.0), 2)
    rounded = stats.norm(3, 2).cdf(4.5) - stats.norm(3, 2).cdf(3.5)
    assert dist.log_prob(torch.tensor(4.0)).exp()[0].item() == pytest.approx(rounded, rel=1e-9)


@pytest.mark.parametrize(
    ("dist", "words"),
    [
        (Poisson(torch.ones(3)), r"baseline 'glm' .* one distribution per row of X \(4\)"),
        (Exponential(1.0), "dist"),
    ],
)
def test_an_unsuitable_baseline_is_refused(dist, words):
    with pytest.raises(InputError, match=words):
        count_distribution("glm", dist, 4)


def test_the_probabilities_of_bins_are_those_of_their_counts():
    found = bin_probabilities(Poisson(MU[:2, 0]), np.array([0.0, 1.0, 4.0]))
    expected = [[stats.poisson.pmf(0, mu), stats.poisson.pmf([1, 2, 3], mu).sum()] for mu in (1.0, 5.0)]
    assert pytest.approx(np.array(expected)) == found.T
