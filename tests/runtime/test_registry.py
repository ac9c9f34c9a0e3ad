"""Registries import a class when it is first used, and suggest names."""

import sys

import pytest

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import Registry


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
    from collections import OrderedDict

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
