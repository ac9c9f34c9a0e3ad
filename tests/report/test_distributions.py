"""Rows of any law, and any law over counts."""

import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Normal

from ddpn import Conflation, DoublePoisson, InputError, Mixture, NegativeBinomial, Poisson, discretized
from ddpn.report.distributions import count_law, rows_of

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
def test_rows_of_a_law_are_its_rows(law):
    index, y = torch.tensor([2, 0, 2]), torch.tensor([8.0, 3.0, 5.0], dtype=torch.float64)
    everywhere = torch.stack([law.log_prob(value) for value in y], dim=1)
    assert torch.allclose(rows_of(law, index).log_prob(y), everywhere[index, torch.arange(3)], rtol=1e-10)


def test_one_law_serves_every_row_and_a_normal_becomes_its_counts():
    assert count_law("constant", Poisson(2.0), 4).batch_shape == (4,)
    law = count_law("line", Normal(torch.tensor([3.0, 9.0]).double(), 2.0), 2)
    rounded = stats.norm(3, 2).cdf(4.5) - stats.norm(3, 2).cdf(3.5)
    assert law.log_prob(torch.tensor(4.0)).exp()[0].item() == pytest.approx(rounded, rel=1e-9)


def test_a_law_for_other_rows_is_refused_with_its_name():
    with pytest.raises(InputError, match=r"baseline 'glm' must hold one law a row of X, got batch_shape \(3,\) for 4"):
        count_law("glm", Poisson(torch.ones(3)), 4)


def test_a_law_that_cannot_be_scored_is_refused():
    with pytest.raises(InputError, match="dist must be a count law"):
        count_law("wait", Exponential(1.0), 4)
