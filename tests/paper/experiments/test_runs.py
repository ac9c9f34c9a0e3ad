"""Test how runs are done, resumed, and read after they finished."""

import json
import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from ddpn.networks.training.loop import Training
from ddpn.paper.experiments import rows
from ddpn.paper.experiments.catalogue import parse_experiment
from ddpn.paper.experiments.isolated_points import measure_isolated_point
from ddpn.paper.experiments.rows import load_rows
from ddpn.paper.experiments.runs import (
    DONE,
    check_run,
    execute,
    find_finished_runs,
    find_runs,
    read_predictions,
    read_result,
    run_folder,
)
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.tensor_files import read, write

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "gaussian", "poisson_glm_exact"],
    "minutes": 1,
    "training": {
        "epochs": 3, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [8], "n_networks": 2
    },
}  # fmt: skip
TINY = parse_experiment("tiny", CONTENT)


@pytest.fixture(scope="module")
def parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddpn.paper.experiments.rows.TEST_ROWS", 100)
        return load_rows(TINY)


@pytest.fixture(scope="module")
def folder_of_runs(parts, tmp_path_factory):
    """The folder of all runs of the experiment; not to be changed."""
    out = tmp_path_factory.mktemp("done")
    for run in TINY.runs():
        execute(run, parts, run_folder(run, out), "cpu")
    return out


@pytest.fixture
def glm(folder_of_runs, tmp_path):
    """A copy of the folder of the finished GLM, and its run."""
    run = TINY.runs()[2]
    return shutil.copytree(run_folder(run, folder_of_runs), tmp_path / "glm"), run


def list_states(experiment, out):
    return [check_run(run_folder(run, out), run) for run in experiment.runs()]


def test_the_folder_of_a_run_holds_everything(folder_of_runs, tmp_path):
    assert list_states(TINY, tmp_path) == ["missing"] * 3
    for run in TINY.runs():
        folder = run_folder(run, folder_of_runs)
        assert {path.name for path in folder.iterdir()} == {
            "config.json", "run.json", "predictions.safetensors", "weights.safetensors", "DONE"
        }  # fmt: skip
        assert json.loads((folder / "config.json").read_text())["settings"] == run.as_dict()
        n_networks = 1 if run.method.exact else 2
        assert read_predictions(folder)["raw"].shape == (100, n_networks, run.head.n_raw)
        assert len(read_result(folder)["scores"]["ours"]["single"]["crps"]) == n_networks
        assert read_result(folder)["rows"] == {"train": 800, "validation": 100, "test": 100}
    assert list_states(TINY, folder_of_runs) == ["done"] * 3


def test_other_settings_change_networks_but_not_a_glm(folder_of_runs):
    assert list_states(TINY.with_training(n_networks=3), folder_of_runs) == ["changed", "changed", "done"]


def test_other_rows_are_noticed(glm, parts):
    other = parts._replace(train=CountRows(parts.train.X, parts.train.y + 1))
    assert check_run(*glm, parts.identity) == "done"
    assert check_run(*glm, other.identity) == "changed"


