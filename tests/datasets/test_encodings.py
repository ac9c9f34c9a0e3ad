import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from ddpn.datasets import encodings as enc
from ddpn.datasets.table import Table
from ddpn.errors import InputError

TABLE = Table(
    {
        "n": np.array([3.0, -1.0, 8.0, 8.0, 2.5]),
        "same": np.full(5, 2.0),
        "level": np.array([1.0, 3.0, 2.0, 1.0, 1.0]),
        "letter": np.array(["b", "a", "b", "b", "a"], dtype=object),
    }
)


def test_one_hot_is_that_of_pandas():
    expected = pd.get_dummies(TABLE.to_pandas()["letter"], prefix="letter", dtype=float)
    got = Table(enc.one_hot(TABLE, "letter", ("a", "b"))).to_pandas()
    pd.testing.assert_frame_equal(got, expected, check_column_type=False)
    assert list(enc.one_hot(TABLE, "level", (1.0, 2.0, 3.0, 4.0))) == ["level_1", "level_2", "level_3", "level_4"]


def test_a_level_that_was_not_listed():
    with pytest.raises(InputError, match=r"level must hold 1\.0, 2\.0, got 3\.0 in row 2"):
        enc.one_hot(TABLE, "level", (1.0, 2.0))
    with pytest.raises(InputError, match="letter must hold a, got b in row 1"):
        enc.one_hot(TABLE, "letter", ("a",))


def test_standardised_is_that_of_scikit_learn():
    rows = np.array([0, 2, 4])
    scaler = StandardScaler().fit(TABLE["n"][rows, None])
    expected = scaler.transform(TABLE["n"][:, None])[:, 0]
    np.testing.assert_allclose(enc.standardised(TABLE, ["n"], rows)["n"], expected, rtol=1e-14)


def test_standardised_on_all_rows_is_that_of_pandas():
    n = TABLE.to_pandas()["n"]
    np.testing.assert_allclose(enc.standardised(TABLE, ["n"], None, ddof=1)["n"], (n - n.mean()) / n.std())


def test_a_constant_column_becomes_zero():
    assert enc.standardised(TABLE, ["same"], None)["same"].tolist() == [0.0] * 5


def test_total():
    assert enc.total(TABLE, ("n", "same"), "sum")["sum"].tolist() == [5.0, 1.0, 10.0, 10.0, 4.5]


def test_round_the_circle_brings_the_ends_together():
    hours = enc.round_the_circle(Table({"hr": np.arange(24.0)}), "hr")
    sine, cosine = hours["hr_sin"], hours["hr_cos"]
    np.testing.assert_allclose(sine**2 + cosine**2, 1.0)
    np.testing.assert_allclose([sine[0], cosine[0]], [sine[23], cosine[23]], atol=1e-12)
    assert np.arctan2(sine[1], cosine[1]) == pytest.approx(2 * np.pi / 23)
