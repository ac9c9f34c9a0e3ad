"""Networks on a column with many levels: what they gain, that no row sees its own count, and equal predictions."""

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.heads import make_head
from ddpn.sample import Sample
from ddpn.tables.encoding import FeatureEncoder

OPTIONS = {"members": 2, "hidden": (16,), "epochs": 8, "batch_size": 64, "numeric": "standard"}


def levels(rows: int, spread: float, seed: int = 0) -> Sample:
    """A table whose counts depend on 400 levels, or on nothing."""
    rng = np.random.default_rng(seed)
    effect, level = rng.normal(0.0, spread, 400), rng.integers(0, 400, rows)
    X = pl.DataFrame({"x": rng.normal(size=rows), "zip": [f"z{code}" for code in level]})
    exposure = rng.uniform(0.5, 2.0, rows)
    return Sample(X, rng.poisson(exposure * np.exp(1.0 + effect[level])).astype(float), None, exposure)


def networks(**options) -> Networks:
    return Networks(make_head("negative_binomial"), NetworkOptions(**{**OPTIONS, **options}))


def fitted(sample: Sample, validation: Sample | None = None, **options) -> Networks:
    return networks(**options).fit(sample, validation, seed=1)


def score(member: Networks, sample: Sample) -> float:
    dist = member.distribution(sample.X, sample.exposure)
    return -dist.log_prob(torch.from_numpy(sample.y)[:, None]).mean().item()


@pytest.fixture(scope="module")
def sample() -> Sample:
    return levels(2400, 0.8)


@pytest.fixture(scope="module")
def member(sample) -> Networks:
    return fitted(sample.rows(slice(0, 2000)))


def test_effects_pay_on_rows_of_known_levels(sample, member):
    test = sample.rows(slice(2000, None))
    plain = fitted(sample.rows(slice(0, 2000)), categorical="one-hot")
    assert score(member, test) < score(plain, test) - 0.1
    with_validation = fitted(sample.rows(slice(0, 1800)), sample.rows(slice(1800, 2000)))
    assert score(with_validation, test) < score(plain, test) - 0.1


class Stream:
    """Rows in memory, drawn in chunks: those that the encoder was fitted to come again."""

    identity, most_passes = "rows", 8.0

    def __init__(self, rows: Sample) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def chunks(self, rows: int, seed: int):
        rng = np.random.default_rng(seed)
        while True:
            yield rng.permutation(len(self))[:rows]

    def sample(self, chunk) -> Sample:
        return self.rows.rows(chunk)


def test_rows_of_a_stream_that_are_in_the_sample_do_not_see_their_counts(sample):
    train, known, test = (sample.rows(part) for part in (slice(0, 1900), slice(1900, 2000), slice(2000, None)))
    scores = {}
    for categorical in ("auto", "one-hot"):
        options = NetworkOptions(**OPTIONS, categorical=categorical)
        member = Networks(make_head("negative_binomial"), options, stream=Stream(train))
        scores[categorical] = score(member.fit(train, known, seed=1), test)
    assert scores["auto"] < scores["one-hot"] - 0.1


def test_one_useless_column_of_a_stream_leaves_the_effects_of_others(sample):
    # All rows of a zip are equal, and so in one fold, whose effects do not know it; a county has four zips.
    some = sample.rows(slice(0, 2000))
    county = pl.Series("county", [f"c{int(code[1:]) // 4}" for code in some.X["zip"]])
    train = some.replace(X=some.X.select("zip").with_columns(county))
    member = Networks(make_head("negative_binomial"), NetworkOptions(**OPTIONS), stream=Stream(train))
    fitted_to_all = FeatureEncoder(categorical="auto").fit(train.X, train.y, exposure=train.exposure)
    assert {"zip effect", "county effect"} <= set(fitted_to_all.get_feature_names_out())
    encoder, crossed = member._stream_encoder("standard", train)
    names = encoder.get_feature_names_out()
    assert crossed is not None
    assert "county effect" in names
    assert "zip effect" not in names
    assert crossed.inputs_by_content(train.X).shape == (2000, len(names))
