"""Test what every estimator does: predictions against the distribution they are read from, and saving."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.exceptions import NotFittedError
from torch.distributions import Normal

from ddpn import (
    ConfigError,
    CountGLM,
    CountRegressor,
    DDPNRegressor,
    InputError,
    Mixture,
    discretize,
    explain,
    predictor,
)
from ddpn.analysis.explanations import Inputs, contributions
from ddpn.members import MEMBERS
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import LargeNetworks


@pytest.fixture(params=["double_poisson", "negative_binomial", "gaussian"], scope="module")
def model(request, quick, counts, exposures):
    return quick(likelihood=request.param, epochs=20).fit(*counts, exposure=exposures)


@pytest.fixture
def dist(model, counts, exposures) -> Mixture:
    return model.predict_distribution(counts[0], exposures).distribution


@pytest.fixture(scope="module")
def normal(quick, counts):
    """One network that predicts Normals."""
    return quick(likelihood="gaussian", n_networks=1, epochs=20).fit(*counts)


def get_normals(normal, X) -> stats.rv_continuous:
    normals = normal.predict_distribution(X).distribution.components
    assert isinstance(normals, Normal)
    return stats.norm(normals.loc.numpy().ravel(), normals.scale.numpy().ravel())


def test_points_are_those_of_the_distribution(model, dist, counts, exposures):
    rounded = discretize(dist)
    median = rounded.icdf(torch.full((90,), 0.5, dtype=torch.float64))
    expected = {"mean": dist.mean, "median": median, "mode": rounded.mode}
    for statistic, values in expected.items():
        assert (model.predict(counts[0], exposures, statistic) == values.numpy()).all(), statistic
    assert (model.predict(counts[0], exposures) == dist.mean.numpy()).all()


def test_intervals_hold_their_share(model, counts, exposures):
    X, exposures = counts[0][:20], exposures[:20]
    low, high = model.predict_interval(X, 0.8, exposures, "central").T
    assert low.dtype == np.int64
    assert (low >= 0).all()
    # Mass of [low, high], with half a count on either side for Normals.
    counted = np.arange(high.max() + 1)
    proba = model.predict_distribution(X, exposures).pmf(counted)
    inside = (counted >= low[:, None]) & (counted <= high[:, None])
    assert (np.where(inside, proba, 0.0).sum(1) >= 0.8 - 1e-9).all()


def test_intervals_of_normals_are_those_of_their_rounded_values(normal, counts):
    ends = get_normals(normal, counts[0])
    low, high = normal.predict_interval(counts[0], 0.9, kind="central").T
    assert (low == np.maximum(np.rint(ends.ppf(0.05)), 0)).all()
    assert (high == np.maximum(np.rint(ends.ppf(0.95)), 0)).all()
    assert (ends.ppf(0.05) < 0).any(), "the data must make the bound at 0 matter"


def test_quantiles_are_those_of_the_distribution(model, dist, counts, exposures):
    quantiles = model.predict_quantiles(counts[0], [0.1, 0.5, 0.99], exposures)
    assert quantiles.shape == (90, 3)
    for column, q in zip(quantiles.T, (0.1, 0.5, 0.99), strict=True):
        assert (column == discretize(dist).icdf(torch.full((90,), q, dtype=torch.float64)).numpy()).all()
    assert (np.diff(quantiles) >= 0).all()
    assert (model.predict_quantiles(counts[0], 0.5, exposures) == quantiles[:, [1]]).all()


def test_quantiles_at_no_level_and_at_the_ends_are_defined(small_ensemble, counts):
    assert small_ensemble.predict_quantiles(counts[0], []).shape == (90, 0)
    low, high = small_ensemble.predict_quantiles(counts[0], (0, 1)).T
    assert (low == 0).all()
    assert (high >= small_ensemble.predict_quantiles(counts[0], 0.999)[:, 0]).all()


def test_variance_is_split(model, dist, counts, exposures):
    prediction = model.predict_distribution(counts[0], exposures)
    means, variances = dist.components.mean.numpy(), dist.components.variance.numpy()
    assert prediction.aleatoric == pytest.approx(variances.mean(1), rel=1e-12)
    assert prediction.epistemic == pytest.approx(means.var(1), rel=1e-9, abs=1e-12)
    assert prediction.variance == pytest.approx(dist.variance.numpy(), rel=1e-12)


def test_probabilities_of_normals_are_those_of_rounding(normal, counts):
    ends = get_normals(normal, counts[0])
    probabilities = normal.predict_distribution(counts[0]).pmf([0, 3])
    assert probabilities[:, 0] == pytest.approx(ends.cdf(0.5), rel=1e-9)
    assert probabilities[:, 1] == pytest.approx(ends.cdf(3.5) - ends.cdf(2.5), rel=1e-7)


def test_scores_are_means_over_rows(model, dist, counts, exposures):
    X, y = counts
    weight = np.linspace(0.0, 3.0, len(y))
    observed = torch.from_numpy(y)
    for score, row_scores in ((model.crps, dist.crps(observed)), (model.nll, -dist.log_prob(observed))):
        assert score(X, y, exposure=exposures) == pytest.approx(row_scores.mean().item(), rel=1e-12)
        assert score(X, y, weight, exposures) == pytest.approx(
            np.average(row_scores.numpy(), weights=weight), rel=1e-12
        )


def test_rows_beyond_a_block_are_predicted_too(small_ensemble, counts, monkeypatch):
    X, y = counts
    expected = (
        small_ensemble.predict(X),
        small_ensemble.predict_interval(X),
        small_ensemble.crps(X, y),
        small_ensemble.predict_quantiles(X, [0.1, 0.9]),
    )
    monkeypatch.setattr(predictor, "BLOCK", 20)
    assert small_ensemble.predict(X) == pytest.approx(expected[0], rel=1e-12)
    assert (small_ensemble.predict_interval(X) == expected[1]).all()
    assert small_ensemble.crps(X, y) == pytest.approx(expected[2], rel=1e-12)
    assert (small_ensemble.predict_quantiles(X, [0.1, 0.9]) == expected[3]).all()


def test_the_score_of_counts_that_are_all_zero_is_finite(small_ensemble, counts):
    assert small_ensemble.score(counts[0], np.zeros(90)) == 0.0
    assert np.isfinite(small_ensemble.score(*counts, sample_weight=(counts[1] == 0).astype(float)))


# Exposure --------------------------------------------------------------------------------------------------------


def test_exposure_is_the_logarithm_of_an_offset(quick, counts, exposures):
    """Counts are in proportion to the exposure and nothing else, so the rate is the ratio of the sums."""
    X, y = np.zeros_like(counts[0]), counts[1]
    model = quick(likelihood="poisson", epochs=100, hidden=()).fit(X, y, exposure=exposures)
    assert model.predict(X, exposure=1) == pytest.approx(y.sum() / exposures.sum(), rel=1e-3)


def test_an_exposure_is_allowed_where_fit_had_none(counts):
    model = CountGLM(likelihood="poisson").fit(*counts)
    assert model.predict(counts[0], 3.0) == pytest.approx(3.0 * model.predict(counts[0]), rel=1e-12)


# What is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    *(("predict", {name: value}) for name, value in (("statistic", "max"), ("exposure", 0.0), ("exposure", np.nan))),
    ("predict_interval", {"kind": "widest"}),
    *(("predict_interval", {"coverage": value}) for value in (0.0, 1.0, 90, -0.1, float("nan"), "0.9")),
    *(("predict_quantiles", {"q": value}) for value in ([10, 90], np.nan, -0.1, ["half"], [[0.5]])),
]


@pytest.mark.parametrize(("ask", "options"), REFUSED, ids=str)
def test_bad_arguments_are_reported(small_ensemble, counts, ask, options):
    with pytest.raises((ConfigError, InputError), match=f"^{next(iter(options))} must "):
        getattr(small_ensemble, ask)(counts[0], **options)


@pytest.mark.parametrize("value", [[-1], [0.5], ["a"], [np.nan]], ids=str)
def test_bad_counts_are_reported(small_ensemble, counts, value):
    with pytest.raises(InputError, match=r"^counts must "):
        small_ensemble.predict_distribution(counts[0]).pmf(value)


# Leaderboard, verdict and report ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def glm_and_fresh_rows():
    """A model of gamma-mixed Poisson counts by a GLM and a constant, and fresh rows with their counts."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (1500, 1))
    y = rng.poisson(rng.gamma(2.0, np.exp(1.0 + X[:, 0]) / 2.0))
    model = CountRegressor(members=["glm", "constant"], random_state=0).fit(X[:500], y[:500])
    return model, X[500:], y[500:]


