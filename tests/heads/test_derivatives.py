"""What boosting takes its steps from: gradients against autograd, expected curvatures against simulated scores."""

import pytest
import torch

from ddpn.heads import HEADS, make_head
from ddpn.heads.derivatives import by_autograd

CLOSED = {
    "poisson": ([-6.0], [8.0]),
    "negative_binomial": ([-6.0, -8.0], [8.0, 4.0]),
    "double_poisson": ([-6.0, -5.0], [8.0, 4.0]),
}


def cases(name: str, rows: int = 600) -> tuple:
    torch.manual_seed(0)
    head, (low, high) = make_head(name), map(torch.tensor, CLOSED[name])
    raw = low + (high - low) * torch.rand(rows, head.n_raw, dtype=torch.float64)
    exposure = 0.5 + torch.rand(rows, dtype=torch.float64)
    return head, raw, head(raw, exposure).sample().double(), exposure


@pytest.mark.parametrize("name", CLOSED)
def test_the_gradient_in_closed_form_is_that_of_autograd(name):
    head, raw, y, exposure = cases(name)
    ours, curvature = head.derivatives(raw, y, exposure)
    theirs, _ = by_autograd(lambda x: head.loss(x, y, exposure), raw)
    assert ((ours - theirs).abs() / (1.0 + theirs.abs())).max() < 1e-3
    assert (curvature > 0).all()


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("poisson", [1.0]),
        ("negative_binomial", [1.0, 0.5]),
        ("negative_binomial", [4.0, -2.0]),
        ("double_poisson", [1.0, -1.5]),  # wide: from the table
        ("double_poisson", [3.0, 3.5]),  # narrow: summed
        ("double_poisson", [-1.0, 0.2]),
    ],
)
def test_the_curvature_is_the_variance_of_the_score(name, raw):
    torch.manual_seed(1)
    head, many = make_head(name), torch.tensor(raw, dtype=torch.float64).expand(100_000, -1)
    y = head(many[:1]).sample((len(many),))[:, 0].double()
    gradient, curvature = head.derivatives(many, y)
    assert gradient.square().mean(0).tolist() == pytest.approx(curvature[0].tolist(), rel=0.05)


def test_beyond_the_clamps_autograd_takes_over():
    head = make_head("double_poisson")
    raw = torch.tensor([[1.0, 0.0], [-20.0, 0.0], [1.0, 30.0]], dtype=torch.float64)
    y = torch.tensor([2.0, 0.0, 2.0], dtype=torch.float64)
    theirs, _ = by_autograd(lambda x: head.loss(x, y), raw)
    assert torch.allclose(head.derivatives(raw, y)[0], theirs, rtol=1e-3)


@pytest.mark.parametrize("name", [name for name in HEADS if not HEADS[name].exposure_is_total])
def test_every_head_has_a_gradient_and_a_positive_curvature(name):
    head = make_head(name)
    y = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    raw = head.start(y).repeat(3, 1)
    gradient, curvature = head.derivatives(raw, y)
    step = 1e-5 * torch.eye(head.n_raw, dtype=torch.float64)
    finite = [(head.loss(raw + each, y) - head.loss(raw - each, y)) / 2e-5 for each in step]
    if name != "faithful_gaussian":  # its variance does not move the mean
        assert torch.allclose(gradient, torch.stack(finite, 1), atol=2e-4)
    assert (curvature > 0).all()
    assert all(0 <= place < head.n_raw for place in head.locations)
