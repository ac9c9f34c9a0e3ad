"""Trials on a Ray cluster are those of one process that runs as many at once."""

import json

import numpy as np
import polars as pl

from ddpn.executors import InProcess
from ddpn.tuning import tune
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare

QUICK = {
    "members": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip


class Two(InProcess):
    """As many at once as the cluster."""

    slots = 2


def test_the_search_and_the_refit_are_the_same(executor, tmp_path):
    x = np.random.default_rng(0).normal(size=120)
    table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    prepared = prepare(table, Plan(target="visits", compare_with=(), model=QUICK))
    found = [
        tune(tmp_path / name, prepared, trials=5, search=["lr"], executor=where)
        for name, where in (("cluster", executor), ("here", Two()))
    ]
    there, here = ([(t.settings, t.crps, t.dropped) for t in each.result.trials] for each in found)
    assert there == here
    weights = [(tmp_path / name / "networks" / "networks.safetensors").read_bytes() for name in ("cluster", "here")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "cluster" / "task.json").read_text())["tuning"]["best_number"] in range(5)
