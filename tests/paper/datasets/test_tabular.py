"""Test the loaders of tables, on made-up files in the form of the public ones, and on real ones where there are any."""

from dataclasses import replace
from functools import cache
from hashlib import sha256

import numpy as np
import pandas as pd
import polars as pl
import pytest
from statsmodels.datasets import randhie

from ddpn.paper.datasets import tabular
from ddpn.paper.datasets.sources import SOURCES
from ddpn.runtime.errors import InputError

STAYS = SOURCES["length_of_stay"]
STAY_COLUMNS = [
    *("rcount", "gender", "dialysisrenalendstage", "asthma", "irondef", "pneum", "substancedependence"),
    *("psychologicaldisordermajor", "depress", "psychother", "fibrosisandother", "malnutrition", "hemo"),
    *("hematocrit", "neutrophils", "sodium", "glucose", "bloodureanitro", "creatinine", "bmi", "pulse"),
    *("respiration", "secondarydiagnosisnonicd9"),
]
CONDITIONS, LABS = STAY_COLUMNS[2:13], STAY_COLUMNS[13:22]


@cache
def make_stays(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"rcount": rng.choice(["0", "1", "2", "3", "4", "5+"], n), "gender": rng.choice(["F", "M"], n)}
    )
    for name in CONDITIONS:
        frame[name] = rng.integers(0, 2, n)
    for name in LABS:
        frame[name] = rng.normal(10, 3, n).round(4)
    frame["secondarydiagnosisnonicd9"] = rng.permutation(np.arange(n) % 11)
    frame["facid"] = rng.choice(list("ABCDE"), n)
    return frame


def write_sample_file(folder):
    frame = make_stays().assign(vdate_weekday="Monday", lengthofstay=lambda f: 1 + f["asthma"] + f["pneum"])
    (folder / "length_of_stay").mkdir(exist_ok=True)
    frame.to_csv(folder / STAYS.files[1], index=False)
    return frame


@pytest.fixture
def full_file(tmp_path, monkeypatch):
    """A file with the header and the form of Microsoft's, declared in its place."""
    frame = make_stays().copy()
    frame.insert(0, "eid", range(1, len(frame) + 1))
    frame.insert(1, "vdate", ["8/29/2012", "02/28/12", "12/31/2012"] * 100)
    frame.insert(len(frame.columns) - 1, "discharged", "9/2/2012")
    frame["lengthofstay"] = 4
    path = tmp_path / STAYS.files[0]
    path.parent.mkdir()
    frame.to_csv(path, index=False)
    body = path.read_bytes()
    monkeypatch.setitem(SOURCES, "length_of_stay", replace(STAYS, sha256=sha256(body).hexdigest()))
    return tmp_path


def test_the_sample_of_stays_is_read_as_such(tmp_path):
    frame = write_sample_file(tmp_path)
    data = tabular.length_of_stay()
    assert data.sample
    assert data.note == "a random sample of 300 of the 100,000 rows of the paper's file"
    assert data.X.columns == [*STAY_COLUMNS, "facid", "vdate_weekday"]
    np.testing.assert_array_equal(data.y, frame["lengthofstay"])
    np.testing.assert_array_equal(data.X["creatinine"], frame["creatinine"])
    assert [name for name in data.X.columns if data.X[name].dtype == pl.String] == [
        "rcount",
        "gender",
        "facid",
        "vdate_weekday",
    ]


def test_the_full_file_comes_first_and_leaks_nothing(full_file):
    write_sample_file(full_file)
    data = tabular.length_of_stay()
    assert not data.sample
    assert data.note == ""
    assert set(data.X.columns) == {*STAY_COLUMNS, "facid", "vdate_weekday"}
    assert data.X["vdate_weekday"][:3].to_list() == ["Wednesday", "Tuesday", "Monday"]


def test_an_invalid_date_is_refused():
    with pytest.raises(InputError, match="vdate must hold dates written month/day/year, got '13/40/2012'"):
        tabular._parse_weekday("13/40/2012")


