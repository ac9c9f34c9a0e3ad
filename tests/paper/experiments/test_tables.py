"""Test tables of finished runs, which are written by hand."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score

from ddpn.paper.experiments.runs import SNAPSHOTS, find_finished_runs
from ddpn.paper.experiments.tables import (
    Cell,
    ResultTable,
    format_table,
    score_ood_rows,
    tabulate_accuracy,
    tabulate_detection,
    tabulate_simulation,
    write_tables,
)
from ddpn.runtime.errors import InputError
from ddpn.storage.tensor_files import write

# A table as Markdown --------------------------------------------------------------------------------------------------


TABLE = ResultTable(
    "50% more",
    ("MAE & more", "CRPS"),
    {"β-DDPN, a_b": [Cell(0.5, 0.1, 0.6, 1), Cell(12.3456)], 'say "x"': [Cell(0.7, None, None, 2), Cell(None)]},
    ("100% true",),
)


def test_markdown_marks_ours_alone():
    lines = format_table(TABLE).splitlines()
    assert lines[4] == "| β-DDPN, a_b | **0.500 (0.100)** · paper 0.600 | 12.35 |"
    assert lines[5] == '| say "x" | <u>0.700</u> |  |'
    assert len({line.count("|") for line in lines[2:6]}) == 1
    assert lines[-1] == "- 100% true"


# Which numbers --------------------------------------------------------------------------------------------------------


METHODS = ["ddpn", "poisson", "gaussian"]


@pytest.fixture
def tiny_experiment(declare):
    return declare("tiny", title="A test", simulation={"name": "wave"}, methods=METHODS)


@pytest.fixture
def finish_run(finish):
    """Write a finished run whose networks have these absolute errors."""

    return lambda run, mae, **result: finish(run, torch.zeros(len(mae), run.head.n_raw), mae=mae, result=result)


@pytest.fixture
def three_runs(tiny_experiment, finish_run):
    """Three runs: the printed digits of ddpn and poisson are equal, and gaussian is worse."""
    for run, mae in zip(tiny_experiment.runs(), ([1.0001, 1.2], [1.2, 1.0], [2.0, 4.0]), strict=True):
        finish_run(run, mae)
    return tiny_experiment


def make_accuracy_table(experiment, out, protocol):
    return tabulate_accuracy(experiment, find_finished_runs(experiment, out), protocol)


def test_ranks_follow_the_printed_digits(three_runs, tmp_path):
    rows = make_accuracy_table(three_runs, tmp_path, "paper").rows
    singles = {label: cells[0] for label, cells in rows.items()}
    assert {label: cell.rank for label, cell in singles.items()} == {"DDPN": 1, "Poisson": 1, "Gaussian": 2}
    assert singles["Gaussian"].value == 3.0
    assert singles["Gaussian"].spread == pytest.approx(2**0.5)  # of 2 and 4, divided by n - 1
    assert rows["Gaussian"][3].spread is None
    assert all(cells[2].rank is None for cells in rows.values()), "precision has no rank"


def test_gaussians_have_a_second_row_in_our_protocol_only(three_runs, tmp_path):
    assert list(make_accuracy_table(three_runs, tmp_path, "paper").rows) == ["DDPN", "Poisson", "Gaussian"]
    rows = make_accuracy_table(three_runs, tmp_path, "ours").rows
    assert list(rows) == ["DDPN", "Poisson", "Gaussian", "Gaussian, rounded to counts"]
    assert rows["Gaussian, rounded to counts"][0].value == pytest.approx(2.7)


def test_a_score_of_nan_has_no_rank(tiny_experiment, finish_run, tmp_path):
    for run, mae in zip(tiny_experiment.runs(), ([float("nan")], [1.0], [2.0]), strict=True):
        finish_run(run, mae)
    cells = make_accuracy_table(tiny_experiment, tmp_path, "paper").rows
    assert [cells[label][0].rank for label in ("DDPN", "Poisson", "Gaussian")] == [None, 1, 2]


def test_a_half_finished_experiment_shows_its_finished_runs(tiny_experiment, finish_run, tmp_path):
    with pytest.raises(InputError, match=r"No finished runs in .*tiny"):
        make_accuracy_table(tiny_experiment, tmp_path, "paper")
    finish_run(tiny_experiment.runs()[1], [1.0])
    accuracy_table = make_accuracy_table(tiny_experiment, tmp_path, "paper")
    assert list(accuracy_table.rows) == ["Poisson"]
    assert "2 of 3 runs are not finished and not shown." in accuracy_table.notes


def test_notes_report_samples_mixed_data_and_unfinished_searches(tiny_experiment, finish_run, tmp_path):
    first, second, _ = tiny_experiment.runs()
    finish_run(first, [1.0], note="a random sample")
    finish_run(second, [1.0], identity=[2], history={"gradient_norm": 1e-3})
    notes = make_accuracy_table(tiny_experiment, tmp_path, "ours").notes
    assert "A random sample." in notes
    assert "80 training and 4 test rows." in notes
    assert any("different data" in note for note in notes)
    assert any(note.startswith("Poisson: the optimiser stopped") for note in notes)


def test_the_numbers_of_the_paper_are_beside_ours(declare, finish_run, tmp_path):
    experiment = declare(
        "tiny",
        data={"name": "length_of_stay", "features": "standard"},
        reference={"table": "accuracy_calibration", "dataset": "length_of_stay"},
        methods=["poisson", "poisson_glm", "poisson_glm_exact"],
    )
    for run in experiment.runs():
        finish_run(run, [1.0])
    rows = make_accuracy_table(experiment, tmp_path, "paper").rows
    # Tables 2, 4 and 5 of the paper.
    assert [rows["Poisson"][column].paper for column in (0, 1, 2)] == [0.664, 0.553, 0.262]
    assert rows["Poisson GLM"][3].paper == 1.256
    assert rows["Poisson GLM, maximum likelihood"][3].paper is None, "the paper has no exact fits"
    assert "**1.000** · paper 0.664" in format_table(make_accuracy_table(experiment, tmp_path, "paper"))
    assert all(cell.paper is None for cell in make_accuracy_table(experiment, tmp_path, "ours").rows["Poisson"])


def test_the_table_of_a_simulation_has_the_truth(three_runs, tmp_path):
    truth_table = tabulate_simulation(three_runs, find_finished_runs(three_runs, tmp_path))
    assert [cell.value for cell in truth_table.rows["DDPN"]] == [pytest.approx(0.50005), 0.25, 0.1, 0.02]
    assert "CRPS of the true distribution: 0.5000." in truth_table.notes
    rounded = truth_table.rows["Gaussian, rounded to counts"]
    assert [cell.value for cell in rounded] == [pytest.approx(0.9), pytest.approx(0.4), None, None]


def test_all_tables_are_written(three_runs, tmp_path):
    names = {path.name for path in write_tables(three_runs, tmp_path)}
    assert names == {"table_paper.md", "table_ours.md", "table_simulation.md"}
    assert (tmp_path / "tiny" / "table_ours.md").read_text().startswith("**A test (by one rule for all methods)**")


def test_epochs_by_another_score_have_tables_of_their_own(declare, finish, tmp_path):
    training = {"epochs": 1, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "hidden": [3], "n_networks": 2}
    content = {"simulation": {"name": "wave"}, "training": training | {"snapshots": ["crps"]}}
    experiment = declare("tiny", title="A test", methods=["ddpn", "poisson_glm_exact"], **content)
    ddpn, glm = experiment.runs()
    single = {"mae": [0.5, 0.7], "crps": [0.3, 0.3], "median_precision": [1.0, 1.0]}
    scores = {"single": single, "ensemble": {name: values[:1] for name, values in single.items()}}
    result = {"snapshots": {"crps": {"paper": scores, "ours": scores}}}
    folder = finish(ddpn, torch.zeros(2, 2), mae=[1.0, 2.0], result=result)
    write(folder / SNAPSHOTS, {"crps/x": torch.zeros(1)}, {})
    finish(glm, torch.zeros(1, 1), mae=[3.0])
    written = {path.stem: path.read_text() for path in write_tables(experiment, tmp_path)}
    assert "| DDPN | **1.500 (0.707)** |" in written["table_paper"]
    assert "Each network has the epoch with the lowest validation loss, as in the paper." in written["table_paper"]
    assert "| DDPN | **0.600 (0.141)** |" in written["table_paper_crps"]
    assert "Each network has the epoch with the lowest validation CRPS." in written["table_paper_crps"]
    assert "GLM" not in written["table_ours_crps"], "a GLM has no epochs"
    assert "not finished" not in written["table_ours_crps"]
    assert written["table_ours_crps"].startswith("**A test, epochs chosen by CRPS (by one rule for all methods)**")


# Out-of-distribution rows -------------------------------------------------------------------------------------------

_RANDOM = torch.Generator().manual_seed(2)
TEST, OOD = 200, 150


def draw_raw(rows, gamma):
    """Draw two networks with means of 2 to 4 and about this gamma."""
    log_mu = torch.rand(rows, 2, generator=_RANDOM) + 0.7
    log_gamma = torch.full((rows, 2), gamma).log() + 0.5 * torch.randn(rows, 1, generator=_RANDOM)
    return torch.stack([log_mu, log_gamma], dim=-1)


@pytest.fixture
def experiment(declare):
    return replace(declare("tiny", simulation={"name": "wave"}, methods=["ddpn"]), ood="bible")


def test_areas_are_those_of_the_total_variance(experiment, finish, tmp_path):
    test, ood = draw_raw(TEST, 3.0), draw_raw(OOD, 1.0)
    finish(experiment.runs()[0], test[0], raw=test, y=torch.ones(TEST), ood=ood)
    runs = score_ood_rows(find_finished_runs(experiment, tmp_path))
    expected = roc_auc_score([0] * TEST + [1] * OOD, torch.cat([runs[0].test_variances, runs[0].ood_variances]))
    ood_table = tabulate_detection("OOD", runs, as_paper=False)
    auroc, aupr, chance, fpr80 = ood_table.rows["DDPN"]
    assert auroc.value == pytest.approx(expected, abs=0.02)
    assert auroc.paper == 0.854
    assert chance.value == pytest.approx(OOD / (OOD + 0.8 * TEST))
    assert aupr.paper is None, "another share of the rows is OOD"
    assert (
        ood_table.notes[-1]
        == "The paper's AUPR cannot be compared: by chance it is 0.224 for the paper's numbers of rows."
    )
    assert auroc.rank == aupr.rank == fpr80.rank == 1
    written = {path.name for path in write_tables(experiment, tmp_path)}
    assert {"table_ood.md", "table_ood_paper.md"} <= written


@pytest.mark.parametrize(("as_paper", "n_ood", "paper"), [(False, 462, 0.628), (True, 462, 0.849)])
def test_the_papers_aupr_is_shown_for_its_share_of_ood_rows(experiment, finish, tmp_path, as_paper, n_ood, paper):
    """With the correct rows it is the AUPR of the authors' variances, by the paper's script the printed one."""
    n_test = 2000
    test, ood = draw_raw(n_test, 3.0), draw_raw(n_ood, 1.0)
    finish(experiment.runs()[0], test[0], raw=test, y=torch.ones(n_test), ood=ood)
    _, aupr, chance, _ = tabulate_detection(
        "OOD", score_ood_rows(find_finished_runs(experiment, tmp_path)), as_paper
    ).rows["DDPN"]
    assert chance.value == pytest.approx(0.224 if not as_paper else 0.536, abs=0.002)
    assert aupr.paper == paper


def test_a_run_without_ood_predictions_is_reported(experiment, finish, tmp_path):
    finish(experiment.runs()[0], [[0.0, 0.0]])
    with pytest.raises(InputError, match=r"No predictions of OOD rows in .*ddpn\. Delete it"):
        write_tables(experiment, tmp_path)
