"""Test the benchmark of real tables:

reading of predictions, scores, splits, adapters and the summary, without long fits.
"""

import csv
import json
from importlib import import_module

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import NegativeBinomial, Poisson


def import_benchmark(name):
    return import_module(f"benchmarks.tables.{name}")


# Predictions and scores ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [39, 199])
def test_a_grid_of_quantiles_scores_as_the_distribution_it_came_from(number):
    """Within the mass between two levels, CRPS, intervals and median are those of the Poisson."""
    mean = np.repeat([0.4, 3.0, 20.0, 150.0], 500)
    y = np.random.default_rng(0).poisson(mean).astype(float)
    levels = (np.arange(number) + 0.5) / number
    read = import_benchmark("predictions").from_quantiles(levels, stats.poisson.ppf(levels, mean[:, None]))
    exact = Poisson(torch.from_numpy(mean))
    assert torch.allclose(read.cdf(torch.from_numpy(y)), exact.cdf(torch.from_numpy(y)), atol=0.6 / number)
    scores, expected = (import_benchmark("scoring").score_rows(dist, y) for dist in (read, exact))
    assert scores["crps"] == pytest.approx(expected["crps"], rel=0.3 / number)
    assert scores["coverage"] == pytest.approx(expected["coverage"], abs=0.02)
    assert scores["mae"] == pytest.approx(expected["mae"], rel=0.01)


def test_crps_of_a_table_follows_its_definition():
    """Sum (F(k) - 1[y <= k])^2 over all k, for quantiles that cross and lie below 0."""
    levels = np.array([0.1, 0.5, 0.9])
    table = import_benchmark("predictions").from_quantiles(levels, np.array([[4.2, -1.0, 2.0], [7.0, 7.0, 7.0]]))
    k = np.arange(6)
    cdf = np.interp(k + 0.5, [0.0, 2.0, 4.2], levels)
    cdf[k + 0.5 > 4.2] = 1.0
    for y in (0.0, 3.0, 5.0):
        expected = ((cdf - (y <= k)) ** 2).sum()
        assert table.crps(torch.tensor([y, 7.0], dtype=torch.float64)).tolist() == pytest.approx([expected, 0.0])
    with pytest.raises(ValueError, match="finite"):
        import_benchmark("predictions").from_quantiles(levels, np.array([[1.0, np.nan, 2.0]]))


def test_a_family_is_read_with_its_parameters(tmp_path):
    mean, alpha = np.array([2.0, 5.0]), np.array([0.5, 0.5])
    np.savez(tmp_path / "one.npz", family="negative_binomial", mean=mean, alpha=alpha)
    dist, has_likelihood = import_benchmark("predictions").read_prediction(tmp_path / "one.npz")
    assert has_likelihood
    y = torch.tensor([0.0, 4.0], dtype=torch.float64)
    expected = stats.nbinom.logpmf(y, 1 / alpha, 1 / (1 + alpha * mean))
    assert dist.log_prob(y).tolist() == pytest.approx(expected.tolist())


def test_calibration_repairs_coverage_for_all_alike():
    """A Poisson for overdispersed counts has intervals that cover too little; calibrated ones cover 90%."""
    rng, mean = np.random.default_rng(1), np.full(1000, 30.0)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mean)).astype(float)
    scores = import_benchmark("scoring").score_rows(Poisson(torch.from_numpy(mean)), y)
    right = import_benchmark("scoring").score_rows(
        NegativeBinomial(torch.from_numpy(mean), torch.full((1000,), 0.5).double()), y
    )
    assert scores["own_coverage"] < 0.5
    assert scores["coverage"] == pytest.approx(0.9, abs=0.03)
    assert right["coverage"] == pytest.approx(0.9, abs=0.03)
    assert right["crps"] < scores["crps"]


# Tables and adapters -------------------------------------------------------------------------------------------------


