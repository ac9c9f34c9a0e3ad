"""Shared checks: what they accept, and the key words of their messages; classes by name."""

import sys
from collections import OrderedDict

import numpy as np
import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import (
    Registry,
    at_rows,
    check_choice,
    check_column,
    check_integer,
    check_keys,
    check_number,
    is_count,
    is_integer,
    is_number,
    listed,
    suggestion,
)


@pytest.mark.parametrize(
    ("value", "integer", "number", "count"),
    [
        (3, True, True, True),
        (np.int64(3), True, True, True),
        (3.0, False, True, True),
        (np.float32(2.5), False, True, False),
        (-1, True, True, False),
        (True, False, False, False),
        ("3", False, False, False),
        (None, False, False, False),
        (float("nan"), False, True, False),
        (float("inf"), False, True, False),
        (2**53 + 2, True, True, False),
    ],
)
def test_kinds_of_values(value, integer, number, count):
    assert (is_integer(value), is_number(value), is_count(value)) == (integer, number, count)


def test_good_values_are_returned():
    assert check_integer("size", np.int64(8), 8) == 8
    assert type(check_integer("size", np.int64(8))) is int
    assert check_number("lr", 1, "positive", True) == 1.0
    assert check_choice("kind", "one", ("one", "two")) == "one"
    assert check_column("age", ["age"], "target") == "age"
    check_keys(["a", "b"], ["a", "b", "c"], "x.toml")


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


@pytest.mark.parametrize(
    ("word", "found"), [("vists", "visits"), ("VISITS", "visits"), ("Agee", "Age"), ("qqqq", None), (3, None)]
)
def test_the_most_similar_name_is_suggested(word, found):
    assert suggestion(word, ["Age", "visits", "ward"]) == found


def test_long_lists_are_cut():
    assert listed(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
    assert at_rows([4]) == "at row 4"
    assert at_rows(list(range(9))) == "at rows 0, 1, 2, 3, 4 and 4 more"


# Registries import a class when it is first used, and suggest names --------------------------------------------------


@pytest.fixture
def registry() -> Registry:
    return Registry("container", {"ordered": "collections:OrderedDict", "late": "no_such_module:Late"})


def test_names_are_listed_without_an_import(registry):
    assert list(registry) == ["ordered", "late"]
    assert len(registry) == 2
    assert "late" in registry
    assert "no_such_module" not in sys.modules
    assert "ordered" in repr(registry)


def test_an_entry_is_imported_once_and_kept(registry):
    assert registry["ordered"] is registry.find("ordered") is OrderedDict
    with pytest.raises(ModuleNotFoundError):
        registry["late"]


def test_entries_are_added_and_removed(registry):
    registry["own"] = dict
    assert registry.find("own") is dict
    del registry["own"]
    assert "own" not in registry


def test_unknown_names_are_reported(registry):
    with pytest.raises(ConfigError, match="Did you mean 'ordered'") as error:
        registry.find("orderd")
    assert (error.value.argument, error.value.got) == ("container", "'orderd'")
