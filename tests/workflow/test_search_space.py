"""Test the settings that a search tries: their defaults, limits and names, and plans made with them."""

import sys

import pytest

from ddpn.runtime.errors import ConfigError
from ddpn.workflow.config import FitConfig
from ddpn.workflow.search_space import RANGES, SETTINGS, apply_settings, check_search, default_settings

PLAN = FitConfig(target="y", n_networks=2)
EVERYTHING = {
    "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson",
    "training_options": {"lr": 0.1, "weight_decay": 0.1, "batch_size": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_defaults_are_tried_and_every_choice_is_a_valid_plan(name):
    default, tried = default_settings([name])[name], SETTINGS[name]
    assert tried[0] < default < tried[1] if name in RANGES else default in tried
    for value in tried:
        apply_settings(PLAN, {name: value}).regressor().build_options()


def test_limits_and_names_of_a_search_are_read():
    assert check_search(PLAN, None, None, None) == (600.0, None, list(SETTINGS))
    assert check_search(PLAN, "90s", 4, " lr, hidden,lr ") == (90.0, 4, ["lr", "hidden"])
    plan = FitConfig(target="y", epochs=3, head_options={"components": 2})
    assert set(check_search(plan, None, 9, None)[2]) == set(SETTINGS) - {"epochs", "likelihood"}


def test_chosen_settings_replace_those_of_the_plan():
    plan = FitConfig(target="y", training_options={"clip": 1.0})
    made = apply_settings(plan, {"lr": 0.1, "likelihood": "poisson*2", "epochs": 4, "hidden": "64-32"})
    assert made.estimator_options == {"fractional": "error", "likelihood": "poisson",
                     "training_options": {"clip": 1.0, "lr": 0.1},
                     "head_options": {"components": 2}, "epochs": 4, "hidden": (64, 32)}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "options", "words"),
    [
        (PLAN, {"budget": "soon"}, "budget must be a duration"),
        (PLAN, {"trials": 0}, "trials must be an integer"),
        (PLAN, {"search": "lrr"}, "Did you mean 'lr'?"),
        (PLAN, {"search": ""}, "search must name"),
        (PLAN, {"search": 3}, "search must name"),
        (PLAN, {"search": {"lr": [0.1, 0.2]}}, "search must name"),
        (FitConfig(target="y", **EVERYTHING), {"search": ["epochs"]}, "epochs has a value, but is also in `search`"),
        (FitConfig(target="y", **EVERYTHING), {}, "Nothing is left to search"),
    ],
)
def test_bad_searches_are_one_sentence(plan, options, words):
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as error:
        check_search(plan, **{"budget": None, "trials": None, "search": None} | options)
    assert words in str(error.value)


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"ddpn\[tune\]"):
        check_search(PLAN, None, 1, None)
