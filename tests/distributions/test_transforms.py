"""torch.func: gradients and vectorised calls of log_prob agree with autograd and with a batch."""

import pytest
import torch
from torch.func import grad, jacrev, vmap

from ddpn import DoublePoisson, NegativeBinomial, Poisson


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


#: Rows for each way to the Double Poisson's normaliser; the second parameter is gamma or alpha.
MU, OTHER, Y = f64(0.3, 5.0, 80.0, 900.0, 40.5, 200.0), f64(2.0, 0.4, 1.0, 3.0, 50.0, 0.05), f64(0, 7, 70, 950, 41, 90)
FAMILIES = {
    "DoublePoisson": (lambda mu, gamma, y: DoublePoisson(mu, gamma).log_prob(y), (MU, OTHER)),
    "Poisson": (lambda mu, y: Poisson(mu).log_prob(y), (MU,)),
    "NegativeBinomial": (lambda mu, alpha, y: NegativeBinomial(mu, alpha).log_prob(y), (MU, OTHER)),
}


@pytest.fixture(params=FAMILIES)
def family(request):
    """log_prob, its parameters, its values and its gradients by autograd."""
    log_prob, parameters = FAMILIES[request.param]
    leaves = [x.clone().requires_grad_() for x in parameters]
    values = log_prob(*leaves, Y)
    return log_prob, parameters, values.detach(), torch.autograd.grad(values.sum(), leaves)


def test_grad(family):
    log_prob, parameters, _, expected = family
    found = grad(lambda *x: log_prob(*x).sum(), argnums=tuple(range(len(parameters))))(*parameters, Y)
    torch.testing.assert_close(found, expected)


def test_vmap_over_rows(family):
    log_prob, parameters, values, expected = family
    torch.testing.assert_close(vmap(log_prob)(*parameters, Y), values)
    found = vmap(grad(log_prob, argnums=tuple(range(len(parameters)))))(*parameters, Y)
    torch.testing.assert_close(found, expected)


def test_vmap_over_counts(family):
    log_prob, parameters, _, _ = family
    y = torch.stack([Y, Y + 1.0], dim=1)
    found = vmap(lambda column: log_prob(*parameters, column), in_dims=1, out_dims=1)(y)
    torch.testing.assert_close(found, torch.stack([log_prob(*parameters, column) for column in y.unbind(1)], dim=1))


def test_second_derivatives_per_row(family):
    log_prob, parameters, _, _ = family
    found = vmap(jacrev(jacrev(log_prob)))(*parameters, Y)
    step = 1e-4 * parameters[0]

    def slope(mu: torch.Tensor) -> torch.Tensor:
        leaf = mu.clone().requires_grad_()
        return torch.autograd.grad(log_prob(leaf, *parameters[1:], Y).sum(), leaf)[0]

    expected = (slope(parameters[0] + step) - slope(parameters[0] - step)) / (2.0 * step)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-10)