def test_stays_are_standardised(tmp_path):
    frame = write_sample_file(tmp_path)
    data = tabular.length_of_stay()
    train = data.split.train
    expected = pd.get_dummies(frame[["rcount", "gender", "facid"]], dtype=float).join(frame[CONDITIONS].astype(float))
    scaled = frame[[*LABS, "secondarydiagnosisnonicd9"]].assign(number_of_issues=frame[CONDITIONS].sum(axis=1))
    seen = scaled.iloc[train]
    expected = expected.join((scaled - seen.mean()) / seen.std(ddof=0))
    got = data.features("standard")
    assert got.shape == (300, 35)
    assert got.columns == list(expected.columns)
    np.testing.assert_allclose(got.to_numpy(), expected.to_numpy(), rtol=1e-12, atol=1e-12)


def test_the_real_sample_has_its_documented_figures(use_real_data):
    """The figures are those of the data's own description."""
    use_real_data(STAYS.files[1])
    data = tabular.length_of_stay()
    assert data.X.shape == (20_000, 25)
    assert [len(part) for part in data.split] == [16_000, 2_000, 2_000]
    assert (data.y.min(), data.y.max()) == (1, 17)
    assert data.y.mean() == pytest.approx(4.0, abs=0.005)
    assert data.y.var() == pytest.approx(5.5, abs=0.005)
    matrix = data.features("standard").to_numpy()
    assert matrix.shape == (20_000, 35)
    assert np.isfinite(matrix).all()
    train = data.part("train", "standard")[0]["glucose"].to_numpy()
    assert (train.mean(), train.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))


def test_the_real_bikes_are_encoded_like_the_authors(use_real_data):
    folder = use_real_data(SOURCES["bike_sharing"].files[0])
    data = tabular.bike_sharing()
    assert data.X.shape == (17_379, 12)
    assert not {"casual", "registered", "instant", "dteday", "cnt"} & set(data.X.columns)
    assert (data.y.min(), data.y.max()) == (1, 977)
    assert data.y.mean() == pytest.approx(189.46, abs=0.005)
    raw = pd.read_csv(folder / SOURCES["bike_sharing"].files[0])
    np.testing.assert_array_equal(data.y, raw["cnt"])
    np.testing.assert_allclose(
        data.features("authors").to_numpy(), encode_like_the_authors(raw), rtol=1e-10, atol=1e-10
    )


def encode_like_the_authors(raw: pd.DataFrame) -> np.ndarray:
    scaled = ["weekday", "weathersit", "temp", "atemp", "hum", "windspeed"]
    frame = raw[["yr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed"]].copy()
    frame = frame.astype(dict.fromkeys(scaled, float))
    frame[scaled] = (raw[scaled] - raw[scaled].mean()) / raw[scaled].std()
    for name, values in (("season", 4), ("mnth", 12), ("hr", 24)):
        angle = 2 * np.pi * (raw[name] - raw[name].min()) / (values - 1)
        frame[f"{name}_sin"], frame[f"{name}_cos"] = np.sin(angle), np.cos(angle)
    return frame.to_numpy(dtype=float)


def test_rand_health_is_that_of_statsmodels():
    data, frame = tabular.rand_health(), randhie.load_pandas()
    np.testing.assert_array_equal(data.y, frame.endog)
    np.testing.assert_array_equal(data.X.to_numpy(), frame.exog)
    assert data.X.columns == list(frame.exog.columns)
    assert data.split.n == 20_190


TABLE = pl.DataFrame({"n": [3.0, -1.0, 8.0, 8.0, 2.5], "same": [2.0] * 5, "letter": ["b", "a", "b", "b", "a"]})


def test_an_unknown_level_is_named():
    with pytest.raises(InputError, match="letter must be one of a, got b at rows 1, 3, 4"):
        tabular.one_hot(TABLE, "letter", ("a",))
