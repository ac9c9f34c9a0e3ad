"""Saved encoders: the same after a round trip; other content is refused."""

import json

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder, encoder_bytes, encoder_from_bytes


def test_options_and_levels_of_any_kind_are_restored():
    encoder = FeatureEncoder(limit=np.inf, bins=np.int64(3), min_frequency=1).fit([["ü\ud800", 1.0], [None, 2.0]])
    again = encoder_from_bytes(encoder_bytes(encoder))
    assert again.get_params() == encoder.get_params()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()


def test_an_encoder_that_is_not_fitted_cannot_be_saved():
    with pytest.raises(NotFittedError):
        encoder_bytes(FeatureEncoder())


GOOD = encoder_bytes(FeatureEncoder().fit([[1.0, "a"], [3.0, "b"], [None, "a"]]))
OTHERS = {
    "nothing": b"",
    "truncated": GOOD[:-9],
    "bytes": b"\xff\x00",
    "another format": GOOD.replace(b"features 3", b"features 9"),
    "a list": b"[1, 2]",
    "no columns": json.dumps({"format": "ddpn features 3"}).encode(),
    "unknown field": GOOD.replace(b'"scale"', b'"other"'),
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
def test_other_content_is_refused(content):
    with pytest.raises(InputError, match=r"^a\.json must hold a FeatureEncoder and nothing else"):
        encoder_from_bytes(content, "a.json")
