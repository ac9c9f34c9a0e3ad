"""Share folders of finished runs, written by hand: networks with weights of 0, whose predictions are their bias."""

import json
from functools import partial

import pytest
import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.model import CountModel
from ddpn.paper.experiments.catalogue import parse_experiment
from ddpn.paper.experiments.runs import DONE, PREDICTIONS, RESULT, WEIGHTS
from ddpn.storage.tensor_files import write

TRAINING = {"epochs": 1, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "hidden": [3], "n_networks": 2}
#: Declared but never built, as these runs are written by hand.
BACKBONES = {
    "reviews": {"name": "text", "pretrained": "nowhere"},
    "coco_people": {"name": "vit"},
    "shelves": {"name": "countnet3d"},
}


TRUTH = {"crps": 0.5, "mae": 0.7, "crps_gap": 0.25, "aleatoric_relative_error": 0.1, "epistemic": 0.02}


def make_scores(mae):
    """Make the scores of a run whose networks have these absolute errors."""
    single = {"mae": list(mae), "crps": [0.5 * m for m in mae], "median_precision": [2.0] * len(mae)}
    return {"single": single, "ensemble": {name: [min(values)] for name, values in single.items()}}


@pytest.fixture(scope="session")
def declare():
    """Return a function that makes an experiment of two networks with three hidden units."""

    def make(name, **content):
        common = {"title": name, "paper": "none", "minutes": 1, "training": TRAINING}
        if (data := content.get("data", {}).get("name")) in BACKBONES:
            common["backbone"] = BACKBONES[data]
        return parse_experiment(name, common | content)

    return make


@pytest.fixture
def finish(tmp_path, finish_in):
    """Write a finished run as `finish_in` does, in the test's own folder."""
    return partial(finish_in, tmp_path)


@pytest.fixture(scope="session")
def finish_in():
    """Write the folder of a finished run below the folder `out`.

    `bias` (M, P) are the raw outputs everywhere, `raw` those of the test rows, `mae` the absolute errors of networks,
    `result` changes its result, and `more` are other tensors of its predictions.
    """

    def write_run(out, run, bias, raw=None, y=None, x=None, mae=(1.5,), result=None, **more):
        bias = torch.as_tensor(bias, dtype=torch.float32)
        n_networks = len(bias)
        model = CountModel(MLP(n_in=1, hidden=(3,), n_networks=n_networks), run.head, n_networks)
        model.reset(range(n_networks))
        with torch.no_grad():
            model.projection.weight.zero_()
            model.projection.bias.copy_(bias.reshape(model.projection.bias.shape))
        y = torch.zeros(4) if y is None else torch.as_tensor(y, dtype=torch.float32)
        raw = bias.expand(len(y), *bias.shape) if raw is None else torch.as_tensor(raw, dtype=torch.float32)
        folder = out / run.experiment.name / run.name
        kept = {"raw": raw, "y": y, "x": torch.zeros(len(y), 1) if x is None else x}
        kept |= {name: torch.as_tensor(value, dtype=torch.float32) for name, value in more.items()}
        write(folder / PREDICTIONS, kept, {})
        write(folder / WEIGHTS, model.state_dict(), {})
        all_scores = {"paper": make_scores(mae), "ours": make_scores(mae), "truth": TRUTH}
        all_scores |= {"rounded": make_scores([0.9 * m for m in mae])} if run.method.is_continuous else {}
        written = {
            "settings": run.as_dict(), "identity": [1], "method": run.method.name, "label": run.method.label,
            "point": dict(run.point), "note": "", "rows": {"train": 80, "validation": 10, "test": len(y)},
            "scores": all_scores, "seconds": 1.0, "machine": {"device": "cpu"}, "history": {},
        }  # fmt: skip
        (folder / RESULT).write_text(json.dumps(written | (result or {})))
        (folder / DONE).touch()
        return folder

    return write_run
