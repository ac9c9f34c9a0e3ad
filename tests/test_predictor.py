"""Test that a predictor is a weighted mixture of members with one calibration for all of them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn import predictor as module
from ddpn.calibration.calibrate import fit_intervals, fit_ood, fit_recalibration
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.intervals import IntervalLevels, make_interval, score_blocks
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.member import Member
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.heads import make_head
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.contents import arrays_to_bytes
from ddpn.tables import reading

RNG = np.random.default_rng(3)
X = RNG.normal(size=(120, 2))
EXPOSURE = RNG.uniform(0.5, 2.0, 120)
SAMPLE = CountRows(X, RNG.poisson(EXPOSURE * np.exp(1.0 + 0.7 * X[:, 0])).astype(float), None, EXPOSURE)
WEIGHTS = {"constant": 0.2, "poisson_glm": 0.5, "glm": 0.3}


@pytest.fixture(scope="module")
def members():
    kinds = {"constant": Constant, "poisson_glm": PoissonGLM, "glm": GLM}
    return {name: kind.fit(SAMPLE, None, seed=0) for name, kind in kinds.items()}


@pytest.fixture
def predictor(members) -> Predictor:
    return Predictor(members, WEIGHTS, needs_exposure=True, seconds={"glm": 1.5})


# Weights ---------------------------------------------------------------------------------------------------------


def test_the_mixture_has_the_weights_of_its_members(predictor, members):
    mixture = predictor.distribution(X, EXPOSURE)
    means = {name: predictor.distribution(X, EXPOSURE, member=name).mean for name in members}
    for name, member in members.items():
        assert (means[name] == member.distribution(X, EXPOSURE).mean[:, 0]).all()
    expected = sum(WEIGHTS[name] * mean for name, mean in means.items())
    assert mixture.mean.numpy() == pytest.approx(expected.numpy(), rel=1e-12)
    assert mixture.batch_shape == (120,)


def test_a_member_of_weight_zero_is_not_asked(members, predictor):
    class Broken(Constant):
        def distribution(self, X, exposure=None):
            raise AssertionError

    before = predictor.distribution(X, EXPOSURE).mean
    predictor.add("broken", Broken.fit(SAMPLE, None, seed=0), seconds=2.0)
    assert (predictor.distribution(X, EXPOSURE).mean == before).all()
    assert list(predictor.active_members) == list(members)
    assert (predictor.weights["broken"], predictor.seconds["broken"]) == (0.0, 2.0)
    with pytest.raises(AssertionError):
        predictor.distribution(X, EXPOSURE, member="broken")


def test_a_table_is_read_once_for_all_members(members, monkeypatch):
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"p{row}" for row in range(120)])
    sample, calls, real = SAMPLE.replace(X=frame), [], reading._read_frame
    named = {name: type(member).fit(sample, None, seed=0) for name, member in members.items()}
    predictor = Predictor(named, WEIGHTS, needs_exposure=True)
    alone = predictor.distribution(frame, EXPOSURE).mean
    predictor.calibration = replace(predictor.calibration, profile=FeatureProfile.fit(frame))
    monkeypatch.setattr(reading, "_read_frame", lambda *arguments: calls.append(1) or real(*arguments))
    assert torch.equal(predictor.distribution(frame[["b", "a"]], EXPOSURE).mean, alone)
    assert len(calls) == 1
    wrong = frame.assign(a=["old"] * 5 + ["1"] * 115)
    with pytest.raises(InputError, match=r"column 'a' must hold numbers as in fit, got 'old' at rows p0, p1"):
        predictor.distribution(wrong, EXPOSURE)


@pytest.mark.parametrize("name", [MIXTURE, "glm"])
def test_a_name_in_use_cannot_be_added(predictor, name):
    with pytest.raises(ConfigError, match=f"The name '{name}' is already used"):
        predictor.add(name, predictor.members["constant"])
    assert predictor.weights == WEIGHTS


def test_an_unknown_member_is_reported(predictor):
    with pytest.raises(ConfigError, match=r"member must be one of mixture, constant, .*Did you mean 'glm'"):
        predictor.distribution(X, EXPOSURE, member="gml")


def test_blocks_are_the_same_rows(predictor, monkeypatch):
    whole = predictor.distribution(X, EXPOSURE).mean
    monkeypatch.setattr(module, "BLOCK", 50)
    for exposure in (EXPOSURE, pd.Series(EXPOSURE)):
        parts = list(predictor.blocks(X, exposure))
        assert [len(part.mean) for part in parts] == [50, 50, 20]
        assert torch.cat([part.mean for part in parts]).numpy() == pytest.approx(whole.numpy(), rel=1e-12)
    (one,) = predictor.blocks(X[:50], EXPOSURE[:50], member="glm")
    assert one.size == 1


@pytest.fixture(scope="module")
def networks_and_glm() -> dict[str, Member]:
    options = NetworkOptions(n_networks=3, hidden=(16, 16), epochs=3, numeric="piecewise")
    networks = Networks.fit(SAMPLE, None, seed=0, head=make_head("mixed"), options=options)
    return {"networks": networks, "glm": GLM.fit(SAMPLE, None, seed=0)}


@pytest.fixture(scope="module")
def many_rows() -> np.ndarray:
    """More rows than networks take at a time, with some far from all others."""
    rows = np.random.default_rng(5).normal(size=(1224, 2))
    rows[[7, 800], [0, 1]] = 1e12, -300.0
    return rows


@pytest.mark.parametrize("weights", [{"networks": 1.0, "glm": 0.0}, {"networks": 0.6, "glm": 0.4}])
def test_a_row_has_the_same_prediction_alone_and_among_others(networks_and_glm, many_rows, weights):
    exposure = np.random.default_rng(6).uniform(0.5, 2.0, len(many_rows))
    predictor = Predictor(networks_and_glm, weights, needs_exposure=True)
    levels = torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64)
    whole = predictor.distribution(many_rows, exposure).summary(levels)
    for rows in ([0], [7], [800], [1023], [1024], [3, 1100, 9], range(1000, 1100), range(200, 1224)):
        some = list(rows)
        part = predictor.distribution(many_rows[some], exposure[some]).summary(levels)
        for actual, expected in zip(part[:6], whole[:6], strict=True):
            torch.testing.assert_close(actual, expected[some], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("index", "label"), [(None, "70"), ([f"p{row}" for row in range(120)], "p70")])
def test_a_bad_value_in_a_later_block_is_reported_at_its_row(predictor, monkeypatch, index, label):
    monkeypatch.setattr(module, "BLOCK", 50)
    cells = X.astype(object)
    cells[70, 1] = np.inf
    table = cells if index is None else pd.DataFrame(cells.astype(float), index=index)
    with pytest.raises(InputError, match=f"at row {label}\\."):
        list(predictor.blocks(table, EXPOSURE))


# Exposure --------------------------------------------------------------------------------------------------------


def test_exposure_is_required_where_the_fit_had_it(predictor, members):
    with pytest.raises(InputError, match=r"exposure is missing.*exposure=1"):
        predictor.distribution(X)
    assert (predictor.distribution(X, 1).mean == predictor.distribution(X, np.ones(120)).mean).all()
    assert Predictor(members).distribution(X).batch_shape == (120,)


# Calibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior_rows", [0.0, 100.0])
def test_intervals_are_calibrated_for_the_mixture_and_every_member(predictor, prior_rows):
    some = SAMPLE.rows(slice(0, 60)).replace(weight=np.where(np.arange(60) < 50, 1.0, 0.0))
    assert predictor.calibration.interval_level(0.8, member="glm") == 0.8
    rows = predictor.predict_held_out(some)
    some = rows.rows
    predictor.calibration = fit_intervals(predictor.calibration, rows, prior_rows)
    assert set(predictor.calibration.intervals) == {MIXTURE, *WEIGHTS}
    y = torch.from_numpy(some.y)
    for name in predictor.calibration.intervals:
        dist = predictor.distribution(some.X, some.exposure, member=name)
        alone = IntervalLevels.from_scores(score_blocks([(slice(None), dist)], some.y), some.weight, prior_rows)
        assert predictor.calibration.interval_level(0.8, member=name) == alone.at(0.8)
        assert predictor.calibration.intervals[name].rows.tolist() == [50]
        if not prior_rows:
            low, high, _ = make_interval(dist, predictor.calibration.interval_level(0.8, member=name))
            assert ((low <= y) & (y <= high))[some.weight > 0].sum() >= np.ceil(0.8 * 51)
    scores = {predictor.calibration.intervals[name].scores.sum() for name in predictor.calibration.intervals}
    assert len(scores) == 4


@pytest.mark.parametrize("is_recalibrated", [False, True])
def test_columns_computed_at_once_are_those_of_the_distribution(members, is_recalibrated):
    predictor = Predictor(members, needs_exposure=True)
    rows = predictor.predict_held_out(SAMPLE)
    if is_recalibrated:
        predictor.calibration = fit_recalibration(predictor.calibration, rows, always=True)
    predictor.calibration = fit_intervals(predictor.calibration, rows)
    dist = predictor.distribution(X, SAMPLE.exposure)
    prediction = predictor.wrap(dist)
    columns = prediction.to_columns(PredictionSpec(coverage=0.8, quantiles=(0.1, 0.99)))
    for name in ("mean", "aleatoric", "epistemic"):
        np.testing.assert_allclose(columns[name], getattr(dist, name), rtol=1e-9, atol=1e-12)
    low, high, probability = prediction.interval_with_probability(0.8)
    levels = torch.tensor([[0.5], [0.1], [0.99]], dtype=torch.float64)
    median, *quantiles = dist.icdf(levels)
    expected = {"median": median, "mode": dist.mode, "lower": low, "upper": high}
    expected |= dict(zip(("q0.1", "q0.99"), quantiles, strict=True))
    for name, counts in expected.items():
        np.testing.assert_array_equal(columns[name], counts, err_msg=name)
    np.testing.assert_allclose(columns["interval_probability"], probability)


def test_a_member_that_is_the_mixture_has_its_levels(members):
    result = Predictor(members, {"constant": 0.0, "poisson_glm": 0.0, "glm": 1.0}, needs_exposure=True)
    rows = result.predict_held_out(SAMPLE)
    result.calibration = fit_intervals(result.calibration, rows, 20.0)
    assert result.sole_member == "glm"
    together = result.calibration.intervals
    for name in (MIXTURE, *members):
        scores = score_blocks(((index, dist) for _, index, dist in rows.blocks(name)), rows.rows.y)
        levels = IntervalLevels.from_scores(scores, rows.rows.weight, 20.0)
        assert all(np.array_equal(*both) for both in zip(together[name], levels, strict=True)), name
    assert not np.array_equal(together["glm"].scores, together["constant"].scores)
    result.calibration = fit_recalibration(result.calibration, rows, always=True)
    assert result.sole_member is None
    assert Predictor(members, WEIGHTS).sole_member is None


def test_levels_are_shrunk_towards_the_asked_coverage(predictor):
    some = SAMPLE.rows(slice(0, 60))
    levels = {}
    for prior_rows in (0.0, 100.0, 1e6):
        predictor.calibration = fit_intervals(predictor.calibration, predictor.predict_held_out(some), prior_rows)
        levels[prior_rows] = [predictor.calibration.interval_level(0.9, member=name) for name in predictor.members]
    assert max(levels[0.0]) > 0.95
    assert all(alone >= shrunk >= 0.9 for alone, shrunk in zip(levels[0.0], levels[100.0], strict=True))
    assert levels[1e6] == pytest.approx([0.9] * 3, abs=6e-3)


def test_censored_counts_make_intervals_central(predictor, members):
    some = SAMPLE.rows(slice(0, 60))
    assert predictor.interval_kind == "narrowest"
    limited = some.replace(y=np.minimum(some.y, 3.0), limit=np.full(60, 3.0))
    predictor.calibration = fit_intervals(predictor.calibration, predictor.predict_held_out(limited))
    assert predictor.interval_kind == "central"
    dist = predictor.distribution(some.X, some.exposure)
    low, high, _ = predictor.wrap(dist).interval_with_probability(0.9)
    tail = 0.5 * (1.0 - predictor.calibration.interval_level(0.9))
    assert torch.equal(low, dist.icdf(torch.full((60,), tail, dtype=torch.float64)))
    assert torch.equal(high, dist.icdf(torch.full((60,), 1.0 - tail, dtype=torch.float64)))
    assert Predictor(members, counts=CountRange(censored_above=4)).interval_kind == "central"


# Saving ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def predictor_with_calibration(members) -> Predictor:
    predictor = Predictor(members, WEIGHTS, needs_exposure=True, seconds={"glm": 1.5})
    predictor.calibration = fit_intervals(predictor.calibration, predictor.predict_held_out(SAMPLE))
    predictor.calibration = replace(predictor.calibration, profile=FeatureProfile.fit(X))
    predictor.calibration = fit_ood(predictor.calibration, X, alpha=0.1)
    predictor.summarise_scales(SAMPLE)
    return predictor


@pytest.fixture
def model_path(predictor_with_calibration, tmp_path) -> Path:
    predictor_with_calibration.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_predictor_is_the_same(predictor_with_calibration, model_path):
    predictor, again = predictor_with_calibration, Predictor.load(model_path)
    assert (again.weights, again.seconds, again.needs_exposure) == (WEIGHTS, {"glm": 1.5}, True)
    assert (again.distribution(X, EXPOSURE).mean == predictor.distribution(X, EXPOSURE).mean).all()
    for name, levels in predictor.calibration.intervals.items():
        for ours, theirs in zip(levels, again.calibration.intervals[name], strict=True):
            assert (ours == theirs).all()
    assert again.scales == {"exposure": [EXPOSURE.min(), np.sort(EXPOSURE)[(len(X) - 1) // 2], EXPOSURE.max()]}
    assert again.calibration.ood.alpha == 0.1
    assert (again.calibration.ood_pvalue(2 * X) == predictor.calibration.ood_pvalue(2 * X)).all()
    manifest = json.loads((model_path / "model.json").read_text())
    assert manifest["members"]["glm"] == {"weight": 0.3, "seconds": 1.5, "facts": predictor.members["glm"].get_facts()}


def test_without_calibration_none_is_restored(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    again = Predictor.load(tmp_path / "model")
    assert (again.calibration.intervals, again.calibration.ood) == ({}, None)
    with pytest.raises(InputError, match="already exists"):
        predictor.save(tmp_path / "model")
    predictor.save(tmp_path / "model", overwrite=True)


def test_members_for_comparison_are_left_out_on_request(predictor_with_calibration):
    files, manifest = predictor_with_calibration.state()
    manifest["members"]["poisson_glm"]["weight"] = 0.0
    kept = {name: content for name, content in files.items() if not name.startswith("poisson_glm/")}
    again = Predictor.from_state(kept, manifest, mixed_only=True)
    assert list(again.members) == list(again.weights) == ["constant", "glm"]
    assert again.calibration.interval_level(0.9) == predictor_with_calibration.calibration.interval_level(0.9)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("glm/glm.json", b"{"),
        ("glm/glm.json", b"{}"),
        ("glm/glm.json", b"[1]"),
        ("glm/glm.safetensors", b"\0" * 40),
        ("calibration.safetensors", b"\0" * 40),
        ("calibration.safetensors", arrays_to_bytes(other=np.zeros(3))),
    ],
    ids=["no JSON", "no keys", "a list", "no arrays", "no calibration", "another calibration"],
)
def test_files_that_do_not_fit_the_manifest_are_refused(model_path, rewrite, file, content):
    rewrite(model_path, {file: content})
    with pytest.raises(InputError, match="do not fit its manifest"):
        Predictor.load(model_path)


def test_a_missing_ood_score_or_an_unknown_member_is_refused(model_path, rewrite):
    rewrite(model_path, ood={"kind": "variance"})
    with pytest.raises(InputError, match="do not fit its manifest"):
        Predictor.load(model_path)
    rewrite(model_path, members={"my_own": {"weight": 1.0, "seconds": None, "facts": {}}})
    with pytest.raises(InputError, match=r"^The model has the member 'my_own', .*Register it first"):
        Predictor.load(model_path)
