import numpy as np
import pytest
import torch

from ddpn.distributions import Poisson
from ddpn.members.constant import Constant
from ddpn.members.cross_fitting import OutOfFold, cross_fit, in_order
from ddpn.members.glm import PoissonGLM
from ddpn.members.member import NotApplicableError
from ddpn.sample import Sample
from ddpn.training import fold_numbers


@pytest.fixture
def sample() -> Sample:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return Sample(X, rng.poisson(np.exp(1 + X[:, 0])).astype(float), exposure=rng.uniform(0.5, 2.0, 60))


def test_every_row_is_predicted_by_the_copy_that_left_it_out(sample):
    member = cross_fit(PoissonGLM, sample, seed=3)
    fold = fold_numbers(60, 5, seed=3).numpy()
    for number in range(5):
        rest, held = sample.rows(fold != number), sample.rows(fold == number)
        expected = PoissonGLM().fit(rest, None, 3).distribution(held.X, held.exposure).mean
        torch.testing.assert_close(member.out_of_fold.mean[torch.from_numpy(fold == number)], expected)
    whole = PoissonGLM().fit(sample, None, 3).distribution(sample.X, sample.exposure).mean
    torch.testing.assert_close(member.distribution(sample.X, sample.exposure).mean, whole)


def test_order_of_rows_and_components():
    parts = [Poisson(torch.tensor([[1.0, 10.0], [2.0, 20.0]])), Poisson(torch.tensor([[3.0, 30.0]]))]
    joined = in_order(parts, np.array([2, 0, 1]))
    assert joined.mean.tolist() == [[2.0, 20.0], [3.0, 30.0], [1.0, 10.0]]


def test_copies_of_different_families_are_refused():
    from ddpn.distributions import NegativeBinomial

    parts = [Poisson(torch.ones(1, 1)), NegativeBinomial(torch.ones(1, 1), torch.ones(1, 1))]
    with pytest.raises(NotApplicableError, match="different distributions"):
        in_order(parts, np.arange(2))


def test_stands_for_a_member_by_positions():
    known = Poisson(torch.tensor([[1.0], [2.0], [3.0]]))
    assert OutOfFold(known).distribution(np.array([[2.0], [0.0]])).mean.tolist() == [[3.0], [1.0]]


def test_two_rows(sample):
    assert cross_fit(Constant, sample.rows(slice(0, 2)), 0).out_of_fold.batch_shape == (2, 1)