@contextmanager
def stop_after(epochs, error, monkeypatch):
    """Stop trainings by an error in the middle of the epoch after this one."""
    usual = Training.run_epoch

    def run_epoch(self):
        if self.state.epoch == epochs:
            raise error
        return usual(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run_epoch", run_epoch)
        yield


def test_an_interrupted_run_resumes_to_the_same_weights(folder_of_runs, parts, tmp_path, monkeypatch):
    run = TINY.runs()[0]
    with stop_after(2, KeyboardInterrupt, monkeypatch), pytest.raises(KeyboardInterrupt):
        execute(run, parts, tmp_path, "cpu")
    assert (tmp_path / "members-0.state").exists()
    assert check_run(tmp_path, run) == "missing"
    result = execute(run, parts, tmp_path, "cpu")
    assert result["history"]["epochs"][0]["epoch"] == 1
    resumed, whole = (read(folder / "weights.safetensors")[0] for folder in (tmp_path, run_folder(run, folder_of_runs)))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert not (tmp_path / "members-0.state").exists()


def test_a_checkpoint_of_other_settings_is_not_resumed(parts, tmp_path, monkeypatch):
    with stop_after(1, KeyboardInterrupt, monkeypatch), pytest.raises(KeyboardInterrupt):
        execute(TINY.runs()[0], parts, tmp_path, "cpu")
    other = TINY.with_training(lr=2e-2).runs()[0]
    assert execute(other, parts, tmp_path, "cpu")["settings"]["lr"] == 2e-2
    assert check_run(tmp_path, other) == "done"


def test_a_run_that_is_repeated_is_not_done_meanwhile(folder_of_runs, parts, tmp_path, monkeypatch):
    run = TINY.runs()[0]
    folder = shutil.copytree(run_folder(run, folder_of_runs), tmp_path / "again")
    with stop_after(1, RuntimeError("broken"), monkeypatch), pytest.raises(RuntimeError, match="broken"):
        execute(run, parts, folder, "cpu")
    assert read_result(folder) is None


UNSCORED = json.dumps(dict.fromkeys(("settings", "rows", "seconds", "label")) | {"scores": {}})


@pytest.mark.parametrize("content", ["{", "[]", "{}", UNSCORED, None], ids=str)
def test_a_damaged_result_is_reported(glm, content):
    folder, run = glm
    path = folder / "run.json"
    path.unlink() if content is None else path.write_text(content)
    assert check_run(folder, run) == "damaged"
    with pytest.raises(InputError, match=r"run.json is damaged .* Delete .* and run it again\."):
        read_result(folder)


def test_lost_and_truncated_files_are_reported(glm):
    folder, run = glm
    path = folder / "predictions.safetensors"
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(InputError, match="damaged"):
        read_predictions(folder)
    assert check_run(folder, run) == "damaged"
    path.unlink()
    assert check_run(folder, run) == "damaged"


def test_test_rows_are_the_same_for_every_seed_and_no_training_rows(parts):
    assert rows.TEST_ROWS > 100
    one, two = (load_rows(TINY.with_training(seed=seed)) for seed in (0, 1991))
    assert one.identity == two.identity
    assert not torch.isin(one.test.X, one.train.X).any()


def test_gamma_starts_where_the_grid_says(parts, monkeypatch, tmp_path):
    experiment = parse_experiment("tiny", CONTENT | {"methods": ["ddpn"], "grid": {"initial_gamma": [50.0]}})
    started = []

    def fit(model, *arguments, **more):
        started.append(model.projection.bias.detach().clone())
        raise KeyboardInterrupt

    monkeypatch.setattr("ddpn.paper.experiments.runs.fit", fit)
    with pytest.raises(KeyboardInterrupt):
        execute(experiment.runs()[0], parts, tmp_path, "cpu")
    assert started[0][..., 1].exp().flatten().tolist() == pytest.approx([50.0, 50.0])


# Snapshots -----------------------------------------------------------------------------------------------------------


def parse_with_training(**changes):
    return parse_experiment("tiny", CONTENT | {"methods": ["ddpn"], "training": CONTENT["training"] | changes})


def test_the_snapshot_of_a_score_is_the_training_that_this_score_chooses(parts, tmp_path):
    """Trainings with equal seeds differ in nothing but the epochs that are kept."""
    settings = {"lr": 0.3, "epochs": 6}  # so coarse that the loss and CRPS choose other epochs
    both, crps = (parse_with_training(**settings, **more) for more in ({"snapshots": ["crps"]}, {"score": "crps"}))
    chosen_twice = execute(both.runs()[0], parts, tmp_path / "both", "cpu")
    chosen = execute(crps.runs()[0], parts, tmp_path / "crps", "cpu")
    assert chosen_twice["snapshots"]["crps"] == chosen["scores"]
    assert chosen_twice["scores"] != chosen["scores"]
    weights, _ = read(tmp_path / "crps" / "weights.safetensors")
    kept, _ = read(tmp_path / "both" / "snapshots.safetensors")
    assert kept.keys() == {f"crps/{name}" for name in weights}
    assert all(torch.equal(kept[f"crps/{name}"], tensor) for name, tensor in weights.items())


def test_snapshots_of_epochs_are_states_of_one_training_also_of_a_resumed_one(parts, tmp_path, monkeypatch):
    run = parse_with_training(snapshots=[1, 2], score="crps").runs()[0]
    execute(run, parts, tmp_path / "whole", "cpu")
    kept, _ = read(tmp_path / "whole" / "snapshots.safetensors")
    after = {at: torch.cat([t.flatten() for name, t in kept.items() if name.startswith(f"{at}/")]) for at in (1, 2)}
    assert not torch.equal(after[1], after[2])
    with stop_after(2, KeyboardInterrupt, monkeypatch), pytest.raises(KeyboardInterrupt):
        execute(run, parts, tmp_path / "resumed", "cpu")
    execute(run, parts, tmp_path / "resumed", "cpu")
    resumed, _ = read(tmp_path / "resumed" / "snapshots.safetensors")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in kept.items())
    assert check_run(tmp_path / "resumed", run) == "done"
    (tmp_path / "resumed" / "snapshots.safetensors").unlink()
    assert check_run(tmp_path / "resumed", run) == "damaged"