def test_reported_tables_are_none_of_the_development():
    entries = import_benchmark("catalogue").read_catalogue()
    roles = {
        role: {e.source for e in entries.values() if e.role == role} for role in import_benchmark("catalogue").ROLES
    }
    assert len(roles["reported"]) >= 12
    assert not roles["reported"] & roles["development"]
    assert all(entry.why or not entry.drop for entry in entries.values())


@pytest.mark.parametrize(("role", "share"), [("reported", 0.2), ("apart", 0.1)])
def test_splits_are_disjoint_and_differ(role, share):
    split = import_benchmark("catalogue").split_rows
    fit, test = split(1000, role, 0)
    assert sorted([*fit, *test]) == list(range(1000))
    assert len(test) == share * 1000
    assert set(test) != set(split(1000, role, 1)[1])


@pytest.fixture
def small_table(tmp_path):
    """A small table with numbers, text and missing values, in a folder as --prepare writes it."""
    import pandas as pd

    rng = np.random.default_rng(0)
    size, plan = rng.normal(size=300), rng.choice(["a", "b", "c"], 300)
    y = rng.poisson(np.exp(0.5 + 0.7 * size + (plan == "b")))
    frame = pd.DataFrame({"size": size, "plan": plan, "code": rng.integers(3, size=300), "id": np.arange(300), "y": y})
    frame.loc[:9, ["size", "plan"]] = None
    entry = import_benchmark("catalogue").Entry("small", "reported", "none", "", "y", ["id"], "", ["code"])
    import_benchmark("catalogue").write_table(entry, frame, tmp_path)
    return tmp_path, frame


def test_a_prepared_table_is_read_back(small_table):
    folder, frame = small_table
    columns, y = import_benchmark("adapters.common").read_table(folder / "small")
    assert columns.names == ["size", "plan", "code"]
    assert columns.is_category == [False, True, True]
    assert np.array_equal(columns.values[0], frame["size"].to_numpy(), equal_nan=True)
    assert list(columns.decode_levels()[10:, 1]) == list(frame["plan"][10:])
    assert columns.decode_levels()[0, 1] is None
    assert np.array_equal(y, frame["y"])
    design = import_benchmark("adapters.common").Design(columns, at_least=10)(columns)
    assert design.shape == (300, 6)
    assert np.abs(design.mean(0)).max() < 1e-12


def test_our_models_are_fitted_and_scored_from_a_job(small_table, monkeypatch):
    folder, _ = small_table
    np.save(folder / "fit.npy", np.arange(200))
    np.save(folder / "test.npy", np.arange(200, 300))
    job = {
        "table": str(folder / "small"),
        "fit": str(folder / "fit.npy"),
        "test": str(folder / "test.npy"),
        "seed": 0,
        "threads": 1,
        "options": {"factory": "glm"},
        "out": str(folder),
    }
    (folder / "job.json").write_text(json.dumps(job))
    monkeypatch.setattr("sys.argv", ["ours", str(folder / "job.json")])
    import_benchmark("adapters.ours").main()
    scores = json.loads((folder / "scores.json").read_text())
    assert 0.0 < scores["crps"] < 5.0
    assert 0.6 < scores["coverage"] <= 1.0
    assert json.loads((folder / "times.json").read_text())["fit_cpu_seconds"] > 0.0


