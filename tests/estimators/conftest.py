"""Every likelihood, and models that several files ask."""

from typing import Any

import pytest

from ddpn import CountRegressor
from ddpn.heads import HEADS

#: Every likelihood that takes any counts and exposures, and the paper's objective beside the exact one.
LIKELIHOODS = {name: {"likelihood": name} for name in HEADS if not HEADS[name].exposure_is_total}
LIKELIHOODS["paper"] = {"head_options": {"objective": "paper"}}


@pytest.fixture(params=list(LIKELIHOODS), scope="session")
def likelihood(request) -> dict[str, Any]:
    """Arguments that name a likelihood."""
    return LIKELIHOODS[request.param]


@pytest.fixture(scope="session")
def exposed(likelihood, quick, counts, exposures) -> CountRegressor:
    """A model of each likelihood, fitted with exposures."""
    return quick(**likelihood).fit(*counts, exposure=exposures)
