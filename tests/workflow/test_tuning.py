"""Test the search for settings: which rows score a trial, when trials are dropped, its budget, and what it saves."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.deadlines import Clock, check_deadline
from ddpn.runtime.errors import ConfigError, InputError, TrainingError
from ddpn.runtime.jobs import run as run_jobs
from ddpn.storage.contents import arrays_to_bytes
from ddpn.workflow import search as search_module
from ddpn.workflow import trials, tuning
from ddpn.workflow.config import FitConfig
from ddpn.workflow.model_folder import SavedModel, load
from ddpn.workflow.preparing import prepare
from ddpn.workflow.search import Search
from ddpn.workflow.trials import Trial, split_for_trials
from ddpn.workflow.tuning import choose_trial, compute_chance_gain, summarize_search, tune

#: One small network.
QUICK = {
    "n_networks": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip
SEARCHED = ["lr", "numeric"]
DEFAULTS = {"lr": 0.004, "numeric": "auto"}


@pytest.fixture(scope="module")
def small_table():
    """120 rows: no validation rows, and so three folds of 32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    table = pl.DataFrame({"x": x, "visits": rng.poisson(np.exp(1 + x))})
    return prepare(table, FitConfig(target="visits", compare_with=(), **QUICK))


@pytest.fixture(scope="module")
def larger_table():
    rng = np.random.default_rng(1)
    x = rng.normal(size=600)
    part = np.where(np.arange(600) % 5 == 0, "test", np.where(np.arange(600) % 5 == 1, "validation", "train"))
    return pl.DataFrame({"x": x, "hour": np.arange(600.0)[::-1], "part": part, "visits": rng.poisson(np.exp(1 + x))})


# The rows of trials


def check_folds(prepared, folds):
    """Check that no test row is used, and that no row of a fold is used twice."""
    test = set(prepared.split.rows.test.tolist())
    for fold in folds:
        rows = np.concatenate(fold.split.rows)
        assert len(set(rows.tolist())) == len(rows)
        assert not test & set(rows.tolist())


def test_every_known_row_is_scored_once_or_some_of_many(small_table, larger_table, monkeypatch):
    for table in (small_table, prepare(larger_table.drop("hour", "part"), FitConfig(target="visits", test_size=0.2))):
        folds = split_for_trials(table)
        check_folds(table, folds)
        scored = np.sort(np.concatenate([fold.split.rows.test for fold in folds]))
        known_rows = np.sort(np.concatenate([table.split.rows.train, table.split.rows.validation]))
        np.testing.assert_array_equal(scored, known_rows)
    assert all(len(fold.split.rows.validation) == round(320 / 8) for fold in folds)
    assert not len(split_for_trials(small_table)[0].split.rows.validation)
    monkeypatch.setattr(trials, "MAX_SCORED_ROWS", 90)
    assert [len(fold.split.rows.test) for fold in split_for_trials(table)] == [30, 30, 30]


def test_by_time_scored_rows_are_later(larger_table):
    prepared = prepare(larger_table.drop("part"), FitConfig(target="visits", time="hour"))
    folds = split_for_trials(prepared)
    check_folds(prepared, folds)
    assert len(folds) == 3
    hours = larger_table["hour"].to_numpy()
    for fold in folds:
        rows = fold.split.rows
        assert hours[rows.train].max() < hours[rows.validation].min() < hours[rows.test].min()
    np.testing.assert_array_equal(folds[0].split.rows.test, np.sort(prepared.split.rows.validation))


@pytest.mark.parametrize(("options", "crossed"), [({"split_column": "part"}, 5000), ({"drop": ("part",)}, 400)])
def test_chosen_or_many_validation_rows_are_scored(larger_table, options, crossed, monkeypatch):
    monkeypatch.setattr(trials, "SMALL_TABLE_ROWS", crossed)
    prepared = prepare(larger_table, FitConfig(target="visits", **options).with_test_rows())
    (fold,) = split_for_trials(prepared)
    check_folds(prepared, [fold])
    np.testing.assert_array_equal(fold.split.rows.test, np.sort(prepared.split.rows.validation))


