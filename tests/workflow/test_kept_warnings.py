"""Warnings are shown as usual and kept, each once."""

import warnings

import pytest

from ddpn.workflow.kept_warnings import kept_warnings


def test_warnings_are_shown_and_kept():
    with warnings.catch_warnings(record=True) as shown, kept_warnings() as kept:
        warnings.simplefilter("always")
        for text, kind in [("first", UserWarning), ("second", RuntimeWarning), ("first", UserWarning)]:
            warnings.warn(text, kind, stacklevel=1)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
    assert kept == ["first", "second"]
    assert len(shown) == 4


def test_what_is_shown_afterwards_is_not_kept():
    with kept_warnings() as kept:
        pass
    with pytest.warns(UserWarning, match="later"):
        warnings.warn("later", UserWarning, stacklevel=1)
    assert kept == []
