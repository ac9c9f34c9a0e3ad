"""Test FeatureEncoder as a scikit-learn transformer: the same matrix from any table, weights, messages and names."""

import json
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.tables.encoding import FeatureEncoder, categories, encoder_from_bytes, encoder_to_bytes, steps

MODES = ["standard", "piecewise", "steps"]
RNG = np.random.default_rng(5)
N = 400
ROWS = {
    "age": [None if RNG.random() < 0.1 else float(v) for v in RNG.normal(50, 9, N)],
    "hour": RNG.integers(0, 24, N).tolist(),
    "flag": (RNG.random(N) < 0.3).tolist(),
    "ward": RNG.choice(["A", "B", "C", None], N).tolist(),
    "same": [7.0] * N,
    "huge": (1e12 * (3 + RNG.normal(size=N))).tolist(),
}
Y = RNG.poisson(np.array(ROWS["hour"]) / 3 + np.where(np.array(ROWS["ward"]) == "A", 9, 1))
FRAME = pd.DataFrame(ROWS)


def test_standardised_values_are_those_of_scikit_learn():
    X = RNG.normal(size=(200, 3)) * [1.0, 1e-9, 1e9] + [0.0, 1.0, 1e12]
    np.testing.assert_allclose(FeatureEncoder().fit_transform(X), StandardScaler().fit_transform(X), atol=1e-5)


@pytest.mark.parametrize("numeric", MODES)
def test_weights_are_repetitions_and_zero_weights_are_no_rows(numeric):
    weights = RNG.integers(0, 4, N)
    order = RNG.permutation(np.arange(N).repeat(weights))
    weighted = FeatureEncoder(numeric=numeric).fit(FRAME, Y, sample_weight=weights)
    repeated = FeatureEncoder(numeric=numeric).fit(FRAME.iloc[order], Y[order])
    assert weighted.transform(FRAME).tobytes() == repeated.transform(FRAME).tobytes()
    assert weighted.get_feature_names_out().tolist() == repeated.get_feature_names_out().tolist()
    plain = FeatureEncoder(numeric=numeric).fit(FRAME, Y)
    assert weighted.transform(FRAME).tobytes() != plain.transform(FRAME).tobytes()


@pytest.mark.parametrize("numeric", MODES)
def test_names_match_the_columns(numeric):
    encoder = FeatureEncoder(numeric=numeric).fit(FRAME, Y)
    names = encoder.get_feature_names_out().tolist()
    out = dict(zip(names, encoder.transform(FRAME).T, strict=True))
    assert len(out) == len(names)
    assert out["ward = B"].tolist() == (FRAME["ward"] == "B").astype(float).tolist()
    assert out["ward = <missing>"].tolist() == FRAME["ward"].isna().astype(float).tolist()
    assert out["age is missing"].tolist() == FRAME["age"].isna().astype(float).tolist()
    assert out["flag"].tolist() == FRAME["flag"].astype(float).tolist()
    assert not out["same"].any()
    for name in (name for name in names if " > " in name):
        column, threshold = name.split(" > ")
        assert out[name].tolist() == (FRAME[column].fillna(FRAME[column].median()) > float(threshold)).tolist()


