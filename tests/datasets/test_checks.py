import numpy as np
import pytest

from ddpn.datasets.checks import is_count, seeded, whole
from ddpn.errors import ConfigError, InputError


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_of_every_type(value):
    found = whole("size", value, 3, "Use 224.")
    assert (type(found), found) == (int, 3)


@pytest.mark.parametrize("value", [3.0, "3", None, True, (3, 3), np.array([3])])
def test_what_is_no_whole_number(value):
    with pytest.raises(ConfigError, match=r"^size must be a whole number, got .*\. Use 224\.$"):
        whole("size", value, 1, "Use 224.", ConfigError)


def test_too_small():
    with pytest.raises(InputError, match=r"^size must be at least 3, got 2\. Use 224\.$"):
        whole("size", 2, 3, "Use 224.")
    with pytest.raises(InputError, match=r"^seed must be at least 0, got -1\. Use 0, 1, 2"):
        seeded(-1)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (0, True),
        (np.float32(4), True),
        (2.0**53, True),
        (2.0**53 + 2, False),
        (-1, False),
        (0.5, False),
        (np.nan, False),
        (np.inf, False),
        ("3", False),
        (None, False),
        (True, False),
    ],
)
def test_counts(value, answer):
    assert is_count(value) is answer