@pytest.mark.parametrize("how", ["at random", "by time", "many rows"])
def test_folds_of_a_search_divide_no_group(larger_table, how, monkeypatch):
    monkeypatch.setattr(trials, "SMALL_TABLE_ROWS", 400 if how == "many rows" else 5000)
    person = np.arange(600) // 4
    plan = FitConfig(target="visits", group=("person",), time="hour" if how == "by time" else None)
    prepared = prepare(larger_table.drop("part").with_columns(person=person), plan.with_test_rows())
    folds = split_for_trials(prepared)
    check_folds(prepared, folds)
    assert len(folds) == (3 if how == "at random" else 1)
    for fold in folds:
        parts = [set(person[part].tolist()) for part in fold.split.rows]
        assert len(set().union(*parts)) == sum(map(len, parts))


# The search, with trials that are not fitted


def replace_scores(monkeypatch, score):
    """Replace the fits of trials by `score`, a function of a fold and settings."""

    def job(folds, number, settings, clock):
        return {"scores": arrays_to_bytes(crps=score(folds[number], settings), seconds=np.array(0.05))}

    monkeypatch.setattr(search_module, "score_fold", job)


def score_near_optimum(fold, settings):
    """Return a CRPS that is smallest near lr = 0.008."""
    rng = np.random.default_rng(len(fold.test.y))
    worse = abs(np.log(settings["lr"] / 0.008)) + 0.1 * (settings["numeric"] == "steps")
    return 1 + worse + 0.1 * rng.random(len(fold.test))


@pytest.fixture
def settings_log(monkeypatch):
    """The settings of every call."""
    settings_of_calls = []
    replace_scores(
        monkeypatch,
        lambda fold, settings: (settings_of_calls.append(dict(settings)), score_near_optimum(fold, settings))[1],
    )
    return settings_of_calls


@pytest.fixture
def run_search(tmp_path, small_table, monkeypatch):
    """Run a search in a folder, and return it with its trials; jobs run in this process."""
    monkeypatch.setattr(search_module, "run", lambda jobs, shared, n_jobs, store: run_jobs(jobs, shared, None, store))

    def go(folder="study", trials=None, seconds=None, seed=0, **options):
        table = replace(small_table, plan=small_table.plan.replace(seed=seed))
        search = Search(table, SEARCHED, tmp_path / folder, Clock(seconds), trials, **options)
        search.run()
        return search

    return go


def list_outcomes(search):
    return [(trial.settings, trial.crps, trial.dropped) for trial in search.trials]


def test_defaults_come_first_and_the_same_seed_makes_the_same_trials(run_search, settings_log):
    first = [trial.settings for trial in run_search("a", trials=12).trials]
    assert first[0] == DEFAULTS
    assert len(first) == 12
    assert len({str(settings) for settings in first}) > 8
    assert [trial.settings for trial in run_search("b", trials=12).trials] == first
    assert [trial.settings for trial in run_search("c", trials=12, seed=1).trials] != first


