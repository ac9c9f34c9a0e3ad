"""Whole searches, with fits of a small network."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.files import folder_lock
from ddpn.workflow.model_folder import load, read_task
from ddpn.workflow.tuning import space, tune
from ddpn.workflow.tuning.tuning import storage_of


@pytest.fixture(scope="module")
def tuned(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    lines: list[str] = []
    found = tune(
        folder / "m", prepared, trials=3, search={"lr": [0.03, 0.1]}, about={"data": "d"}, on_step=lines.append
    )
    return found, folder, lines


def test_the_best_trial_is_refitted_and_saved(tuned):
    found, folder, lines = tuned
    result = found.result
    assert [each.name for each in folder.iterdir()] == ["m"], "the trials are removed"
    assert result.is_tuned, "the usual learning rate is too small for three epochs"
    model = load(folder / "m").model
    assert model.training_options["lr"] == result.best["lr"] == result.trials[result.best_number].settings["lr"]
    assert result.defaults == {"lr": 0.004}
    task = read_task(folder / "m")
    assert task["data"] == "d"
    assert task["tuning"]["best"] == result.best
    assert len(task["tuning"]["trials"]) == 3
    assert task["test"]["entries"]
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False)) == task["tuning"]
    assert lines[0].startswith("Trial 0: CRPS ")
    assert any(line.startswith("Refitting trial") for line in lines)


def test_the_gain_is_that_of_the_same_rows(tuned):
    result = tuned[0].result
    best = result.trials[result.best_number]
    assert result.gain.mean == pytest.approx(best.gain) == pytest.approx(result.crps - best.crps)
    assert result.gain.low < result.gain.mean < result.gain.high
    assert result.rows == 96
    assert result.leaders[0].number == result.best_number
    assert result.changes == [("lr", "learning rate", "0.004", f"{result.best['lr']:.3g}")]


def test_defaults_are_kept_where_nothing_is_better(prepared, tmp_path):
    found = tune(tmp_path / "m", prepared, trials=2, search={"lr": [1e-7, 2e-7]})
    assert not found.result.is_tuned
    assert "the defaults are used" in found.result.headline
    assert read_task(tmp_path / "m")["plan"]["model"] == json.loads(json.dumps(dict(prepared.plan.model)))


def test_other_tables_plans_and_spaces_have_other_trials(prepared, tmp_path):
    place = tmp_path / "m"
    usual = storage_of(place, prepared, {"lr": "1 to 2"})
    assert storage_of(place, prepared, {"lr": "1 to 2"}) == usual
    others = (
        storage_of(place, prepared, {"lr": "1 to 3"}),
        storage_of(place, replace(prepared, plan=replace(prepared.plan, seed=1)), {"lr": "1 to 2"}),
        storage_of(place, replace(prepared, sample=prepared.sample.rows(slice(0, 90))), {"lr": "1 to 2"}),
    )
    assert len({usual, *others}) == 4


def test_bad_input(prepared, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="budget must be a duration"):
        tune(tmp_path / "m", prepared, budget="soon")
    with pytest.raises(ConfigError, match="trials must be an integer of at least 1"):
        tune(tmp_path / "m", prepared, trials=0)
    with pytest.raises(ConfigError, match="epochs has a value"):
        tune(tmp_path / "m", prepared, trials=1, search=["epochs"])
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="already exists"):
        tune(tmp_path / "taken", prepared, trials=1)
    monkeypatch.setattr(space, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[tune\]'"):
        tune(tmp_path / "m", prepared, trials=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]


def test_two_writers_are_refused(prepared, tmp_path):
    # Locks of filelock belong to a thread.
    with ThreadPoolExecutor(1) as other, folder_lock(tmp_path / "m"):
        error = other.submit(tune, tmp_path / "m", prepared, trials=1).exception()
    assert isinstance(error, InputError)
    assert "Another process is writing" in str(error)
