"""Test lists of columns as a user types them."""

import pytest

from ddpn.runtime.column_lists import resolve_names
from ddpn.runtime.errors import InputError

COLUMNS = ["age", "mentor, articles", "mentor", "interview date", "--drop", "it's", " padded "]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["age,mentor"], ("age", "mentor")),
        (["age , interview date,"], ("age", "interview date")),
        (["mentor, articles"], ("mentor, articles",)),
        (["mentor, articles", "age,mentor", "age"], ("mentor, articles", "age", "mentor")),
        ([" padded "], (" padded ",)),
        ([""], ()),
        ([], ()),
    ],
)
def test_a_value_that_is_a_column_is_never_split(values, names):
    assert resolve_names(values, COLUMNS, "drop") == names


def test_an_unknown_name_of_a_list_says_how_names_with_commas_are_given():
    with pytest.raises(InputError, match=r"No column named 'articles'.*Commas separate names in 'age,articles'"):
        resolve_names(["age,articles"], COLUMNS, "drop")
    with pytest.raises(InputError, match=r"No column named 'agee' \(`drop`\). Did you mean 'age'\?$"):
        resolve_names(["agee"], COLUMNS, "drop")
