import numpy as np
import pytest
import torch

from ddpn.paper.experiments.results import DONE, WEIGHTS, finished_runs, predictions_of, runs_of
from ddpn.runtime.errors import InputError
from ddpn.storage.tensor_files import read, write


@pytest.fixture
def waves(declare):
    return declare("small", simulation={"name": "wave"}, methods=["poisson", "ddpn", "poisson_glm"])


def test_distributions_are_those_of_saved_weights_and_outputs(waves, finish, tmp_path):
    finish(waves.runs()[0], [[1.0], [2.0]], y=[3, 5, 7])
    (found,) = finished_runs(waves, tmp_path)
    assert found.label == "Poisson"
    kept = predictions_of(found.folder)
    assert kept["y"].tolist() == [3, 5, 7]
    expected = np.exp([[1.0, 2.0]] * 3)
    np.testing.assert_allclose(found.distribution(kept["raw"]).mean, expected, rtol=1e-6)
    np.testing.assert_allclose(found.at(np.array([0.0, 1.0, 9.0])).mean, expected, rtol=1e-6)


def test_weights_are_used_at_the_given_input(waves, finish, tmp_path):
    """One hidden unit passes x on, so that log mu = x for x > 0."""
    folder = finish(waves.runs()[0], [[0.0]])
    weights, _ = read(folder / WEIGHTS)
    for name, tensor in weights.items():
        weights[name] = torch.ones_like(tensor) if name.endswith("weight") else torch.zeros_like(tensor)
    write(folder / WEIGHTS, weights, {})
    (found,) = finished_runs(waves, tmp_path)
    np.testing.assert_allclose(found.at(np.array([0.25, 0.5])).mean[:, 0], np.exp([0.75, 1.5]), rtol=1e-6)


def test_runs_keep_the_order_of_the_experiment_and_glms_can_be_left_out(waves, finish, tmp_path):
    for run in reversed(waves.runs()):
        finish(run, torch.zeros(2, run.head.n_raw))
    assert [each.run.method.name for each in finished_runs(waves, tmp_path)] == ["poisson", "ddpn", "poisson_glm"]
    assert [each.run.method.name for each in finished_runs(waves, tmp_path, glms=False)] == ["poisson", "ddpn"]
    chosen = runs_of(waves, tmp_path, ("ddpn", "poisson"), needed=2)
    assert [each.run.method.name for each in chosen] == ["ddpn", "poisson"]


def test_unfinished_runs_and_runs_with_other_settings_are_left_out(waves, finish, tmp_path):
    folder = finish(waves.runs()[0], [[0.0]])
    assert finished_runs(waves, tmp_path)
    with pytest.raises(InputError, match=r"No finished runs in .*small\."):
        finished_runs(waves.with_training(lr=0.5), tmp_path)
    (folder / DONE).unlink()
    with pytest.raises(InputError, match=r"No finished runs in .*small\."):
        finished_runs(waves, tmp_path)


def test_missing_methods_are_named(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"No finished run of ddpn in .*small"):
        runs_of(waves, tmp_path, ("poisson", "ddpn"), needed=2)
    with pytest.raises(InputError, match=r"No finished run of beta_ddpn_0.5 or ddpn in .*small"):
        runs_of(waves, tmp_path, ("beta_ddpn_0.5", "ddpn"))
    assert [each.run.method.name for each in runs_of(waves, tmp_path, ("ddpn", "poisson"))] == ["poisson"]
