"""Sums of few terms, in any order of memory."""

import pytest
import torch

from ddpn.distributions.weighted_sums import sum_of_few


@pytest.mark.parametrize("size", [1, 3, 40])
def test_sums_of_few_terms_are_those_of_torch(size):
    side_by_side = torch.randn(4, size, 50, dtype=torch.float64, requires_grad=True)
    for values in (side_by_side.permute(2, 0, 1), side_by_side.permute(2, 0, 1).contiguous()):
        torch.testing.assert_close(sum_of_few(values), values.sum(-1))
        (gradient,) = torch.autograd.grad(sum_of_few(values).sum(), side_by_side, retain_graph=True)
        assert (gradient == 1.0).all()
