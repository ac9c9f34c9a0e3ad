"""The nearest name is suggested, and rows are counted as a user counts them."""

import pytest
from ddpn.workflow.naming import check_column, check_keys, listed, nearest, row_numbers

from ddpn.errors import ConfigError, InputError


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("vists", "Did you mean 'visits'?"), ("VISITS", "Did you mean 'visits'?"), ("Agee", "Did you mean 'Age'?")],
)
def test_the_nearest_name(word, remedy):
    assert nearest(word, ["Age", "visits", "ward"]) == remedy


def test_all_names_where_none_is_near():
    assert nearest("qqqq", ["Age", "visits"]) == "There are: Age, visits."


def test_a_column_that_is_there():
    assert check_column("age", ["age"], "target") == "age"


def test_a_column_that_is_not_there():
    with pytest.raises(InputError, match=r"exposure must name a column, got 'dayz', which the table does not have"):
        check_column("dayz", ["days"], "exposure")


def test_keys():
    check_keys(["a", "b"], ["a", "b", "c"], "x.toml")
    with pytest.raises(ConfigError, match=r"keys in x.toml must be among lr, members, got 'member'. Did you mean 'mem"):
        check_keys(["member"], ["lr", "members"], "x.toml")
    with pytest.raises(ConfigError, match=r"got 'zzz'. Take one of these."):
        check_keys(["zzz"], ["lr", "members"], "x.toml")


def test_long_lists_are_cut():
    assert listed(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
    assert row_numbers([4]) == "row 5 (row 1 is the first below the header)"
    assert row_numbers(range(9)).startswith("rows 1, 2, 3, 4, 5 and 4 more (")
