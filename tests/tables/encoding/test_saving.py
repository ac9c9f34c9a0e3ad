"""Saved encoders: the same after a round trip, refused when tampered with."""

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load, save
from sklearn.exceptions import NotFittedError

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder, encoder_bytes, encoder_from_bytes, saving


@pytest.fixture(params=["standard", "piecewise", "steps"], scope="module")
def frame_and_encoder(request) -> tuple[pd.DataFrame, FeatureEncoder]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.normal(50, 9, 200),
            "hour": rng.integers(0, 24, 200),
            "flag": rng.random(200) < 0.3,
            "ward": rng.choice(["A", "B", None], 200),
            "same": 1.0,
        }
    )
    X.loc[3, "age"] = None
    return X, FeatureEncoder(numeric=request.param).fit(X, rng.poisson(X["hour"]))


def test_a_round_trip_changes_nothing(frame_and_encoder):
    X, encoder = frame_and_encoder
    again = encoder_from_bytes(encoder_bytes(encoder))
    assert again.get_params() == encoder.get_params()
    assert again.transform(X).tobytes() == encoder.transform(X).tobytes()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    assert again.feature_names_in_.tolist() == list(X.columns)


def test_thousands_of_columns_are_a_few_arrays():
    encoder = FeatureEncoder().fit(np.random.default_rng(0).normal(size=(30, 3000)))
    content = encoder_bytes(encoder)
    assert len(load(content)) < 20
    assert len(content) < 200_000
    assert [column.center for column in encoder_from_bytes(content).columns_] == [c.center for c in encoder.columns_]


def test_options_and_levels_of_any_kind_are_restored():
    encoder = FeatureEncoder(limit=np.inf, bins=np.int64(3), min_frequency=1).fit([["ü\ud800", 1.0], [None, 2.0]])
    again = encoder_from_bytes(encoder_bytes(encoder))
    assert again.get_params() == encoder.get_params()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()


@pytest.fixture(scope="module")
def content() -> bytes:
    return encoder_bytes(FeatureEncoder().fit([[1.0, "a"], [3.0, "b"], [None, "a"]]))


@pytest.mark.parametrize("kept", [0, 10, 60, 90, 500, -1])
def test_a_truncated_file_is_refused(content, kept):
    with pytest.raises(InputError, match=r"must be a saved|must be as it was saved"):
        encoder_from_bytes(content[:kept], "features.safetensors")


@pytest.mark.parametrize("place", [3, 20, 100, 500, -30, -1])
def test_an_altered_file_is_refused(content, place):
    altered = bytearray(content)
    altered[place] ^= 1
    with pytest.raises(InputError, match=r"must be a saved|must be as it was saved"):
        encoder_from_bytes(bytes(altered), "features.safetensors")


def test_an_encoder_that_is_not_fitted_cannot_be_saved():
    with pytest.raises(NotFittedError):
        encoder_bytes(FeatureEncoder())


def sealed(about: Any) -> bytes:
    """A file with a right checksum and this description."""
    arrays = {"description": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)}
    return save(arrays | {"sha256": saving._checksum(arrays)})


@pytest.mark.parametrize("about", [{"format": "other"}, {"format": "ddpn features 2"}, {}, [1, 2], "text"])
def test_another_content_with_a_right_checksum_is_refused(about):
    with pytest.raises(InputError, match="must hold a FeatureEncoder and nothing else"):
        encoder_from_bytes(sealed(about))


def test_an_archive_of_another_kind_is_refused():
    with pytest.raises(InputError, match="must be a saved FeatureEncoder"):
        encoder_from_bytes(pickle.dumps({"an": "object"}))