def test_the_lightgbm_recipe_is_a_direct_computation(small_table):
    """The mean is that of five boosters trained by hand, the dispersion the most likely one by scipy's pmf."""
    lightgbm = pytest.importorskip("lightgbm")
    folder, _ = small_table
    recipe, common = import_benchmark("adapters.lightgbm_poisson"), import_benchmark("adapters.common")
    columns, y = common.read_table(folder / "small")
    job = common.Job(columns, y, columns, y, 0, 1, {}, folder)
    prediction = recipe.fit(job)(columns)
    X, settings = columns.codes(), recipe.SETTINGS | {"num_threads": 1}
    tried = {}
    for leaves in recipe.LEAVES:
        means, rounds = np.empty(300), []
        for inner, outer in recipe.split_folds(300, 0):
            size = {"n_estimators": 2000, "num_leaves": leaves, "random_state": 0, "n_jobs": 1}
            model = lightgbm.LGBMRegressor(**size, **_rename_settings(settings))
            stop = lightgbm.early_stopping(50, verbose=False)
            validation = {"eval_X": X[outer], "eval_y": y[outer], "callbacks": [stop]}
            model.fit(X[inner], y[inner], categorical_feature=[1, 2], **validation)
            means[outer] = model.predict(X[outer])
            rounds.append(model.best_iteration_)
        tried[leaves] = means, round(np.mean(rounds))
    leaves = min(tried, key=lambda n_leaves: recipe.deviance(y, tried[n_leaves][0]))
    out_of_fold, rounds = tried[leaves]
    mean = np.zeros(300)
    for seed in range(5):
        model = lightgbm.LGBMRegressor(
            n_estimators=rounds, num_leaves=leaves, random_state=seed, n_jobs=1, **_rename_settings(settings)
        )
        mean += model.fit(X, y, categorical_feature=[1, 2]).predict(X) / 5
    assert prediction["mean"] == pytest.approx(mean, rel=1e-6)
    alphas = np.exp(np.linspace(-12, 5, 1701))[:, None]
    likely = stats.nbinom.logpmf(y, 1 / alphas, 1 / (1 + alphas * out_of_fold)).sum(1)
    assert np.log(prediction["alpha"][0]) == pytest.approx(np.log(alphas[likely.argmax(), 0]), abs=0.02)


def _rename_settings(settings):
    """Return the settings by the names of LightGBM's scikit-learn interface."""
    names = {
        "min_data_in_leaf": "min_child_samples",
        "feature_fraction": "colsample_bytree",
        "bagging_fraction": "subsample",
        "bagging_freq": "subsample_freq",
    }
    return {names.get(key, key): value for key, value in settings.items() if key != "num_threads"}


# Runs and the summary ------------------------------------------------------------------------------------------------


def test_a_run_is_done_once_and_failures_are_kept(small_table, tmp_path, monkeypatch):
    folder, _ = small_table
    running, models = import_benchmark("running"), import_benchmark("models")
    monkeypatch.setitem(models.MODELS, "no_package", models.Model("none", "no_such_adapter"))
    setup = running.Setup(tables=folder, environments=tmp_path, out=tmp_path / "out", python="current")
    runs = [running.Run("small", 0, name) for name in ("sklearn_hgb", "no_package")]
    results = dict(running.run_all(runs, setup, jobs=1))
    done, skipped = (results[run] for run in runs)
    assert done["status"] == "done"
    assert 0.0 < done["crps"] < 2.0
    assert done["fit_cpu_seconds"] > 0.0
    assert done["predict_cpu_seconds_100k"] > 0.0
    assert skipped["status"] != "done"
    assert "no_such_adapter" in skipped["reason"]
    assert json.loads(runs[0].path(setup.out).read_text()) == done
    assert running.select_waiting_runs(runs, setup) == []


def make_result(table, model, split, crps, cpu=1.0):
    scores = {"crps": crps, "nll": crps, "mae": crps, "coverage": 0.9, "own_coverage": 0.9, "width": 1.0}
    scores |= {"own_width": 1.0, "fit_seconds": cpu, "fit_cpu_seconds": cpu, "predict_cpu_seconds_100k": 1.0}
    run = {"table": table, "model": model, "split": split, "machine": "one", "commit": "abc"}
    return {"status": "done", **scores, **run}


@pytest.fixture
def results():
    """Two tables and two splits: ours is first and second, the reference second and first, boosting last or failed."""
    crps = {
        "one": {"ddpn_networks": 0.9, "lightgbm_nb": 1.0, "sklearn_hgb": 1.2},
        "two": {"ddpn_networks": 2.2, "lightgbm_nb": 2.0},
    }
    results_by_table = {
        table: {
            model: {split: make_result(table, model, split, value + 0.1 * split - 0.05, 8.0) for split in (0, 1)}
            for model, value in crps_by_model.items()
        }
        for table, crps_by_model in crps.items()
    }
    failed = {"status": "failed", "reason": "out of memory", "machine": "one", "commit": "abc"}
    failed |= {"table": "two", "model": "sklearn_hgb", "split": 0}
    results_by_table["two"]["sklearn_hgb"] = {0: failed, 1: make_result("two", "sklearn_hgb", 1, 0.1)}
    return results_by_table


