"""Trials on a Ray cluster are those of one process that runs as many at once."""

import json

import numpy as np
import polars as pl

from ddpn.members import fit_jobs
from ddpn.runtime.jobs import run
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare
from ddpn.workflow.tuning import search, tune

QUICK = {
    "members": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip


def test_the_search_and_the_refit_are_the_same(cluster, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=120)
    table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    prepared = prepare(table, Plan(target="visits", compare_with=(), model=QUICK))
    there = tune(tmp_path / "cluster", prepared, trials=5, search=["lr"], n_jobs=cluster)
    for module in (search, fit_jobs):
        monkeypatch.setattr(module, "run", lambda jobs, shared, n_jobs, store: run(jobs, shared, None, store))
    here = tune(tmp_path / "here", prepared, trials=5, search=["lr"], n_jobs=2)
    trials = [[(t.settings, t.crps, t.dropped) for t in each.result.trials] for each in (there, here)]
    assert trials[0] == trials[1]
    weights = [(tmp_path / name / "networks" / "networks.safetensors").read_bytes() for name in ("cluster", "here")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "cluster" / "task.json").read_text())["tuning"]["best_number"] in range(5)