@pytest.mark.parametrize("n_jobs", [None, 3])
def test_a_search_that_is_continued_makes_the_trials_of_an_uninterrupted_one(
    run_search, settings_log, monkeypatch, n_jobs
):
    whole, lines = run_search("a", trials=9, n_jobs=n_jobs), []

    def interrupt(fold, settings):
        settings_log.append(settings)
        if len(settings_log) == 9:
            raise KeyboardInterrupt
        return score_near_optimum(fold, settings)

    settings_log.clear()
    with monkeypatch.context() as patch:
        replace_scores(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_search("b", trials=9, n_jobs=n_jobs)
    settings_log.clear()
    again = run_search("b", trials=9, on_step=lines.append)  # on one machine
    assert list_outcomes(again) == list_outcomes(whole)
    assert len(settings_log) == sum(len(trial.seconds) for trial in whole.trials) - 8, "no fold is scored twice"
    assert lines[0].startswith("Continuing")
    assert "Trial 8: " in lines[-1]
    assert [trial.number for trial in again.trials] == list(range(9))


def test_few_groups_do_not_make_a_gain_certain(larger_table, tmp_path, monkeypatch):
    """With all scored rows in one group, the mean of that group has no spread: rows decide, and the result says so."""
    monkeypatch.setattr(trials, "SMALL_TABLE_ROWS", 400)
    noise = np.random.default_rng(0)
    replace_scores(monkeypatch, lambda fold, settings: noise.random(len(fold.test)))
    prepared = prepare(
        larger_table.drop("part").with_columns(shop=np.arange(600) // 100),
        FitConfig(target="visits", group=("shop",), test_size=0.2),
    )
    search = Search(prepared, SEARCHED, tmp_path / "study", Clock(), 6)
    search.run()
    result = summarize_search(search)
    assert ": the gain in others may differ" in result.scored_on
    assert "of only" in result.scored_on
    assert result.gain.low < 0 < result.gain.high


def test_bad_trials_are_dropped_after_a_fold(run_search, settings_log):
    search = run_search(trials=12)
    dropped = [trial for trial in search.trials if trial.dropped]
    assert dropped
    assert all(len(trial.seconds) < 3 and "after fold" in trial.dropped for trial in dropped)
    assert not search.best.dropped
    assert search.best.crps <= search.trials[0].crps


def test_failed_trials_are_kept_and_those_of_the_defaults_raise(run_search, monkeypatch):
    def fail(fold, settings):
        if settings["lr"] != DEFAULTS["lr"]:
            raise TrainingError("loss must stay finite")
        return score_near_optimum(fold, settings)

    replace_scores(monkeypatch, fail)
    search = run_search("a", trials=5, n_jobs=3)
    assert any(trial.dropped == "failed: loss must stay finite" for trial in search.trials)
    json.dumps(summarize_search(search).as_dict(), allow_nan=False)
    replace_scores(monkeypatch, lambda fold, settings: fail(fold, {"lr": 1.0}))
    with pytest.raises(TrainingError):
        run_search("b", trials=4)


def test_the_budget_is_kept(run_search, monkeypatch):
    replace_scores(monkeypatch, lambda fold, settings: (time.sleep(0.05), np.ones(len(fold.test)))[1])
    monkeypatch.setattr(search_module, "_REFIT_SECONDS", 0.2)
    lines = []
    search = run_search(seconds=2.0, on_step=lines.append)
    assert "left before the refit" in lines[0]
    assert search.trials[-1].elapsed < 2.0
    assert len(search.trials) >= 2
    assert search.reserved == pytest.approx(0.2 + 2.0 * 96 / 64 * np.mean(search.best.seconds))


def test_without_time_for_the_defaults_they_are_the_result(run_search, monkeypatch):
    def score(*_):
        while True:
            check_deadline()
            time.sleep(0.01)

    replace_scores(monkeypatch, score)
    search = run_search(seconds=0.5)
    assert search.stopped
    assert not search.trials
    result = summarize_search(search)
    assert (result.best_number, result.best, result.details) == (0, DEFAULTS, [])
    assert "time for the default settings only" in result.headline


# When the best trial replaces the defaults


def simulate_trials(gains, seed=0, rows=400):
    """Simulate trials that are better than the defaults by so many standard errors of the paired difference."""
    rng = np.random.default_rng(seed)
    first = 2.0 + rng.random(rows)
    trials = [Trial(0, {"lr": 0.0}, first.mean(), 0.0, 0.0, scores=first)]
    for number, gain in enumerate(gains, start=1):
        noise = rng.normal(size=rows)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        scores = first - 0.1 * (noise + gain / np.sqrt(rows))
        error = 0.1 / np.sqrt(rows)
        trials.append(Trial(number, {"lr": float(number)}, scores.mean(), gain * error, error, scores=scores))
    return trials


@pytest.mark.parametrize(
    ("gains", "number", "is_clear"),
    [
        ([0.8], 1, False),
        ([0.8] + [0.0] * 20, None, False),
        ([1.9] + [0.0] * 20, 1, False),
        ([5.0] + [0.0] * 20, 1, True),
    ],
)
def test_a_trial_must_be_better_than_the_best_of_as_many_equal_ones(gains, number, is_clear):
    best, gain = choose_trial(simulate_trials(gains), np.ones(400))
    assert (None if best is None else best.number) == number
    assert gain.mean == pytest.approx(0.1 * gains[0] / 20), "of the best trial, though it may not be used"
    assert (gain.low > 0.0) == is_clear


def test_chance_finds_a_winner_among_equal_trials_in_about_half_of_the_searches():
    has_winner = [
        choose_trial(simulate_trials(np.random.default_rng(seed).normal(size=20), seed), np.ones(400))[0] is not None
        for seed in range(60)
    ]
    assert 0.35 < np.mean(has_winner) < 0.85
    assert compute_chance_gain(0) == compute_chance_gain(1) == 0.5


def test_rows_of_a_group_are_one_observation():
    """With ten equal rows per group the gain is less clear than with as many independent rows."""
    first, second = simulate_trials([3.0], rows=40)
    copies = [replace(trial, scores=np.repeat(trial.scores, 10)) for trial in (first, second)]
    (best, gain), (_, rows) = choose_trial([first, second], np.ones(40)), choose_trial(copies, np.ones(400))
    _, groups = choose_trial(copies, np.ones(400), np.repeat(np.arange(40), 10))
    assert best is second
    assert (groups.low, groups.high) == pytest.approx((gain.low, gain.high))
    assert rows.high - rows.low < 0.5 * (groups.high - groups.low)


# Whole searches, with fits of a small network


@pytest.fixture(scope="module")
def tuning_outcome(small_table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tuning.SETTINGS, "lr", (0.003, 0.1))
        _, result = tune(folder / "m", small_table, trials=4, search=["lr"], about={"data": "d"}, on_step=lines.append)
    return result, folder, lines


def test_a_search_needs_test_rows(larger_table, tmp_path):
    """The rows that choose settings would make the best settings look better than they are."""
    with pytest.raises(ConfigError, match="A search needs test rows"):
        tune(tmp_path / "m", prepare(larger_table.drop("hour", "part"), FitConfig(target="visits")), trials=2)


def test_the_best_trial_is_refitted_and_saved(tuning_outcome):
    result, folder, lines = tuning_outcome
    assert [path.name for path in folder.iterdir()] == ["m"], "the trials are removed"
    assert result.best_number, "the usual learning rate is too small for three epochs"
    model = load(folder / "m").model
    assert model.training_options["lr"] == result.best["lr"] == result.trials[result.best_number].settings["lr"]
    assert result.defaults == {"lr": 0.004}
    task = SavedModel(folder / "m").task
    assert task["data"] == "d"
    assert task["tuning"]["best"] == result.best
    assert len(task["tuning"]["trials"]) == 4
    assert task["scores"]["entries"]
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False)) == task["tuning"]
    assert lines[0].startswith("Trial 0: CRPS ")
    assert any(line.startswith("Refitting trial") for line in lines)