def test_the_summary_has_ranks_ratios_and_wins(results):
    rows = {row.model: row for row in import_benchmark("summary").summarize_models(results)}
    ours, boosting = rows["ddpn_networks"], rows["sklearn_hgb"]
    assert (ours.rank, rows["lightgbm_nb"].rank, boosting.rank) == (1.5, 1.5, 3.0)
    assert ours.ratio == pytest.approx(np.sqrt(0.9 * 1.1))
    assert (ours.worst, ours.worst_table) == (pytest.approx(1.1), "two")
    assert (ours.wins, ours.losses) == (1, 1)
    assert ours.cpu_ratio == pytest.approx(1.0)
    # A model that failed on a split has no mean there, however good the other split was.
    assert (boosting.tables, boosting.worst_table) == (1, "one")


def test_the_page_names_failures_and_the_best_of_a_table(results):
    column = {"name": "x", "kind": "number"}
    fact = {"rows": 100, "columns": [column], "mean": 1.0, "variance": 2.0, "about": "things", "source": "none"}
    facts = {name: {**fact, "drop": [], "why": ""} for name in results}
    text = import_benchmark("page").format_page(results, {}, facts, results)
    assert "scikit-learn boosting, Poisson: 1 failed (two 0): `` out of memory ``" in text
    assert "| one (100) | **0.9** | 1 | 1.2 |" in text
    assert "at worst +10.0% against the best peer of a table (two)" in text


def test_the_scores_of_every_fit_are_written(results, tmp_path):
    import_benchmark("page").write_fits(results, tmp_path / "tables.csv")
    with (tmp_path / "tables.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 12
    rows = {(line["model"], line["split"]): line for line in lines if line["table"] == "two"}
    assert float(rows["ddpn_networks", "1"]["crps"]) == pytest.approx(2.25)
    assert rows["ddpn_networks", "1"]["fit_cpu_seconds"] == "8.0"
    assert (rows["sklearn_hgb", "0"]["status"], rows["sklearn_hgb", "0"]["crps"]) == ("failed", "")


def test_further_splits_have_their_own_ratios_and_no_other_part(results):
    more = {
        table: {model: dict(splits_of_model) for model, splits_of_model in models.items()}
        for table, models in results.items()
    }
    our_crps, peer = [2.15, 2.25, 1.9, 2.0, 2.1, 2.0], [1.95, 2.05, 2.0, 2.1, 2.0, 2.1]
    for split in range(2, 6):
        more["two"]["ddpn_networks"][split] = make_result("two", "ddpn_networks", split, our_crps[split])
        more["two"]["lightgbm_nb"][split] = make_result("two", "lightgbm_nb", split, peer[split])
    splits = import_benchmark("more_splits")
    (ratio,) = splits.compute_ratios(more, "ddpn_networks", 2)
    assert (ratio.table, ratio.peer, ratio.splits, ratio.worse) == ("two", "lightgbm_nb", 6, 3)
    assert (ratio.ratio, ratio.further) == pytest.approx((np.mean(our_crps) / np.mean(peer), 8.0 / 8.2))
    # The error of a ratio of means, against its spread over bootstrap samples of splits.
    pairs, rng = np.column_stack([our_crps, peer]), np.random.default_rng(0)
    drawn = pairs[rng.integers(0, 6, size=(20_000, 6))].mean(1)
    assert ratio.error == pytest.approx(np.std(drawn[:, 0] / drawn[:, 1]) * np.sqrt(6 / 5), rel=0.03)
    assert splits.select_splits(more, lambda split: split < 2) == results
    assert "On 6 splits of two it is +1.6% with a standard error of" in splits.describe_worst_ratio([ratio], "two")
    assert splits.describe_worst_ratio([ratio], "one") == ""