def test_levels_come_by_frequency_then_alphabet_and_others_share_inputs(monkeypatch):
    X = np.array([["a"]] * 3 + [["c"], ["b"]] * 2 + [["d"], [None]], dtype=object)
    later = [["a"], ["d"], ["never seen"], [None]]
    every = FeatureEncoder().fit(X)
    monkeypatch.setattr(categories, "_MIN_SHARE", 0.2)
    pooled = FeatureEncoder().fit(X)
    assert every.get_feature_names_out().tolist() == [f"x0 = {level}" for level in ("a", "b", "c", "d", "<missing>")]
    assert every.transform(later).tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0] * 5, [0, 0, 0, 0, 1]]
    names = ("a", "b", "c", "<other>", "<missing>")
    assert pooled.get_feature_names_out().tolist() == [f"x0 = {level}" for level in names]
    assert pooled.transform(later).tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("options", "arguments", "argument"),
    [
        ({"numeric": "bins"}, {}, "numeric"),
        ({"bins": 0}, {}, "bins"),
        ({"categorical": "hash"}, {}, "categorical"),
        ({}, {"sample_weight": np.ones(3)}, "sample_weight must have one value per row"),
        ({}, {"sample_weight": -np.ones(N)}, "sample_weight"),
        ({}, {"sample_weight": np.zeros(N)}, "sample_weight"),
        ({"numeric": "steps"}, {"y": None}, 'y is missing: numeric="steps"'),
        ({"categorical": "auto"}, {"y": None}, 'y is missing: categorical="auto"'),
        ({"numeric": "steps"}, {"y": Y[1:]}, "y must have one value per row"),
        (
            {"numeric": "steps"},
            {"y": np.where(np.arange(N) == 9, np.nan, Y)},
            "y must be finite and not negative, got nan at row 9",
        ),
        ({"categorical": "auto"}, {"y": Y - 100.0}, "y must be finite and not negative, got -"),
    ],
    ids=str,
)
def test_bad_options_and_arguments_are_named(options, arguments, argument):
    with pytest.raises((ConfigError, InputError)) as error:
        FeatureEncoder(**options).fit(FRAME, **{"y": Y, **arguments})
    assert error.value.argument == argument or argument in str(error.value)


CELLS = st.one_of(
    st.floats(allow_infinity=False),
    st.floats(allow_infinity=False, width=16),
    st.sampled_from([0.0, 1.0, 5e-324, -1.7e308, 1.7e308, 1e12]),
)


@pytest.mark.parametrize("numeric", MODES)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_output_is_always_finite(numeric, data):
    rows, columns = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 3))
    X = data.draw(hnp.arrays(np.float64, (rows, columns), elements=CELLS))
    later = data.draw(hnp.arrays(np.float64, (4, columns), elements=CELLS))
    y = data.draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 1000)))
    weights = data.draw(hnp.arrays(np.float64, rows, elements=st.sampled_from([1.0, 1e-300, 1e9])))
    with mock.patch.object(steps, "_ROUNDS", 5):
        encoder = FeatureEncoder(numeric=numeric, bins=4).fit(X, y, sample_weight=weights)
    assert np.isfinite(encoder.transform(X)).all()
    assert np.isfinite(encoder.transform(later)).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [FeatureEncoder(numeric=numeric) for numeric in MODES], ids=repr)
def test_the_encoder_passes_the_checks_of_scikit_learn(estimator, monkeypatch):
    monkeypatch.setattr(steps, "_ROUNDS", 5)
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    assert len(results) > 40
    assert [(r["check_name"], str(r["exception"])) for r in results if r["status"] == "failed"] == []


# Saving --------------------------------------------------------------------------------------------------------------


def test_options_and_levels_of_any_kind_are_restored():
    encoder = FeatureEncoder(bins=np.int64(3)).fit([["ü\ud800", 1.0], [None, 2.0]])
    again = encoder_from_bytes(encoder_to_bytes(encoder))
    assert again.get_params() == encoder.get_params()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()


GOOD = encoder_to_bytes(FeatureEncoder().fit([[1.0, "a"], [3.0, "b"], [None, "a"]]))
OTHERS = {
    "nothing": b"",
    "truncated": GOOD[:-9],
    "bytes": b"\xff\x00",
    "another format": GOOD.replace(b"features 4", b"features 9"),
    "a list": b"[1, 2]",
    "no columns": json.dumps({"format": "ddpn features 4"}).encode(),
    "unknown field": GOOD.replace(b'"scale"', b'"other"'),
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
def test_other_content_is_refused(content):
    with pytest.raises(InputError, match=r"^a\.json must hold a FeatureEncoder and nothing else"):
        encoder_from_bytes(content, "a.json")
