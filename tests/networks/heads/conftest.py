"""Share every head with every option that changes it, and gradients of losses."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ddpn.networks.heads import HEADS, Head

#: Beside the defaults: options that change what a head computes.
VARIANTS = {
    "double_poisson": [
        {"objective": "paper"},
        {"beta": 0.5},
        {"beta": 1.0, "objective": "paper"},
    ],
    "gaussian": [{"beta": 0.5}],
    "mixed": [{"families": ("poisson", "poisson")}],
}
#: Every head of the registry, and so a new one, but for those with zeros of their own that differ in their base alone.
#: Counts of a known total have a contract of their own.
SAME = (
    "zero_inflated_negative_binomial",
    "zero_inflated_double_poisson",
    "hurdle_negative_binomial",
    "hurdle_double_poisson",
)
NAMES = [name for name, head in HEADS.items() if name not in SAME and not head.exposure_is_total]
CASES = [(name, options) for name in NAMES for options in [{}, *VARIANTS.get(name, [])]]


#: Cases whose `start` differs: it does not depend on beta.
STARTS = [(name, options) for name, options in CASES if "beta" not in options]


def _format_case(case: tuple[str, dict]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.fixture(params=CASES, ids=_format_case)
def head(request) -> Head:
    name, options = request.param
    return HEADS[name](**options)


@pytest.fixture(params=STARTS, ids=_format_case)
def starting_head(request) -> Head:
    name, options = request.param
    return HEADS[name](**options)


@pytest.fixture
def compute_slopes() -> Callable[..., torch.Tensor]:
    """Compute the gradient by raw outputs of the summed loss."""

    def compute_slope(head: Head, raw: torch.Tensor, *args) -> torch.Tensor:
        raw = raw.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(head.loss(raw, *args).sum(), raw)
        return slope

    return compute_slope


@pytest.fixture(scope="session")
def counts_of_variance_18() -> torch.Tensor:
    """300 counts of mean 6 and variance 18: inside what every head with a dispersion can fit."""
    return torch.tensor(np.random.default_rng(7).negative_binomial(3, 1 / 3, 300))