def test_the_gain_is_that_of_the_same_rows(tuning_outcome):
    result = tuning_outcome[0]
    best = result.trials[result.best_number]
    assert result.gain.mean == pytest.approx(best.gain) == pytest.approx(result.trials[0].crps - best.crps)
    assert result.gain.low < result.gain.mean < result.gain.high
    assert result.rows == 96
    assert result.space == {"lr": "0.003 to 0.1"}
    assert "96 rows, 3 folds of the training and validation rows" in result.details[0]


def test_defaults_are_kept_where_nothing_is_better(small_table, tmp_path, monkeypatch):
    replace_scores(monkeypatch, lambda fold, settings: np.full(len(fold.test), 1.0 + (settings != {"lr": 0.004})))
    _, result = tune(tmp_path / "m", small_table, trials=2, search=["lr"])
    assert not result.best_number
    assert "better than the defaults by more than chance, so these are used" in result.headline
    assert SavedModel(tmp_path / "m").task["plan"] == json.loads(json.dumps(small_table.plan.as_dict()))


def test_other_tables_plans_and_searches_have_other_trials(small_table, tmp_path, monkeypatch):
    monkeypatch.setattr(Search, "run", lambda search: folders.add(search.store.folder))
    monkeypatch.setattr(tuning, "fit_into", lambda *_, **__: SimpleNamespace(interrupted=True))
    seeded = replace(small_table, plan=small_table.plan.replace(seed=1))
    fewer = replace(small_table, sample=small_table.sample.rows(slice(0, 120)).replace(weight=np.full(120, 2.0)))
    folders = set()
    for table, names in (
        (small_table, ["lr"]),
        (small_table, "lr"),
        (small_table, ["batch_size"]),
        (seeded, ["lr"]),
        (fewer, "lr"),
    ):
        tune(tmp_path / "m", table, trials=1, search=names)
    assert len(folders) == 4


def test_a_folder_that_is_taken_is_refused_before_the_search(small_table, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="already exists"):
        tune(tmp_path / "taken", small_table, trials=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]
