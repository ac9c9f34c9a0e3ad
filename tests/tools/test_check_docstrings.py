"""The check of docstrings finds every kind of undocumented parameter, and none in the reference as it is."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_docstrings.py"
spec = importlib.util.spec_from_file_location("check_docstrings", SCRIPT)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def test_the_reference_is_documented(capsys):
    assert (check.main(), capsys.readouterr().out) == (0, "")
    pages = [list(check.rendered(page.read_text(encoding="utf-8"))) for page in check.PAGES if page.stem != "index"]
    assert all(pages), "looks in the wrong place"


PLANTED = '''
from dataclasses import dataclass
from typing import NamedTuple


def good(first, *, second=1, **options):
    """Good.

    Parameters
    ----------
    first, second : int
        Two numbers.
    **options
        Others.
    """


def missing(first, second):
    """Missing.

    Parameters
    ----------
    first : int
        A number.
    """


def stale(first):
    """Stale.

    Parameters
    ----------
    first : int
        A number.
    gone : int
        Was a parameter.
    """


def bare(): ...


class Base:
    """Base.

    Parameters
    ----------
    size : int
        How many.
    """

    def __init__(self, size): ...

    def inherited(self, y):
        """Its y is not documented."""

    @property
    def mean(self):
        """The mean: a number."""


class Child(Base):
    """Takes what the base takes, and does not document it."""


class BaseError(Exception):
    """An error.

    Parameters
    ----------
    row : int
        Where.
    """

    def __init__(self, row): ...


class ChildError(BaseError):
    """Its base documents the constructor of all errors."""


@dataclass
class Record:
    """A record.

    Attributes
    ----------
    a : int
        First.
    """

    a: int
    b: int = 0
    _hidden: int = 0


class Pair(NamedTuple):
    """A pair."""

    left: int
'''


@pytest.fixture
def planted(tmp_path):
    (tmp_path / "ddpn").mkdir()
    (tmp_path / "ddpn" / "things.py").write_text(PLANTED, encoding="utf-8")
    (tmp_path / "ddpn" / "__init__.py").write_text("from ddpn.things import good, Child as Renamed", encoding="utf-8")

    def found(page: str) -> list[str]:
        return [line for thing in check.rendered(page, tmp_path) for line in check.complaints(thing, tmp_path)]

    return found


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        (".. autofunction:: ddpn.good", []),
        (".. autofunction:: ddpn.things.missing", ["ddpn.things.missing does not document 'second'."]),
        (".. autofunction:: ddpn.things.stale", ["ddpn.things.stale documents 'gone', which is not a parameter."]),
        (".. autofunction:: ddpn.things.bare", ["ddpn.things.bare has no docstring."]),
        (".. currentmodule:: ddpn.things\n\n.. autoclass:: Base", []),
        (
            ".. autoclass:: ddpn.things.Base\n   :members: inherited,\n             mean",
            [
                "ddpn.things.Base.inherited does not document 'y'.",
                "ddpn.things.Base.mean: the first line of a property must not contain a colon.",
            ],
        ),
        (".. autoclass:: ddpn.Renamed", ["ddpn.Renamed does not document 'size'."]),
        (
            ".. autoclass:: ddpn.things.Child\n\n   .. automethod:: inherited",
            [
                "ddpn.things.Child does not document 'size'.",
                "ddpn.things.Child.inherited does not document 'y'.",
            ],
        ),
        (".. autoclass:: ddpn.things.ChildError", []),
        (".. autoclass:: ddpn.things.Record", ["ddpn.things.Record does not document 'b'."]),
        (".. autoclass:: ddpn.things.Pair", ["ddpn.things.Pair does not document 'left'."]),
        (
            ".. automodule:: ddpn.things\n   :members: missing, Pair",
            ["ddpn.things.missing does not document 'second'.", "ddpn.things.Pair does not document 'left'."],
        ),
        (".. automodule:: ddpn.things\n   :no-members:", []),
    ],
)
def test_an_undocumented_parameter_is_found(planted, directive, expected):
    assert planted(directive) == expected


def test_all_public_names_of_a_module_are_rendered(planted):
    assert len(planted(".. automodule:: ddpn.things\n   :members:")) == 6


def test_a_name_that_does_not_exist_is_found(planted):
    with pytest.raises(AssertionError, match=r"ddpn\.things\.Base\.lost"):
        planted(".. autoclass:: ddpn.things.Base\n   :members: lost")
