"""Tables of how well finished runs detect out-of-distribution rows."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from sklearn.metrics import roc_auc_score

from ddpn.paper.experiments.results import finished_runs
from ddpn.paper.experiments.tables import detection_tables, scored, write_tables
from ddpn.runtime.errors import InputError

_RANDOM = torch.Generator().manual_seed(2)
TEST, OOD = 200, 150


def raw(rows, gamma):
    """Two members with means of 2 to 4 and about this gamma."""
    log_mu = torch.rand(rows, 2, generator=_RANDOM) + 0.7
    log_gamma = torch.full((rows, 2), gamma).log() + 0.5 * torch.randn(rows, 1, generator=_RANDOM)
    return torch.stack([log_mu, log_gamma], dim=-1)


@pytest.fixture(scope="module")
def experiment(declare):
    return replace(declare("tiny", simulation={"name": "wave"}, methods=["ddpn"]), ood="bible")


def write(finish, experiment, members=2, **more):
    """Write a run of ddpn with a larger variance for OOD rows."""
    test, ood = raw(TEST, 3.0)[:, :members], raw(OOD, 1.0)[:, :members]
    kept = {name: tensor for name, tensor in ({"ood": ood} | more).items() if tensor is not None}
    finish(experiment.runs()[0], test[0], raw=test, y=torch.ones(TEST), **kept)


@pytest.fixture
def wrote(experiment, finish):
    return partial(write, finish, experiment)


@pytest.fixture(scope="module")
def out(experiment, finish_in, tmp_path_factory):
    """The folder of a run with the lengths of texts."""
    folder = tmp_path_factory.mktemp("lengths")
    lengths = {
        "length": torch.randint(20, 60, (TEST,), generator=_RANDOM),
        "ood_length": torch.randint(10, 50, (OOD,), generator=_RANDOM),
    }
    write(partial(finish_in, folder), experiment, **lengths)
    return folder


def tables(experiment, out):
    return detection_tables(experiment, finished_runs(experiment, out))


@pytest.fixture(scope="module")
def by_name(experiment, out):
    return tables(experiment, out)


def test_areas_are_those_of_the_total_variance(experiment, out, by_name):
    (run,) = scored(finished_runs(experiment, out))
    expected = roc_auc_score([0] * TEST + [1] * OOD, torch.cat(run.scores["variance"]))
    auroc, aupr, fpr80 = by_name["table_ood"].rows["DDPN"]
    assert auroc.value == pytest.approx(expected, abs=0.02)
    assert auroc.paper == 0.854
    assert auroc.rank == aupr.rank == fpr80.rank == 1


def test_length_detects_nothing_among_texts_of_equal_length(by_name):
    table = by_name["table_ood_matched"]
    every, _, alike, _ = table.rows["number of tokens alone, few"]
    assert every.value > 0.6
    assert alike.value == pytest.approx(0.5, abs=0.05)
    assert alike.rank is None


def test_all_are_written(experiment, out):
    written = {path.name for path in write_tables(experiment, out)}
    names = ("table_ood", "table_ood_paper", "table_ood_kinds", "table_ood_matched")
    assert {f"{name}.{ending}" for name in names for ending in ("md", "tex", "csv")} <= written


def test_a_single_network_has_no_table_of_epistemic_variance(experiment, wrote, tmp_path):
    wrote(members=1)
    found = tables(experiment, tmp_path)
    assert set(found) == {"table_ood", "table_ood_paper"}
    assert found["table_ood"].rows["DDPN"][0].value > 0.6


def test_lengths_without_overlap_are_reported(experiment, wrote, tmp_path):
    wrote(members=1, length=torch.full((TEST,), 60), ood_length=torch.full((OOD,), 20))
    found = tables(experiment, tmp_path)
    assert "table_ood_matched" not in found
    assert found["table_ood"].notes[-1].startswith("No table for texts of equal length: length_in and length_out must")


def test_a_run_without_ood_predictions_is_reported(experiment, finish, tmp_path):
    finish(experiment.runs()[0], [[0.0, 0.0]])
    with pytest.raises(InputError, match=r"No predictions of OOD rows in .*ddpn\. Delete it"):
        tables(experiment, tmp_path)
