"""Test shared checks: what they accept, and the key words of their messages; classes by name."""

from collections import OrderedDict

import numpy as np
import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import (
    Registry,
    check_choice,
    check_column,
    check_integer,
    check_keys,
    check_number,
    is_integer,
    is_number,
)


@pytest.mark.parametrize(
    ("value", "integer", "number"),
    [
        (3, True, True),
        (np.int64(3), True, True),
        (3.0, False, True),
        (np.float32(2.5), False, True),
        (True, False, False),
        ("3", False, False),
        (None, False, False),
        (float("nan"), False, True),
        (float("inf"), False, True),
    ],
)
def test_integers_and_numbers_are_told_from_other_values(value, integer, number):
    assert (is_integer(value), is_number(value)) == (integer, number)


@pytest.mark.parametrize(
    ("check", "arguments", "words"),
    [
        (check_integer, ("size", 0, 1), "size must be an integer of at least 1, got 0"),
        (check_integer, ("size", True), "got True"),
        (check_integer, ("size", 2.0), "got 2.0"),
        (check_number, ("lr", "1", "positive"), "lr must be positive, got '1'"),
        (check_number, ("lr", -1, "positive", False), "lr must be positive, got -1"),
        (check_choice, ("kind", "three", ("one", "two")), "kind must be 'one' or 'two', got 'three'"),
        (check_choice, ("kind", "threee", ("one", "two", "three")), "one of one, two, three, .* mean 'three'"),
        (check_choice, ("kind", ["one"], ("one", "two")), r"got \['one'\]"),
        (check_keys, (["member"], ["lr", "members"], "x.toml"), "'member' in x.toml. Did you mean 'members'. Known"),
        (check_keys, (["zzz"], ["lr", "members"], "x.toml"), "'zzz' in x.toml. Known keys: lr, members"),
        (check_keys, (["zzz"], [], "x.toml"), "No keys are accepted"),
        (check_column, ("vists", ["visits"]), "No column named 'vists'. Did you mean 'visits'"),
        (check_column, ("dayz", ["age", "ward"], "exposure"), r"'dayz' \(`exposure`\). The columns are: age, ward"),
    ],
)
def test_bad_values_are_reported(check, arguments, words):
    with pytest.raises(ConfigError, match=words):
        check(*arguments)
    if check in (check_integer, check_choice, check_column):
        with pytest.raises(InputError, match=words):
            check(*arguments, error=InputError)


# Registries import a class when it is first used, and suggest names --------------------------------------------------


@pytest.fixture
def registry() -> Registry:
    return Registry("container", {"ordered": "collections:OrderedDict", "late": "no_such_module:Late"})


def test_an_entry_is_imported_when_it_is_used(registry):
    assert list(registry) == ["ordered", "late"]
    assert "late" in registry
    assert registry["ordered"] is registry.find("ordered") is OrderedDict
    with pytest.raises(ModuleNotFoundError):
        registry["late"]
    registry["own"] = dict
    assert registry.find("own") is dict


@pytest.mark.parametrize(
    "look_up",
    [
        lambda registry: registry.find("my_dict"),
        lambda registry: registry.find_saved("my_dict"),
        lambda registry: check_keys(["my_dict"], registry, "containers"),
    ],
)
def test_an_unknown_name_that_may_be_the_users_own_is_answered_by_how_to_register_it(registry, look_up):
    registry.name = "package.CONTAINERS"
    with pytest.raises((ConfigError, InputError), match=r"egister it first: package\.CONTAINERS\['my_dict'\]") as error:
        look_up(registry)
    assert "ddpn.cli.main()" in str(error.value)


def test_a_misspelled_name_is_not_taken_for_the_users_own(registry):
    registry.name = "package.CONTAINERS"
    with pytest.raises(ConfigError, match="Did you mean 'ordered'") as error:
        registry.find("orderd")
    assert "register" not in str(error.value)


def test_unknown_names_are_reported(registry):
    with pytest.raises(ConfigError, match="Did you mean 'ordered'") as error:
        registry.find("orderd")
    assert (error.value.argument, error.value.got) == ("container", "'orderd'")
