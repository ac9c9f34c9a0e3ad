import numpy as np
import pytest
import torch

from ddpn.errors import InputError
from ddpn.experiments.figures.predictions import check_rows, finished, first_of, of_methods
from ddpn.experiments.runner import DONE


@pytest.fixture
def waves(declare):
    return declare("small", simulation={"name": "wave"}, methods=["poisson", "ddpn", "poisson_glm"])


def test_a_law_is_that_of_the_kept_weights_and_of_the_kept_outputs(waves, finish, tmp_path):
    poisson, _, _ = waves.runs()
    finish(poisson, [[1.0], [2.0]], y=[3, 5, 7])
    (found,) = finished(waves, tmp_path, "wave")
    assert found.label == "Poisson"
    law, y = found.tested()
    assert y.tolist() == [3, 5, 7]
    expected = np.exp([[1.0, 2.0]] * 3)
    np.testing.assert_allclose(law.mean, expected, rtol=1e-6)
    np.testing.assert_allclose(found.at(np.array([0.0, 1.0, 9.0])).mean, expected, rtol=1e-6)


def test_weights_are_used_at_the_input_they_are_asked_for(waves, finish, tmp_path):
    """One hidden unit passes x on, so that log mu = x for x > 0."""
    from ddpn.experiments.runner import WEIGHTS
    from ddpn.tensor_files import read, write

    folder = finish(waves.runs()[0], [[0.0]])
    weights, _ = read(folder / WEIGHTS)
    for name, tensor in weights.items():
        weights[name] = torch.ones_like(tensor) if name.endswith("weight") else torch.zeros_like(tensor)
    write(folder / WEIGHTS, weights, {})
    (found,) = finished(waves, tmp_path, "wave")
    np.testing.assert_allclose(found.at(np.array([0.25, 0.5])).mean[:, 0], np.exp([0.75, 1.5]), rtol=1e-6)


def test_runs_keep_the_order_of_the_experiment_and_glms_are_left_out(waves, finish, tmp_path):
    poisson, ddpn, glm = waves.runs()
    for run in (ddpn, glm, poisson):
        finish(run, torch.zeros(2, run.head.n_raw))
    assert [each.run.method.name for each in finished(waves, tmp_path, "wave")] == ["poisson", "ddpn"]
    chosen = of_methods(waves, tmp_path, "wave", ("ddpn", "poisson"))
    assert [each.run.method.name for each in chosen] == ["ddpn", "poisson"]


def test_an_unfinished_run_is_no_run(waves, finish, tmp_path):
    (finish(waves.runs()[0], [[0.0]]) / DONE).unlink()
    with pytest.raises(InputError, match=r"small must hold finished runs for the figure wave, got none\. Run the exp"):
        finished(waves, tmp_path, "wave")


def test_a_run_with_other_settings_is_no_run(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    assert finished(waves, tmp_path, "wave")
    with pytest.raises(InputError, match=r"must hold finished runs for the figure wave, got none\."):
        finished(waves.with_training(lr=0.5), tmp_path, "wave")


def test_a_missing_method_is_named(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"must hold a finished run of ddpn for the figure pmfs, got none\. Run that"):
        of_methods(waves, tmp_path, "pmfs", ("poisson", "ddpn"))


def test_the_first_finished_method_is_taken(waves, finish, tmp_path):
    poisson, ddpn, _ = waves.runs()
    finish(poisson, [[0.0]])
    assert first_of(waves, tmp_path, "beams", ("ddpn", "poisson")).run.method.name == "poisson"
    finish(ddpn, [[0.0, 0.0]])
    assert first_of(waves, tmp_path, "beams", ("ddpn", "poisson")).run.method.name == "ddpn"


def test_where_none_of_them_is_finished_all_are_named(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    with pytest.raises(
        InputError, match=r"must hold a finished run of beta_ddpn_0.5 or ddpn for the figure beams, got"
    ):
        first_of(waves, tmp_path, "beams", ("beta_ddpn_0.5", "ddpn"))


def test_the_law_of_raw_outputs_is_that_of_the_head(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    (found,) = finished(waves, tmp_path, "wave")
    np.testing.assert_allclose(found.law(torch.tensor([[0.5], [1.5]])).mean, np.exp([0.5, 1.5]), rtol=1e-6)


def test_rows_are_those_of_the_run_or_its_first(waves, finish, tmp_path):
    finish(waves.runs()[0], [[0.0]])
    (found,) = finished(waves, tmp_path, "wave")
    counts = torch.tensor([3.0, 1.0])
    check_rows(found, counts, np.array([3, 1]))
    check_rows(found, counts, np.array([3, 1, 4]))
    for known in ([3], [1, 3], [3, 2, 4]):
        with pytest.raises(
            InputError, match=r"the data must be what .*small/poisson was tested on, got test rows with"
        ):
            check_rows(found, counts, np.array(known))