def test_snapshots_by_a_score_need_validation_rows(parts, tmp_path):
    run = parse_with_training(snapshots=["crps"]).runs()[0]
    with pytest.raises(ConfigError, match=r"snapshots must be epochs .*got no validation rows"):
        execute(run, parts._replace(validation=None), tmp_path, "cpu")


def test_the_dp_glm_of_the_paper_has_one_gamma(parts, tmp_path):
    run = parse_experiment("tiny", CONTENT | {"methods": ["double_poisson_glm"]}).runs()[0]
    result = execute(run, parts, tmp_path, "cpu")
    raw = read_predictions(tmp_path)["raw"]
    assert result["settings"]["hidden"] == []
    assert raw.shape == (100, 2, 2)
    assert (raw[1:, :, 1] == raw[0, :, 1]).all()
    assert raw[:, 0, 0].unique().numel() == 100
    assert raw[0, 0, 1] != raw[0, 1, 1], "each of the fits has its own"


def test_the_isolated_point_is_fitted_by_the_networks_near_its_truth(declare, finish, tmp_path):
    training = {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "hidden": [3], "snapshots": [1, 2]}
    experiment = declare("points", simulation={"name": "isolated"}, methods=["ddpn"], training=training)
    (run,) = experiment.runs()
    mus, named = {1: [30.0, 20.0], 2: [30.0, 11.9], "end": [12.1, 8.1]}, {}
    for at, mu in mus.items():
        folder = finish(run, np.log(mu)[:, None] * [[1.0, 0.0]])
        named |= {f"{at}/{name}": tensor for name, tensor in read(folder / "weights.safetensors")[0].items()}
    write(folder / "snapshots.safetensors", named, {})
    (finished,) = find_finished_runs(experiment, tmp_path)
    fit = measure_isolated_point(finished)
    assert (fit.x, fit.truth, fit.epochs) == (10.0, 10.0, [1, 2, 3])
    np.testing.assert_allclose(fit.mu, list(mus.values()), rtol=1e-5)
    assert fit.shares == [0.0, 0.5, 0.5]


# What finished runs wrote ---------------------------------------------------------------------------------------------


@pytest.fixture
def waves(declare):
    return declare("small", simulation={"name": "wave"}, methods=["poisson", "ddpn", "poisson_glm_exact"])


def test_distributions_are_those_of_saved_weights_and_outputs(waves, finish, tmp_path):
    finish(waves.runs()[0], [[1.0], [2.0]], y=[3, 5, 7])
    (finished,) = find_finished_runs(waves, tmp_path)
    assert finished.label == "Poisson"
    kept = read_predictions(finished.folder)
    assert kept["y"].tolist() == [3, 5, 7]
    expected = np.exp([[1.0, 2.0]] * 3)
    np.testing.assert_allclose(finished.distribution(kept["raw"]).mean, expected, rtol=1e-6)
    np.testing.assert_allclose(finished.predict(np.array([0.0, 1.0, 9.0])).mean, expected, rtol=1e-6)


def test_runs_keep_the_order_of_the_experiment_and_glms_can_be_left_out(waves, finish, tmp_path):
    for run in reversed(waves.runs()):
        finish(run, torch.zeros(2, run.head.n_raw))
    assert [finished.method.name for finished in find_finished_runs(waves, tmp_path)] == [
        "poisson",
        "ddpn",
        "poisson_glm_exact",
    ]
    assert [finished.method.name for finished in find_finished_runs(waves, tmp_path, glms=False)] == ["poisson", "ddpn"]
    chosen = find_runs(waves, tmp_path, ("ddpn", "poisson"), needed=2)
    assert [finished.method.name for finished in chosen] == ["ddpn", "poisson"]


def test_unfinished_runs_and_runs_with_other_settings_are_left_out(waves, finish, tmp_path):
    folder = finish(waves.runs()[0], [[0.0]])
    assert find_finished_runs(waves, tmp_path)
    with pytest.raises(InputError, match=r"No finished runs in .*small\."):
        find_finished_runs(waves.with_training(lr=0.5), tmp_path)
    (folder / DONE).unlink()
    with pytest.raises(InputError, match=r"No finished runs in .*small\."):
        find_finished_runs(waves, tmp_path)


def test_missing_methods_are_named(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"No finished run of ddpn in .*small"):
        find_runs(waves, tmp_path, ("poisson", "ddpn"), needed=2)
    with pytest.raises(InputError, match=r"No finished run of beta_ddpn_0.5 or ddpn in .*small"):
        find_runs(waves, tmp_path, ("beta_ddpn_0.5", "ddpn"))
    assert [finished.method.name for finished in find_runs(waves, tmp_path, ("ddpn", "poisson"))] == ["poisson"]
