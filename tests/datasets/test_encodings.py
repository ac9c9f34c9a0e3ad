import numpy as np
import polars as pl
import pytest

from ddpn.datasets import encodings as enc
from ddpn.errors import InputError

TABLE = pl.DataFrame(
    {
        "n": [3.0, -1.0, 8.0, 8.0, 2.5],
        "same": [2.0] * 5,
        "level": [1.0, 3.0, 2.0, 1.0, 1.0],
        "letter": ["b", "a", "b", "b", "a"],
    }
)


def test_one_hot_is_that_of_polars():
    expected = TABLE.select("letter").to_dummies().select("letter_a", "letter_b").cast(pl.Float64)
    assert pl.DataFrame(enc.one_hot(TABLE, "letter", ("a", "b"))).equals(expected)
    assert list(enc.one_hot(TABLE, "level", (1.0, 2.0, 3.0, 4.0))) == ["level_1", "level_2", "level_3", "level_4"]


def test_an_unknown_level():
    with pytest.raises(InputError, match=r"level must be one of 1\.0, 2\.0, got 3\.0 at row 2"):
        enc.one_hot(TABLE, "level", (1.0, 2.0))
    with pytest.raises(InputError, match="letter must be one of a, got b at rows 1, 3, 4"):
        enc.one_hot(TABLE, "letter", ("a",))


@pytest.mark.parametrize("ddof", [0, 1])
def test_standardized_is_that_of_polars(ddof):
    n, rows = TABLE["n"], np.array([0, 2, 4])
    for seen, index in ((n, slice(None)), (n[rows], rows)):
        expected = (n - seen.mean()) / seen.std(ddof=ddof)
        got = enc.standardized({"n": n.to_numpy()}, index, ddof)["n"]
        np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_a_constant_column_becomes_zero():
    assert enc.standardized(enc.unchanged(TABLE, ["same"]))["same"].tolist() == [0.0] * 5


def test_total():
    assert enc.total(TABLE, ("n", "same")).tolist() == [5.0, 1.0, 10.0, 10.0, 4.5]


def test_a_cyclic_encoding_joins_the_ends():
    hours = enc.cyclic(pl.DataFrame({"hr": np.arange(24.0)}), "hr")
    sine, cosine = hours["hr_sin"], hours["hr_cos"]
    np.testing.assert_allclose(sine**2 + cosine**2, 1.0)
    np.testing.assert_allclose([sine[0], cosine[0]], [sine[23], cosine[23]], atol=1e-12)
    assert np.arctan2(sine[1], cosine[1]) == pytest.approx(2 * np.pi / 23)
