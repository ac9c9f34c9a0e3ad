"""What a prediction table may be asked for."""

import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.prediction_request import Request, parse_levels


@pytest.mark.parametrize(
    ("name", "value"), [("coverage", 1.5), ("quantiles", (0.5, 1.0)), ("pmf", -1), ("pmf", 10_001)]
)
def test_wrong_requests(name, value):
    with pytest.raises(ConfigError) as error:
        Request(**{name: value})
    assert error.value.argument == name


def test_levels_are_numbers_with_commas():
    assert parse_levels("0.1, 0.9,") == (0.1, 0.9)
    assert parse_levels("") == ()
    with pytest.raises(ConfigError, match="separated by commas"):
        parse_levels("0.1;0.5")


def test_what_a_model_can_do():
    assert Request(member="Boosted trees").for_model(["trees"], False).member == "trees"
    assert Request(member="mixture", ood=0.05).for_model(["trees"], True).member is None
    with pytest.raises(ConfigError, match="No member named 'glm'"):
        Request(member="glm").for_model(["trees"], False)
    with pytest.raises(InputError) as error:
        Request(ood=0.05).for_model([], has_ood=False)
    assert error.value.argument == "ood"