def test_the_leaderboard_has_the_scores_of_the_estimator(glm_and_fresh_rows):
    model, X, y = glm_and_fresh_rows
    board = model.leaderboard(X, y)
    scores = {entry["name"]: entry for entry in board.entries}
    assert scores["mixture"]["crps"] == pytest.approx(model.crps(X, y))
    assert scores["mixture"]["nll"] == pytest.approx(model.nll(X, y))
    low, high = model.predict_interval(X, 0.9).T
    assert scores["mixture"]["coverage"] == pytest.approx(((low <= y) & (y <= high)).mean())
    assert [entry["crps"] for entry in board.entries] == sorted(entry["crps"] for entry in board.entries)
    assert board.entries[-1]["name"] == "constant"
    assert board.to_dict()["rows"] == 1000


@pytest.mark.filterwarnings("ignore:The counts are over-dispersed")
def test_the_leaderboard_has_the_intervals_of_each_group():
    """Intervals of overdispersed rows are wider: the scores are those of the intervals that the model predicts."""
    rng = np.random.default_rng(0)

    def draw(rows: int) -> tuple[pd.DataFrame, np.ndarray]:
        ward = rng.choice(["calm", "wild"], rows)
        X = pd.DataFrame({"x": rng.normal(size=rows), "ward": ward})
        return X, rng.poisson(np.exp(2.0 + 0.2 * X["x"]) * np.where(ward == "wild", rng.gamma(0.5, 2.0, rows), 1.0))

    (X, y), (held_out, counts), (new, observed) = draw(600), draw(1000), draw(1000)
    model = (
        CountGLM("poisson")
        .fit(X[["x"]], y)
        .fit_intervals(held_out[["x"]], counts, groups=held_out["ward"], group_rows=0)
    )
    for chosen in (slice(None), (new["ward"] == "calm").to_numpy(), (new["ward"] == "wild").to_numpy()):
        rows, seen, labels = new[["x"]][chosen], observed[chosen], new["ward"][chosen]
        low, high = model.predict_interval(rows, groups=labels).T
        board = model.leaderboard(rows, seen, interval_groups=labels)
        entry = next(entry for entry in board.entries if entry["name"] == "mixture")
        assert entry["coverage"] == pytest.approx(((low <= seen) & (seen <= high)).mean())
        assert entry["width"] == pytest.approx((high - low).mean())
        assert abs(entry["coverage"] - 0.91) < 0.04
    with pytest.raises(InputError, match=r"^No column named 'ward' \(`interval_groups`\)"):
        model.leaderboard(new[["x"]], observed)
    by_column = CountGLM("poisson").fit(X, y).fit_intervals(held_out, counts, groups="ward", group_rows=0)
    low, high = by_column.predict_interval(new).T
    assert by_column.leaderboard(new, observed).entries[0]["width"] == pytest.approx((high - low).mean())


