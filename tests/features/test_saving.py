"""Saved encoders: the same after a round trip, refused when tampered with."""

import ast
import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import Ridge

from ddpn.errors import InputError
from ddpn.features import FeatureEncoder, encoder_bytes, encoder_from_bytes, saving
from ddpn.features.saving import _MARK, TRUSTED


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


def test_the_file_is_an_archive_without_pickles_that_needs_our_own_types_only(frame_and_encoder, tmp_path):
    path = tmp_path / "features.skops"
    path.write_bytes(encoder_bytes(frame_and_encoder[1]))
    assert set(skops.io.get_untrusted_types(file=path)) <= set(TRUSTED)
    for name in zipfile.ZipFile(path).namelist():
        assert name.endswith((".npy", ".json"))
    for name in (name for name in zipfile.ZipFile(path).namelist() if name.endswith(".npy")):
        with zipfile.ZipFile(path).open(name) as file:
            np.load(file, allow_pickle=False)


@pytest.fixture(scope="module")
def content() -> bytes:
    return encoder_bytes(FeatureEncoder().fit([[1.0, "a"], [3.0, "b"], [None, "a"]]))


@pytest.mark.parametrize("kept", [0, 10, 60, 90, 2000, -1])
def test_a_truncated_file_is_refused(content, kept):
    with pytest.raises(InputError, match=r"must be a saved|must be as it was saved"):
        encoder_from_bytes(content[:kept], "features.skops")


@pytest.mark.parametrize("place", [3, 20, 100, 1000, -30, -1])
def test_an_altered_file_is_refused(content, place):
    altered = bytearray(content)
    altered[place] ^= 1
    with pytest.raises(InputError, match=r"must be a saved|must be as it was saved"):
        encoder_from_bytes(bytes(altered), "features.skops")


def sealed(archive: bytes) -> bytes:
    return _MARK + hashlib.sha256(archive).hexdigest().encode() + b"\n" + archive


def test_an_unknown_type_in_the_archive_is_refused():
    encoder = FeatureEncoder(limit=Reversed())
    with pytest.raises(InputError, match="Reversed"):
        encoder_from_bytes(encoder_bytes(encoder))


class Reversed:
    """A type that is not trusted."""


@pytest.mark.parametrize(
    ("archive", "message"),
    [(b"no archive", "File is not a zip file"), (skops.io.dumps(Ridge()), "must hold a FeatureEncoder, got Ridge")],
)
def test_another_content_with_a_right_checksum_is_refused(archive, message):
    with pytest.raises(InputError, match=message):
        encoder_from_bytes(sealed(archive))


def test_skops_is_imported_inside_functions_only():
    """It takes seconds to import, and is needed only to save or load."""
    files = Path(saving.__file__).parent.glob("*.py")
    imports = (node for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body)
    names = [ast.unparse(node) for node in imports if isinstance(node, ast.Import | ast.ImportFrom)]
    assert any("FeatureEncoder" in name for name in names)
    assert not any("skops" in name for name in names)
