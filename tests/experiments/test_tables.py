import json

import pytest

from ddpn import tensor_files
from ddpn.errors import InputError
from ddpn.experiments.formats import markdown
from ddpn.experiments.settings import parse
from ddpn.experiments.tables import accuracy, simulation, write_tables

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "wave"},
    "methods": ["ddpn", "poisson", "gaussian"],
    "minutes": 1,
    "training": {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0},
}
TRUTH = {"crps": 0.5, "mae": 0.7, "crps_gap": 0.25, "aleatoric_relative_error": 0.1, "epistemic": 0.02}


def scores(mae):
    single = {"mae": mae, "crps": [0.5 * m for m in mae], "median_precision": [2.0] * len(mae)}
    whole = {name: [min(values)] for name, values in single.items()}
    return {"single": single, "ensemble": whole}


@pytest.fixture
def written(tmp_path):
    """Writes the folder of a finished run whose members have these absolute errors."""

    def write(run, mae, **more):
        folder = tmp_path / run.experiment.name / run.name
        folder.mkdir(parents=True)
        found = {"paper": scores(mae), "ours": scores(mae), "truth": TRUTH}
        if run.method.is_gaussian:
            found["rounded"] = scores([0.9 * m for m in mae])
        result = {
            "settings": run.as_dict(), "identity": [1], "method": run.method.name, "label": run.method.label,
            "point": dict(run.point), "note": "", "rows": {"train": 80, "validation": 10, "test": 10}, "scores": found,
            "seconds": 1.0, "machine": {"device": "cpu"}, "history": {},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(result | more))
        for name in ("weights.safetensors", "predictions.safetensors"):
            tensor_files.write(folder / name, {}, {})
        (folder / "DONE").touch()

    return write


@pytest.fixture
def whole(written, tmp_path):
    """ddpn and poisson are shown alike and differ in the fourth digit; gaussian is behind."""
    found = parse("tiny", CONTENT)
    for run, mae in zip(found.runs(), ([1.0001, 1.2], [1.2, 1.0], [2.0, 4.0]), strict=True):
        written(run, mae)
    return found


def test_rank_goes_by_what_is_shown(whole, tmp_path):
    rows = accuracy(whole, tmp_path, "paper").rows
    singles = {label: cells[0] for label, cells in rows.items()}
    assert {label: cell.rank for label, cell in singles.items()} == {"DDPN": 1, "Poisson": 1, "Gaussian": 2}
    assert singles["Gaussian"].value == 3.0
    assert singles["Gaussian"].spread == pytest.approx(2**0.5)  # of 2 and 4, divided by n - 1
    assert rows["Gaussian"][3].spread is None
    assert all(cells[2].rank is None for cells in rows.values()), "precision is told, not ranked"


def test_gaussians_get_a_second_row_by_our_protocol_alone(whole, tmp_path):
    assert list(accuracy(whole, tmp_path, "paper").rows) == ["DDPN", "Poisson", "Gaussian"]
    rows = accuracy(whole, tmp_path, "ours").rows
    assert list(rows) == ["DDPN", "Poisson", "Gaussian", "Gaussian, rounded to counts"]
    assert rows["Gaussian, rounded to counts"][0].value == pytest.approx(2.7)


def test_what_is_no_number_has_no_rank(written, tmp_path):
    found = parse("tiny", CONTENT)
    for run, mae in zip(found.runs(), ([float("nan")], [1.0], [2.0]), strict=True):
        written(run, mae)
    cells = accuracy(found, tmp_path, "paper").rows
    assert [cells[label][0].rank for label in ("DDPN", "Poisson", "Gaussian")] == [None, 1, 2]


def test_a_half_finished_experiment_shows_what_there_is_and_says_so(written, tmp_path):
    found = parse("tiny", CONTENT)
    with pytest.raises(InputError, match="must hold finished runs, got none"):
        accuracy(found, tmp_path, "paper")
    written(found.runs()[1], [1.0])
    table = accuracy(found, tmp_path, "paper")
    assert list(table.rows) == ["Poisson"]
    assert "2 of 3 runs are not finished and not shown." in table.notes


def test_results_of_other_settings_are_not_shown(whole, tmp_path):
    with pytest.raises(InputError, match="got none"):
        accuracy(whole.with_training(members=2), tmp_path, "paper")


def test_notes_tell_of_samples_mixed_data_and_unfinished_searches(written, tmp_path):
    found = parse("tiny", CONTENT)
    first, second, _ = found.runs()
    written(first, [1.0], note="a random sample")
    written(second, [1.0], identity=[2], history={"gradient_norm": 1e-3})
    notes = accuracy(found, tmp_path, "ours").notes
    assert "A random sample." in notes
    assert "80 training and 10 test rows." in notes
    assert any("different data" in note for note in notes)
    assert any(note.startswith("Poisson: the search") for note in notes)


def test_the_paper_s_figures_stand_beside_ours(written, tmp_path):
    content = {key: value for key, value in CONTENT.items() if key != "simulation"} | {
        "data": {"name": "length_of_stay", "features": "standard"},
        "reference": {"table": "accuracy_calibration", "dataset": "length_of_stay"},
        "methods": ["poisson", "poisson_glm"],
    }
    found = parse("tiny", content)
    for run in found.runs():
        written(run, [1.0])
    rows = accuracy(found, tmp_path, "paper").rows
    # Tables 1, 2 and 6 of the paper.
    assert [rows["Poisson"][place].paper for place in (0, 1, 2)] == [0.664, 0.553, 0.262]
    assert rows["Poisson GLM"][3].paper == 1.256
    assert "**1.000** · paper 0.664" in markdown(accuracy(found, tmp_path, "paper"))
    assert all(cell.paper is None for cell in accuracy(found, tmp_path, "ours").rows["Poisson"])


def test_a_simulation_s_table_has_the_truth(whole, tmp_path):
    table = simulation(whole, tmp_path)
    assert [cell.value for cell in table.rows["DDPN"]] == [pytest.approx(0.50005), 0.25, 0.1, 0.02]
    assert "The true law's own CRPS: 0.5000." in table.notes


def test_all_tables_are_written_in_three_formats(whole, tmp_path):
    names = {path.name for path in write_tables(whole, tmp_path)}
    assert names == {f"table_{t}.{end}" for t in ("paper", "ours", "simulation") for end in ("md", "tex", "csv")}
    assert (tmp_path / "tiny" / "table_ours.md").read_text().startswith("**A test (ours protocol)**")
