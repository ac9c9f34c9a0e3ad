"""Folders of finished runs, written by hand: networks whose weights are 0, so that their laws are those of a bias."""

import json

import pytest
import torch

from ddpn.backbones import MLP
from ddpn.experiments.runner import DONE, PREDICTIONS, RESULT, WEIGHTS
from ddpn.experiments.settings import parse
from ddpn.model import CountModel
from ddpn.tensor_files import write

TRAINING = {"epochs": 1, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "hidden": [3], "members": 2}
#: Declared, never built: these runs are written by hand.
BACKBONES = {
    "reviews": {"name": "text", "pretrained": "nowhere"},
    "coco_people": {"name": "vit"},
    "inventory": {"name": "countnet3d"},
    "shelves": {"name": "countnet3d"},
}


@pytest.fixture
def declare():
    """An experiment of two members with three hidden units."""

    def make(name, **content):
        common = {"title": name, "paper": "none", "minutes": 1, "training": TRAINING}
        if (data := content.get("data", {}).get("name")) in BACKBONES:
            common["backbone"] = BACKBONES[data]
        return parse(name, common | content)

    return make


@pytest.fixture
def finish(tmp_path):
    """Write a run's folder; `bias` (M, P) are the raw numbers everywhere, `raw` those of the test rows.

    `more` are other tensors that a run keeps of its predictions.
    """

    def write_run(run, bias, raw=None, y=None, x=None, **more):
        bias = torch.as_tensor(bias, dtype=torch.float32)
        members = len(bias)
        model = CountModel(MLP(n_in=1, hidden=(3,), members=members), run.head, members)
        model.reset(range(members))
        with torch.no_grad():
            model.projection.weight.zero_()
            model.projection.bias.copy_(bias.reshape(model.projection.bias.shape))
        y = torch.zeros(4) if y is None else torch.as_tensor(y, dtype=torch.float32)
        raw = bias.expand(len(y), *bias.shape) if raw is None else torch.as_tensor(raw, dtype=torch.float32)
        folder = tmp_path / run.experiment.name / run.name
        kept = {"raw": raw, "y": y, "x": torch.zeros(len(y), 1) if x is None else x}
        kept |= {name: torch.as_tensor(value, dtype=torch.float32) for name, value in more.items()}
        write(folder / PREDICTIONS, kept, {})
        write(folder / WEIGHTS, model.state_dict(), {})
        result = {
            "settings": run.as_dict(),
            "identity": [],
            "scores": {"paper": {}, "ours": {"ensemble": {"mae": [1.25], "crps": [0.75]}}},
            "rows": {},
            "seconds": 0.0,
            "label": run.method.label,
        }
        (folder / RESULT).write_text(json.dumps(result))
        (folder / DONE).touch()
        return folder

    return write_run
