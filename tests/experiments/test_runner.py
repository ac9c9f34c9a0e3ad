import json
from contextlib import contextmanager

import pytest
import torch

from ddpn.errors import InputError
from ddpn.experiments import inputs as material
from ddpn.experiments import runner
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.runner import execute, folder_of, predictions_of, quick, result_of, state_of
from ddpn.experiments.settings import experiment, parse
from ddpn.tensor_files import read
from ddpn.training import Sample
from ddpn.training.loop import Training

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "gaussian", "poisson_glm"],
    "minutes": 1,
    "training": {
        "epochs": 3, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [8], "members": 2
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(material, "TEST_ROWS", 100)


@pytest.fixture
def tiny():
    return parse("tiny", CONTENT)


def states(experiment, out):
    return [state_of(folder_of(run, out), run) for run in experiment.runs()]


def run_missing(experiment, out):
    """Run what is not done; the names of those runs."""
    missing = [run for run in experiment.runs() if state_of(folder_of(run, out), run) != "done"]
    parts = rows_of(experiment)
    for run in missing:
        execute(run, parts, folder_of(run, out), "cpu")
    return [run.name for run in missing]


def test_a_run_s_folder_holds_all_there_is_to_know_and_is_skipped_afterwards(tiny, tmp_path):
    assert states(tiny, tmp_path) == ["missing"] * 3
    assert run_missing(tiny, tmp_path) == CONTENT["methods"]
    for run in tiny.runs():
        folder = folder_of(run, tmp_path)
        assert {path.name for path in folder.iterdir()} == {
            "config.json", "run.json", "predictions.safetensors", "weights.safetensors", "DONE"
        }  # fmt: skip
        assert json.loads((folder / "config.json").read_text())["settings"] == run.as_dict()
        members = 1 if run.method.exact else 2
        assert predictions_of(folder)["raw"].shape == (100, members, run.head.n_raw)
        assert len(result_of(folder)["scores"]["ours"]["single"]["crps"]) == members
        assert result_of(folder)["rows"] == {"train": 800, "validation": 100, "test": 100}
    assert states(tiny, tmp_path) == ["done"] * 3


def test_the_weights_kept_give_the_predictions_kept(tiny, tmp_path):
    run = tiny.runs()[2]
    execute(run, rows_of(tiny), tmp_path, "cpu")
    weights, _ = read(tmp_path / "weights.safetensors")
    kept = predictions_of(tmp_path)
    again = kept["x"].double() @ weights["coef"].T + weights["intercept"]
    assert torch.equal(again.float(), kept["raw"][:, 0])


def test_other_settings_are_run_again_and_a_glm_is_not(tiny, tmp_path):
    run_missing(tiny, tmp_path)
    more = tiny.with_training(members=3)
    assert states(more, tmp_path) == ["changed", "changed", "done"]
    assert run_missing(more, tmp_path) == ["ddpn", "gaussian"]
    assert len(result_of(folder_of(more.runs()[0], tmp_path))["scores"]["ours"]["single"]["crps"]) == 3


def test_other_rows_are_seen(tiny, tmp_path):
    run, parts = tiny.runs()[2], rows_of(tiny)
    execute(run, parts, tmp_path, "cpu")
    other = parts._replace(train=Sample(parts.train.X, parts.train.y + 1))
    assert state_of(tmp_path, run, parts.identity) == "done"
    assert state_of(tmp_path, run, other.identity) == "changed"


@contextmanager
def stopped_after(epochs, error, monkeypatch):
    """Trainings are stopped by an error in the middle of the next epoch."""
    usual = Training.run_epoch

    def run_epoch(self):
        if self.epoch == epochs:
            raise error
        return usual(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run_epoch", run_epoch)
        yield


def weights_of(folder):
    return read(folder / "weights.safetensors")[0]


def test_an_interrupted_run_goes_on_to_the_same_weights(tiny, tmp_path, monkeypatch):
    run, parts = tiny.runs()[0], rows_of(tiny)
    execute(run, parts, tmp_path / "whole", "cpu")
    with stopped_after(2, KeyboardInterrupt, monkeypatch), pytest.raises(KeyboardInterrupt):
        execute(run, parts, tmp_path / "halved", "cpu")
    assert (tmp_path / "halved" / "members-0.state").exists()
    assert state_of(tmp_path / "halved", run) == "missing"
    result = execute(run, parts, tmp_path / "halved", "cpu")
    assert result["history"]["epochs"][0]["epoch"] == 1
    halved, whole = weights_of(tmp_path / "halved"), weights_of(tmp_path / "whole")
    assert all(torch.equal(halved[name], whole[name]) for name in whole)
    assert not (tmp_path / "halved" / "members-0.state").exists()


def test_a_half_done_run_of_other_settings_is_begun_anew(tiny, tmp_path, monkeypatch):
    parts = rows_of(tiny)
    with stopped_after(1, KeyboardInterrupt, monkeypatch), pytest.raises(KeyboardInterrupt):
        execute(tiny.runs()[0], parts, tmp_path, "cpu")
    other = tiny.with_training(lr=2e-2).runs()[0]
    assert execute(other, parts, tmp_path, "cpu")["settings"]["lr"] == 2e-2
    assert state_of(tmp_path, other) == "done"


def test_a_run_that_is_done_again_is_not_done_meanwhile(tiny, tmp_path, monkeypatch):
    run, parts = tiny.runs()[0], rows_of(tiny)
    execute(run, parts, tmp_path, "cpu")
    with stopped_after(1, RuntimeError("broken"), monkeypatch), pytest.raises(RuntimeError, match="broken"):
        execute(run, parts, tmp_path, "cpu")
    assert result_of(tmp_path) is None


UNSCORED = json.dumps(dict.fromkeys(("settings", "rows", "seconds", "label")) | {"scores": {}})


@pytest.mark.parametrize("content", ["{", "[]", "{}", UNSCORED, None], ids=str)
def test_a_damaged_folder_is_told(tiny, tmp_path, content):
    run = tiny.runs()[2]
    execute(run, rows_of(tiny), tmp_path, "cpu")
    path = tmp_path / "run.json"
    path.unlink() if content is None else path.write_text(content)
    assert state_of(tmp_path, run) == "damaged"
    with pytest.raises(InputError, match=r"run.json must be what a run wrote, got .* Delete .* and run it again\."):
        result_of(tmp_path)


def test_lost_and_cut_files_are_told(tiny, tmp_path):
    run = tiny.runs()[2]
    execute(run, rows_of(tiny), tmp_path, "cpu")
    path = tmp_path / "predictions.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="is damaged"):
        predictions_of(tmp_path)
    assert state_of(tmp_path, run) == "damaged"
    path.unlink()
    assert state_of(tmp_path, run) == "damaged"


def test_a_training_keeps_how_far_it_is_until_it_is_done(tiny, tmp_path, monkeypatch):
    run, told, write = tiny.runs()[0], [], runner.write_bytes

    def noting(path, content):
        told.extend([content.decode()] if path.name == "progress.txt" else [])
        write(path, content)

    monkeypatch.setattr(runner, "write_bytes", noting)
    execute(run, rows_of(tiny), tmp_path, "cpu")
    assert told[0].startswith(f"epoch 1 of {run.training.epochs}, validation crps ")
    assert not (tmp_path / "progress.txt").exists()


def test_a_quick_look_has_its_own_folder_and_a_tenth_of_the_steps(tiny):
    short = quick(tiny.with_training(epochs=200, members=5))
    assert (short.name, short.training.epochs, short.training.members) == ("tiny-quick", 20, 2)
    assert quick(tiny).training.epochs == 1


def test_a_quick_look_shortens_the_epochs_of_a_grid_and_nothing_else_of_it():
    assert quick(experiment("beta")).grid == {"epochs": (20, 40, 60, 80, 100)}
    assert quick(experiment("gamma")).grid == experiment("gamma").grid


def test_test_rows_are_the_same_for_every_seed_and_no_training_row(tiny):
    one, two = (rows_of(tiny.with_training(seed=seed)) for seed in (0, 1991))
    assert one.identity == two.identity
    assert not torch.isin(one.test.X, one.train.X).any()


def test_gamma_starts_where_the_grid_says(monkeypatch, tmp_path):
    found = parse("tiny", CONTENT | {"methods": ["ddpn"], "grid": {"initial_gamma": [50.0]}})
    started = []

    def fit(model, *rest, **more):
        started.append(model.projection.bias.detach().clone())
        raise KeyboardInterrupt

    monkeypatch.setattr("ddpn.training.ensemble.fit", fit)
    with pytest.raises(KeyboardInterrupt):
        execute(found.runs()[0], rows_of(found), tmp_path, "cpu")
    assert started[0][..., 1].exp().flatten().tolist() == pytest.approx([50.0, 50.0])
