"""`RayCluster`: what it is not."""

import pytest

from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError


@pytest.mark.parametrize(("option", "value"), [("cpus", 0), ("retries", -1), ("gpus", 1.5), ("gpus", -1)])
def test_invalid_options_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option} must be"):
        RayCluster(**{option: value})