def test_the_verdict_prefers_what_is_better(glm_and_fresh_rows):
    model, X, y = glm_and_fresh_rows
    assert model.verdict(X, y).prefer in (None, "glm"), "never the constant, which is clearly worse"
    noise = model.verdict(X, np.random.default_rng(0).permutation(y))
    assert (noise.level, noise.prefer) == ("worse", "constant"), "X says nothing about these counts"
    few = model.verdict(X, y, groups=np.arange(1000) // 250)
    assert "Too few rows" in few.headline, "four groups count as four rows"


def test_the_leaderboard_is_shown_as_a_table(glm_and_fresh_rows):
    model, X, y = glm_and_fresh_rows
    board = model.leaderboard(X, y)
    assert "mixture" in str(board)
    assert str(board).endswith(str(board.verdict))
    html = board._repr_html_()
    assert html.count("<tr>") == 4
    assert f"{board.entries[0]['crps']:.4g}</strong>" in html


def test_a_report_whose_path_comes_first_says_where_it_belongs(small_ensemble, counts):
    model, (X, y) = small_ensemble, counts[:2]
    with pytest.raises(InputError, match=r'got ndarray instead. Call report\(X, y, "report.html"\)'):
        model.report("report.html", X, y)


def test_the_report_is_a_page_on_these_rows(glm_and_fresh_rows, tmp_path):
    model, X, y = glm_and_fresh_rows
    path = model.report(X[:300], y[:300], tmp_path / "report.html", task={"target": "visits"})
    with pytest.raises(InputError, match=r"report\.html already exists"):
        model.report(X[:300], y[:300], path)
    assert model.report(X[:300], y[:300], path, overwrite=True, task={"target": "visits"}) == path
    text = path.read_text(encoding="utf-8")
    assert "How well the model predicts visits" in text
    assert "evaluated on 300 test rows" in text
    assert "500 rows, 5-fold cross-fitted" in text


def test_a_report_and_explanations_show_days_as_dates(tmp_path):
    rng, days = np.random.default_rng(0), np.arange(400)
    when = pd.Timestamp("2023-03-01") + pd.to_timedelta(rng.permutation(days), unit="D")
    X = pd.DataFrame({"admitted": when, "age": rng.normal(size=400)})
    y = rng.poisson(np.exp(0.5 + 0.004 * (X["admitted"] - X["admitted"].min()).dt.days))
    model = CountRegressor(members=["glm"], random_state=0).fit(X[:300], y[:300])
    text = model.report(X[300:], y[300:], tmp_path / "report.html").read_text(encoding="utf-8")
    number = int(when.to_numpy().astype("datetime64[D]").astype(int).min())
    assert model.day_columns_ == {"admitted day"}
    assert re.search(r"From [\d.]+ where admitted day is 2023-0\d-\d\d to [\d.]+ where it is 2024-0\d-\d\d", text)
    assert re.search(r"<td>above 202[34]-\d\d-\d\d</td>", text)
    assert not re.search(rf">{str(number)[:2]}\d\d\d<", text), "no number of days is shown"
    effects = explain(model, X[:80], y[:80]).effects
    assert effects["admitted day"].format_points()[0].startswith("2023-")
    rows = contributions(Inputs(model, X[:2]), Inputs(model, X[:50]))
    assert rows.cells[0][rows.columns.index("admitted day")] == X["admitted"][0].date().isoformat()


def test_explanations_of_an_unfitted_model_are_refused():
    with pytest.raises(NotFittedError):
        explain(DDPNRegressor(), np.zeros((3, 1)))


# Saving -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model_path(small_ensemble, tmp_path) -> Path:
    small_ensemble.save(tmp_path / "model")
    return tmp_path / "model"


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_predictions_are_equal_bit_for_bit(model_with_exposure, counts, exposures, tmp_path):
    X, _ = counts
    model_with_exposure.save(tmp_path / "model")
    loaded = DDPNRegressor.load(tmp_path / "model")
    for exposure in (exposures, 2.0 * exposures):
        ours, theirs = (
            m.predict_distribution(X, exposure).distribution.components for m in (model_with_exposure, loaded)
        )
        for name in ours.arg_constraints:
            assert (getattr(ours, name) == getattr(theirs, name)).all()
    ours, theirs = (m.predict_interval(X[:20], 0.9, exposures[:20]) for m in (model_with_exposure, loaded))
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (), "random_state": np.random.RandomState(3)},
        {"numeric": "steps", "checkpoint": "somewhere", "verbose": True},
        {
            "likelihood": "double_poisson",
            "head_options": {"beta": 0.5},
            "training_options": {"activation": "tanh"},
        },
    ],
    ids=["linear", "steps", "beta"],
)
def test_every_kind_of_network_is_restored(quick, counts, tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    model = quick(**options).fit(*counts)
    model.save(Path("deep") / "model")
    loaded = DDPNRegressor.load("deep/model")
    assert (loaded.predict(counts[0]) == model.predict(counts[0])).all()
    kept = {name: None if name in ("checkpoint", "random_state") else v for name, v in model.get_params().items()}
    lost = {"verbose": None, "random_state": loaded.random_state if "random_state" not in options else None}
    assert loaded.get_params() == kept | lost


@pytest.fixture(scope="module")
def model_of_all_members(quick, larger) -> DDPNRegressor:
    """A model with every kind of member, calibrated."""
    X, y = larger
    ward = np.where(X[:, 1] > 0, "A", "B")
    frame = pd.DataFrame({"x": X[:, 0], "ward": ward, "age": np.where(X[:, 0] > 1, np.nan, X[:, 1])})
    others = [name for name in MEMBERS if name != "networks"]
    few = NetworkOptions(n_networks=2, hidden=(8,), epochs=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LargeNetworks, "choose_options", lambda task: {"head": task.head, "options": few})
        model = quick(mix_with=others, epochs=2, training_options={"batch_size": 100}).fit(frame[:210], y[:210])
    return model.fit_intervals(frame[270:], y[270:]).fit_ood(frame[270:])


@pytest.fixture(scope="module")
def path_of_all_members(model_of_all_members, tmp_path_factory) -> Path:
    """The folder of the model of all members, for tests that only read it."""
    folder = tmp_path_factory.mktemp("of_all") / "model"
    model_of_all_members.save(folder)
    return folder


def test_all_members_and_their_calibration_are_restored(model_of_all_members, path_of_all_members):
    loaded = DDPNRegressor.load(path_of_all_members)
    assert loaded.predictor_.weights == model_of_all_members.predictor_.weights
    assert loaded.predictor_.seconds == model_of_all_members.predictor_.seconds
    new = pd.DataFrame({"age": [np.nan, 44.0], "ward": ["unseen", "B"], "x": [0.5, np.nan]})
    assert (loaded.predict(new) == model_of_all_members.predict(new)).all()
    assert loaded.feature_names_in_.tolist() == ["x", "ward", "age"]
    for name in model_of_all_members.predictor_.members:
        ours, theirs = (model.predictor_.distribution(new, member=name) for model in (model_of_all_members, loaded))
        assert (ours.mean == theirs.mean).all()
        assert (ours.variance == theirs.variance).all()
    ours, theirs = (model.predict_interval(new, 0.7) for model in (model_of_all_members, loaded))
    assert (ours == theirs).all()
    assert (loaded.predictor_.calibration.interval_level(0.9), loaded.is_ood(new).tolist()) == (
        model_of_all_members.predictor_.calibration.interval_level(0.9),
        model_of_all_members.is_ood(new).tolist(),
    )
    with pytest.raises(InputError, match="'ward'"):
        loaded.predict(new[["age", "x"]])


def test_no_file_is_a_pickle(path_of_all_members):
    for name in list_files(path_of_all_members):
        content = (path_of_all_members / name).read_bytes()
        if name.endswith(".json"):
            json.loads(content)
        elif name.endswith(".safetensors"):
            length = int.from_bytes(content[:8], "little")
            dtypes = {entry["dtype"] for entry in json.loads(content[8 : 8 + length]).values()}
            usual = {"features.safetensors": {"F32", "F64", "I64", "U64"}}
            usual |= {f"{kind}/networks.safetensors": {"F32"} for kind in ("networks", "large_networks")}
            assert dtypes <= usual.get(name, {"F64", "I32", "I64"})
        else:
            pytest.fail(f"{name} is neither JSON nor safetensors")


def test_options_changed_after_fitting_do_not_change_the_model(quick, counts, tmp_path):
    model = quick().fit(*counts)
    expected = model.predict(counts[0])
    model.set_params(hidden=(64, 64), n_networks=9, training_options={"activation": "tanh"}, likelihood="poisson")
    model.save(tmp_path / "model")
    assert (DDPNRegressor.load(tmp_path / "model").predict(counts[0]) == expected).all()


def test_a_loaded_model_can_be_saved_again(small_ensemble, model_path, counts, tmp_path):
    DDPNRegressor.load(model_path).save(tmp_path / "again")
    names = list_files(model_path)
    assert {"networks/networks.safetensors", "networks/encoder.json", "calibration.safetensors"} < names
    assert list_files(tmp_path / "again") == names
    for name in names - {"model.json"}:
        assert (tmp_path / "again" / name).read_bytes() == (model_path / name).read_bytes()
    loaded = DDPNRegressor.load(tmp_path / "again")
    assert (loaded.predict(counts[0]) == small_ensemble.predict(counts[0])).all()
    assert loaded.history_.as_dict() == small_ensemble.history_.as_dict()
    facts, expected = (model.predictor_.members["networks"].get_facts() for model in (loaded, small_ensemble))
    assert facts["numeric"] == expected["numeric"]
    assert (loaded.n_rows_, loaded.n_features_in_) == (small_ensemble.n_rows_, 3)
    assert not loaded.predictor_.calibration.intervals


def test_a_new_fit_forgets_the_calibration_that_a_saved_model_keeps(counts, tmp_path):
    model = CountGLM(likelihood="poisson").fit(*counts)
    model.fit_intervals(*counts, prior_rows=20.0).fit_ood(counts[0], alpha=0.1).save(tmp_path / "model")
    again, X = CountGLM.load(tmp_path / "model"), 2.0 * counts[0]
    ours, theirs = (regressor.predict_interval(X, 0.7) for regressor in (model, again))
    assert (ours == theirs).all()
    assert (model.ood_pvalue(X) == again.ood_pvalue(X)).all()
    assert 0.0 < again.is_ood(X).mean() < 1.0
    assert not model.fit(*counts).predictor_.calibration.intervals


# Damage ----------------------------------------------------------------------------------------------------------


def test_files_with_right_hashes_and_wrong_content_are_refused(model_path, rewrite):
    facts = json.loads((model_path / "networks" / "networks.json").read_text()) | {"options": {"hiden": [8]}}
    rewrite(model_path, {"networks/networks.json": json.dumps(facts).encode()})
    with pytest.raises(InputError, match="do not fit its manifest"):
        DDPNRegressor.load(model_path)


def test_another_kind_of_estimator_is_reported(counts, tmp_path, model_path):
    CountGLM(likelihood="poisson").fit(*counts).save(tmp_path / "glm")
    with pytest.raises(InputError, match=r"holds a CountGLM, not a DDPNRegressor. Use CountGLM.load"):
        DDPNRegressor.load(tmp_path / "glm")
    with pytest.raises(InputError, match=r"holds a DDPNRegressor, not a CountGLM"):
        CountGLM.load(model_path)
