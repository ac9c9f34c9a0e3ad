"""Predictions on a Ray cluster: whatever is killed meanwhile, the file is that of a run in this process."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.tables import table as table_module
from ddpn.tables.table import Table
from ddpn.workflow.cluster_blocks import ClusterBlocks, _Actor, predict_on_cluster
from ddpn.workflow.model_folder import load
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.streaming import predict_to

ROWS, PARTS = 90, 12
REQUEST = Request(quantiles=(0.2,), keep=True)

DRIVER = f"""
import os, signal, sys
from ddpn.runtime.cluster import RayCluster
from ddpn.tables import table as table_module
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.cluster_blocks import predict_on_cluster

table_module.ROWS = {ROWS}
calls = []

def done(rows):
    calls.append(rows)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

model, data, out, address = sys.argv[1:]
predict_on_cluster(
    model, data, out, cluster=RayCluster(address), request={REQUEST!r}, exposure="days", done=done
)
"""


@pytest.fixture(scope="module")
def model(quick, tmp_path_factory):
    """A model with exposures, saved in Python."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.normal(size=120), "ward": rng.choice(["a", "b"], 120)})
    days = rng.uniform(0.5, 2.0, 120)
    folder = tmp_path_factory.mktemp("models") / "visits.model"
    quick(members=1, epochs=2).fit(X, rng.poisson(days * np.exp(1 + X["x"])), exposure=days).save(folder)
    return folder


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Files of one block each, with a level that training did not have."""
    folder, rng = tmp_path_factory.mktemp("days"), np.random.default_rng(2)
    for number in range(PARTS):
        columns = {"x": rng.normal(size=ROWS), "ward": rng.choice(["a", "b", "z"], ROWS)}
        pl.DataFrame(columns | {"days": rng.uniform(0.5, 2.0, ROWS)}).write_parquet(folder / f"{number:02d}.parquet")
    return folder


@pytest.fixture
def tables(model, days, monkeypatch):
    monkeypatch.setattr(table_module, "ROWS", ROWS)
    return Table([str(days)])


def test_the_driver_and_then_a_worker_are_killed(nodes, cluster, model, days, tables, tmp_path):
    psutil = pytest.importorskip("psutil")
    out, findings, expected, killed, rows = tmp_path / "out.parquet", [], [], [], []
    folder = load(model, mixed_only=True, exposure="days")
    predict_to(folder, model, tables, REQUEST, str(tmp_path / "here.parquet"), on_finding=expected.append)
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), str(model), str(days), str(out), nodes.address]
    driver = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    assert not out.exists()
    parts = json.loads((tmp_path / "out.parquet.parts" / "manifest.json").read_text())["parts"]
    assert len(parts) == 2

    def kill_a_worker(number):
        rows.append(number)
        if len(rows) > 1 and not killed:
            raylets = [node.all_processes["raylet"][0].process.pid for node in nodes.worker_nodes]
            below = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
            killed.extend(child for child in below if "MapWorker" in " ".join(child.cmdline()))
            killed[0].kill()

    found = predict_on_cluster(
        model, str(days), out, cluster=cluster, request=REQUEST, exposure="days", done=kill_a_worker,
        on_finding=findings.append,
    )  # fmt: skip
    assert killed
    assert found == ROWS * PARTS == sum(rows)
    assert rows[0] == 2 * ROWS, "the parts of the killed driver are kept"
    assert findings == expected
    assert pl.read_parquet(out).equals(pl.read_parquet(tmp_path / "here.parquet"))
    assert sorted(os.listdir(tmp_path)) == ["here.parquet", "out.parquet"]


def test_an_actor_returns_errors_that_name_the_file_and_the_row(cluster, model, days, tables, tmp_path):
    bad = pl.read_parquet(days / "03.parquet")
    bad = bad.with_columns(pl.when(pl.int_range(ROWS) == 41).then(-1.0).otherwise("days").alias("days"))
    files = [str(days / "00.parquet"), str(tmp_path / "bad.parquet")]
    bad.write_parquet(files[1])
    places = Table(files).places()
    blocks = ClusterBlocks(cluster, model, {"exposure": "days"}, Table(files), REQUEST, str(tmp_path / "out.csv"))
    actor = _Actor(places, *blocks._work)

    def found(number):
        return pickle.loads(actor({"id": number})["found"])

    assert found(0) is None, "checked"
    assert found(2).rows == ROWS, "predicted"
    assert isinstance(found(1), InputError)
    assert "bad.parquet: exposure 'days' must be finite and positive, got -1 at row 42" in str(found(1))
    os.truncate(files[1], 10)
    assert "has another size on a node" in str(found(1))
    os.remove(files[1])
    assert "A node of the cluster cannot read" in str(found(1))


def test_standard_output_is_refused(cluster, model, tables):
    with pytest.raises(ConfigError, match="A cluster reads and writes files"):
        ClusterBlocks(cluster, model, {}, tables, REQUEST, "-")
