"""Tables of how well finished runs tell rows of another kind."""

import json
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score

from ddpn.errors import InputError
from ddpn.experiments.ood_tables import detections, scored
from ddpn.experiments.runner import DONE, PREDICTIONS, RESULT, WEIGHTS
from ddpn.experiments.settings import parse
from ddpn.experiments.tables import write_tables
from ddpn.tensor_files import write

CONTENT = {
    "title": "A test", "paper": "none", "simulation": {"name": "wave"}, "methods": ["ddpn"], "minutes": 1,
    "training": {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0},
}  # fmt: skip
FIGURES = {kind: {key: [1.0] for key in ("mae", "crps", "median_precision")} for kind in ("single", "ensemble")}
_RANDOM = torch.Generator().manual_seed(2)
INSIDE, OUTSIDE = 200, 150


def raw(rows, gamma):
    """Two members of means 2 to 4 with this gamma, give or take."""
    log_mu = torch.rand(rows, 2, generator=_RANDOM) + 0.7
    log_gamma = torch.full((rows, 2), gamma).log() + 0.5 * torch.randn(rows, 1, generator=_RANDOM)
    return torch.stack([log_mu, log_gamma], dim=-1)


@pytest.fixture
def experiment(tmp_path):
    """A run of ddpn that is less sure of rows outside."""
    found = replace(parse("tiny", CONTENT), outside="bible")
    (run,) = found.runs()
    folder = tmp_path / "tiny" / run.name
    result = {
        "settings": run.as_dict(), "identity": [1], "method": "ddpn", "label": "DDPN", "point": {}, "note": "",
        "rows": {"train": 80, "validation": 10, "test": INSIDE}, "seconds": 1.0, "machine": {"device": "cpu"},
        "scores": {"paper": FIGURES, "ours": FIGURES, "truth": dict.fromkeys(
            ("crps", "mae", "crps_gap", "aleatoric_relative_error", "epistemic"), 0.5)}, "history": {},
    }  # fmt: skip
    write(folder / PREDICTIONS, {
        "raw": raw(INSIDE, 3.0), "y": torch.ones(INSIDE), "outside": raw(OUTSIDE, 1.0),
        "size": torch.randint(20, 60, (INSIDE,), generator=_RANDOM),
        "outside_size": torch.randint(10, 50, (OUTSIDE,), generator=_RANDOM),
    }, {})  # fmt: skip
    (folder / RESULT).write_text(json.dumps(result))
    write(folder / WEIGHTS, {}, {})
    (folder / DONE).touch()
    return found


def test_areas_are_those_of_the_total_variance(experiment, tmp_path):
    (run,) = scored(experiment, tmp_path)
    both = torch.cat([run.inside["variance"], run.outside["variance"]])
    expected = roc_auc_score([0] * INSIDE + [1] * OUTSIDE, both)
    auroc, aupr, fpr80 = detections(experiment, tmp_path)["table_ood"].rows["DDPN"]
    assert auroc.value == pytest.approx(expected, abs=0.02)
    assert auroc.paper == 0.854
    assert auroc.rank == aupr.rank == fpr80.rank == 1


def test_equal_lengths_leave_nothing_to_the_length(experiment, tmp_path):
    table = detections(experiment, tmp_path)["table_ood_matched"]
    every, _, alike, _ = table.rows["number of tokens alone, few"]
    assert every.value > 0.6
    assert alike.value == pytest.approx(0.5, abs=0.05)
    assert alike.rank is None


def test_all_are_written(experiment, tmp_path):
    written = {path.name for path in write_tables(experiment, tmp_path)}
    names = ("table_ood", "table_ood_paper", "table_ood_kinds", "table_ood_matched")
    assert {f"{name}.{ending}" for name in names for ending in ("md", "tex", "csv")} <= written


def test_one_network_has_no_table_of_what_members_disagree_on(experiment, tmp_path):
    kept = {"raw": raw(INSIDE, 3.0)[:, :1], "y": torch.ones(INSIDE), "outside": raw(OUTSIDE, 1.0)[:, :1]}
    write(tmp_path / "tiny" / "ddpn" / PREDICTIONS, kept, {})
    tables = detections(experiment, tmp_path)
    assert set(tables) == {"table_ood", "table_ood_paper"}
    assert tables["table_ood"].rows["DDPN"][0].value > 0.6


def test_lengths_that_nothing_shares_are_told(experiment, tmp_path):
    kept = {
        "raw": raw(INSIDE, 3.0), "y": torch.ones(INSIDE), "outside": raw(OUTSIDE, 1.0),
        "size": torch.full((INSIDE,), 60), "outside_size": torch.full((OUTSIDE,), 20),
    }  # fmt: skip
    write(tmp_path / "tiny" / "ddpn" / PREDICTIONS, kept, {})
    tables = detections(experiment, tmp_path)
    assert "table_ood_matched" not in tables
    assert tables["table_ood"].notes[-1].startswith("Nothing is told of equal lengths: length_in and length_out must")


def test_a_run_that_was_shown_nothing_is_told(experiment, tmp_path):
    folder = tmp_path / "tiny" / "ddpn"
    write(folder / PREDICTIONS, {"raw": raw(3, 1.0), "y": torch.ones(3)}, {})
    with pytest.raises(InputError, match=r"ddpn must hold predictions of rows outside, got none\. Delete it"):
        detections(experiment, tmp_path)
