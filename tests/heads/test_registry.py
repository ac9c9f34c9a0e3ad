"""make_head: names and options, and what it says of wrong ones."""

import re

import pytest

from ddpn.errors import ConfigError
from ddpn.heads import HEADS, make_head


@pytest.mark.parametrize("name", HEADS)
def test_every_name_makes_its_head(name):
    assert type(make_head(name)) is HEADS[name]


def test_options_arrive():
    assert make_head("double_poisson", beta=0.5, gamma="shared").options == {
        "beta": 0.5,
        "objective": "exact",
        "gamma": "shared",
        "initial_gamma": None,
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "double_poison",
            {},
            "head must be one of double_poisson, poisson, negative_binomial, gaussian, faithful_gaussian, "
            "natural_gaussian, got 'double_poison'. Did you mean 'double_poisson'?",
        ),
        ("xyz", {}, "got 'xyz'. Choose one of these."),
        (
            "double_poisson",
            {"betta": 1},
            "options of double_poisson must be one of beta, objective, gamma, initial_gamma, got 'betta'. "
            "Did you mean 'beta'?",
        ),
        ("poisson", {"beta": 1}, "options of poisson must be left out, as this head has none, got 'beta'. Drop it."),
        ("gaussian", {"beta": 1.5}, "beta must lie in [0, 1], got 1.5."),
        ("double_poisson", {"beta": -0.1}, "beta must lie in [0, 1], got -0.1."),
        ("double_poisson", {"objective": "Paper"}, 'objective must be "exact" or "paper", got \'Paper\'.'),
        ("double_poisson", {"gamma": 2.0}, 'gamma must be "per_row" or "shared", got 2.0.'),
        ("double_poisson", {"initial_gamma": 0.0}, "initial_gamma must be finite and positive, got 0.0."),
        ("double_poisson", {"initial_gamma": float("nan")}, "initial_gamma must be finite and positive, got nan."),
    ],
)
def test_what_is_wrong_is_named(name, options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_head(name, **options)
