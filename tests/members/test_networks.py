"""Test networks as a member: encodings, copies, tensors with the digits of counts, files, and level effects."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.members import network_fit
from ddpn.members.network_fit import NetworkFit
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT
from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder

POISSON = make_head("poisson")


def make_networks(**options) -> NetworkFit:
    small = {"n_networks": 2, "hidden": (8,), "numeric": "standard", "epochs": 1}
    return NetworkFit(Networks, POISSON, NetworkOptions(**small | options))


@pytest.fixture(scope="module")
def jumping_counts() -> tuple[CountRows, CountRows]:
    """Counts that jump where a number passes a threshold, which no line follows; the last rows are for validation."""
    X = np.random.default_rng(3).uniform(size=(400, 2))
    whole = CountRows(X, 1.0 + 12.0 * ((X[:, 0] * 10) % 2 < 1))
    return whole.rows(slice(0, 300)), whole.rows(slice(300, 400))


@pytest.mark.parametrize(("largest", "dtype"), [(2.0**24 - 1, "torch.float32"), (2.0**24 + 1, "torch.float64")])
def test_tensors_hold_every_count_and_weights_of_mean_one(largest, dtype):
    X = np.arange(3.0)[:, None]
    sample = CountRows(X, np.array([0.0, 1.0, largest]), np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0]))
    member = make_networks()
    member.unit = 4.0
    result = member.to_tensors(sample, X.astype(np.float32))
    assert str(result.y.dtype) == dtype
    assert result.y[2].item() == largest
    assert result.weight.tolist() == [0.5, 1.0, 1.5]
    assert result.exposure.tolist() == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("numeric", ["auto", "piecewise"])
def test_with_more_columns_than_rows_those_that_matter_are_kept(numeric, monkeypatch):
    monkeypatch.setattr(network_fit, "MAX_ENCODED_COLUMNS", 20)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 80))
    train, validation = (CountRows(X, rng.poisson(np.exp(X[:, 71])).astype(float)) for X in (wide, wide[:30] + 0.1))
    member = make_networks(numeric=numeric).fit(train, validation, 0, NO_LIMIT)
    names = np.array(member.encoder.list_input_names())[member.chosen].tolist()
    assert len(names) == 60
    assert any(name.startswith("x71") for name in names)
    again = Networks.from_state(member.state())
    assert (again.raw(wide) == member.raw(wide)).all()
    changed, used = wide.copy(), {int(name.split()[0][1:]) for name in names}
    changed[:, sorted(set(range(80)) - used)] = 9.0
    assert (member.raw(changed) == member.raw(wide)).all()
    assert make_networks().fit(train, None, 0, NO_LIMIT).chosen is not None
    monkeypatch.setattr(network_fit, "MAX_ENCODED_COLUMNS", 80)
    assert make_networks().fit(train, None, 0, NO_LIMIT).chosen is None


def test_files_that_do_not_fit_together_are_refused(jumping_counts):
    member = make_networks().fit(jumping_counts[0], None, 0, NO_LIMIT)
    files = member.state()
    other = json.loads(files["networks.json"])
    other["options"] = other["options"] | {"hidden": [9]}
    for change in ({"networks.json": json.dumps(other).encode()}, {"networks.safetensors": b"\0" * 40}):
        with pytest.raises(InputError, match=r"networks.safetensors is damaged: it does not fit"):
            Networks.from_state(files | change)
    for chosen in ([0.5], [-1], [10**6], [[0]], ["a"]):
        facts = json.loads(files["networks.json"]) | {"chosen": chosen}
        with pytest.raises(InputError, match="inputs that the encoder does not have"):
            Networks.from_state(files | {"networks.json": json.dumps(facts).encode()})


@pytest.mark.parametrize(
    ("likelihood", "options"),
    [
        ("mixed", {"numeric": "steps", "activation": "gelu"}),
        ("double_poisson", {"hidden": ()}),
        ("gaussian", {"hidden": (130, 70, 20)}),
    ],
)
def test_a_row_has_the_same_raw_outputs_alone_and_among_others(likelihood, options):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1100, 3))
    sample = CountRows(X[:200], rng.poisson(np.exp(0.5 * X[:200, 0])).astype(float))
    chosen = NetworkOptions(**{"n_networks": 2, "hidden": (16, 12), "epochs": 1, **options})
    member = Networks.fit(sample, None, seed=1, head=make_head(likelihood), options=chosen)
    whole = member.raw(X)
    with torch.no_grad():
        inputs = torch.from_numpy(member.encoder.encode(X)).double()
    torch.testing.assert_close(whole, member.model.raw(inputs).detach(), rtol=1e-12, atol=1e-13)
    for rows in (slice(0, 1), slice(1099, 1100), slice(3, 8), slice(0, 64), slice(500, 1024), slice(20, 1045)):
        torch.testing.assert_close(member.raw(X[rows]), whole[rows], rtol=1e-12, atol=1e-14)


# A column with many levels --------------------------------------------------------------------------------------------

OPTIONS = {"n_networks": 2, "hidden": (16,), "epochs": 8, "batch_size": 64, "numeric": "standard"}


def simulate_levels(rows: int, spread: float, seed: int = 0) -> CountRows:
    """Simulate a table whose counts depend on 400 levels, or on nothing."""
    rng = np.random.default_rng(seed)
    effect, level = rng.normal(0.0, spread, 400), rng.integers(0, 400, rows)
    X = pl.DataFrame({"x": rng.normal(size=rows), "zip": [f"z{code}" for code in level]})
    exposure = rng.uniform(0.5, 2.0, rows)
    return CountRows(X, rng.poisson(exposure * np.exp(1.0 + effect[level])).astype(float), None, exposure)


def fit_networks(sample: CountRows, validation: CountRows | None = None, **options) -> Networks:
    chosen = NetworkOptions(**{**OPTIONS, **options})
    return Networks.fit(sample, validation, seed=1, head=make_head("negative_binomial"), options=chosen)


def compute_score(member: Networks, sample: CountRows) -> float:
    dist = member.distribution(sample.X, sample.exposure)
    return -dist.log_prob(torch.from_numpy(sample.y)[:, None]).mean().item()


@pytest.fixture(scope="module")
def sample() -> CountRows:
    return simulate_levels(2400, 0.8)


@pytest.fixture(scope="module")
def member(sample) -> Networks:
    return fit_networks(sample.rows(slice(0, 2000)))


def test_effects_improve_scores_of_rows_with_known_levels(sample, member):
    test = sample.rows(slice(2000, None))
    plain = fit_networks(sample.rows(slice(0, 2000)), categorical="one-hot")
    assert compute_score(member, test) < compute_score(plain, test) - 0.1
    with_validation = fit_networks(sample.rows(slice(0, 1800)), sample.rows(slice(1800, 2000)))
    assert compute_score(with_validation, test) < compute_score(plain, test) - 0.1


def test_rows_of_a_stream_that_are_in_the_sample_do_not_see_their_counts(sample, make_stream):
    train, validation, test = (sample.rows(part) for part in (slice(0, 1900), slice(1900, 2000), slice(2000, None)))
    scores = {}
    for categorical in ("auto", "one-hot"):
        options = NetworkOptions(**OPTIONS, categorical=categorical)
        chosen = {"head": make_head("negative_binomial"), "options": options, "stream": make_stream(train, 8.0)}
        scores[categorical] = compute_score(Networks.fit(train, validation, seed=1, **chosen), test)
    assert scores["auto"] < scores["one-hot"] - 0.1


def test_one_useless_column_of_a_stream_leaves_the_effects_of_others(sample, make_stream):
    # All rows of a zip are equal, and so in one fold, whose effects do not know it; a county has four zips.
    some = sample.rows(slice(0, 2000))
    county = pl.Series("county", [f"c{int(code[1:]) // 4}" for code in some.X["zip"]])
    train = some.replace(X=some.X.select("zip").with_columns(county))
    chosen = {"head": POISSON, "options": NetworkOptions(**OPTIONS | {"epochs": 1}), "stream": make_stream(train, 1.0)}
    fitted_to_all = FeatureEncoder(categorical="auto").fit(train.X, train.y, exposure=train.exposure)
    assert {"zip effect", "county effect"} <= set(fitted_to_all.get_feature_names_out())
    names = Networks.fit(train, None, seed=0, **chosen).encoder.list_input_names()
    assert "county effect" in names
    assert "zip effect" not in names
