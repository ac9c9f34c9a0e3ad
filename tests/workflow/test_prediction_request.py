"""What a prediction table may be asked for."""

import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.prediction_request import Request, parse_levels


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coverage": 1.5}, r"coverage must lie between 0 and 1, got 1\.5"),
        ({"quantiles": (0.5, 1.0)}, "quantiles must lie between 0 and 1, got 1"),
        ({"pmf": -1}, "pmf must be a count .*, got -1"),
    ],
)
def test_wrong_requests(options, words):
    with pytest.raises(ConfigError, match=words):
        Request(**options)


def test_levels_are_numbers_with_commas():
    assert parse_levels("0.1, 0.9,") == (0.1, 0.9)
    assert parse_levels("") == ()
    with pytest.raises(ConfigError, match=r"separated by commas .*, got '0\.1;0\.5'"):
        parse_levels("0.1;0.5")


def test_flags_need_a_model_with_validation_rows():
    Request().check_model(has_ood=False)
    Request(ood=0.05).check_model(has_ood=True)
    with pytest.raises(InputError, match="ood needs a model that was fitted with validation rows"):
        Request(ood=0.05).check_model(has_ood=False)
