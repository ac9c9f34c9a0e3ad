"""Share every likelihood, and models that several files ask."""

from collections.abc import Iterator
from typing import Any

import pytest

from ddpn import DDPNRegressor
from ddpn.members.trees import mean
from ddpn.networks.heads import HEADS

#: Likelihoods whose heads share all code that estimators use with one that is there.
ALIKE = (
    "zero_inflated_poisson",
    "zero_inflated_negative_binomial",
    "hurdle_poisson",
    "hurdle_negative_binomial",
    "hurdle_double_poisson",
    "conway_maxwell_poisson",
)
#: The other likelihoods that take any counts and exposures, and the paper's objective beside the exact one.
LIKELIHOODS = {name: {"likelihood": name} for name in HEADS if name not in ALIKE and not HEADS[name].exposure_is_total}
LIKELIHOODS["paper"] = {"likelihood": "double_poisson", "head_options": {"objective": "paper"}}


@pytest.fixture(scope="module", autouse=True)
def _limit_trees() -> Iterator[None]:
    """Boost trees of one size: tests/members/test_trees.py tests how a size is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mean, "_LEAVES", (4,))
        yield


@pytest.fixture(params=list(LIKELIHOODS), scope="session")
def likelihood(request) -> dict[str, Any]:
    """Arguments that name a likelihood."""
    return LIKELIHOODS[request.param]


@pytest.fixture(scope="session")
def model_with_exposure(likelihood, quick, counts, exposures) -> DDPNRegressor:
    """A model of each likelihood, fitted with exposures."""
    return quick(**likelihood).fit(*counts, exposure=exposures)
