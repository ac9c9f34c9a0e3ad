"""Test jobs, fits, searches, trainings and predictions on one Ray cluster, which all tests of this file share."""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.members import folds
from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import Job, JobError, count_slots, run
from ddpn.storage.results import ResultStore
from ddpn.tables import blocks as table_blocks
from ddpn.tables.table import Table
from ddpn.workflow import search, streaming, tuning
from ddpn.workflow.config import FitConfig
from ddpn.workflow.model_folder import SavedModel
from ddpn.workflow.preparing import prepare
from ddpn.workflow.streaming import _SharedInputs, predict_files

pytestmark = pytest.mark.last


# Jobs on a Ray cluster: whatever fails meanwhile, the results are those of an undisturbed run in this process.


def test_failed_and_killed_jobs_are_repeated_and_errors_of_ddpn_are_not(cluster, work, tmp_path):
    assert count_slots(cluster) == 2
    often = {"once": (work.fail_first, 1), "never": (work.fail_first, 9), "deadly": (work.die_first, 9)}
    for name in often:
        (tmp_path / name).mkdir()
    jobs = [Job(name, job, (str(tmp_path / name), times)) for name, (job, times) in often.items()]
    results = {result.job.name: result for result in run([Job("refused", work.refuse), *jobs], None, cluster)}
    with pytest.raises(InputError, match="This cannot be fitted"):
        results["refused"].get()
    assert results["once"].get() == {"ran": b"1"}
    with pytest.raises(JobError, match=r"^never failed 3 times, the last time: ZeroDivisionError: odd\.$"):
        results["never"].get()
    assert "in fail_first" in results["never"].trace
    with pytest.raises(JobError, match=r"^deadly failed 3 times, the last time: its worker or node was lost"):
        results["deadly"].get()
    assert [len(list((tmp_path / name).iterdir())) for name in often] == [2, 3, 3]


def test_the_driver_is_killed_and_started_again(nodes, cluster, work, tmp_path):
    store, seeds = tmp_path / "store", [str(seed) for seed in range(6)]
    command = [sys.executable, work.__file__, nodes.address, str(store), *seeds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        done = {driver.stdout.readline().strip() for _ in range(2)}
        driver.kill()
    ran, jobs = set(), [Job(seed, work.draw_numbers, (int(seed),), {"seed": seed}) for seed in seeds]
    results = run(jobs, [1.0, 2.0], cluster, ResultStore(store), lambda job: ran.add(job.name))
    results_by_name = {result.job.name: result.get() for result in results}
    assert results_by_name == {seed: work.draw_numbers([1.0, 2.0], int(seed)) for seed in seeds}
    assert 2 <= len(done) < len(seeds)
    assert not done & ran


def test_an_exception_in_the_loop_cancels_the_tasks(cluster, work, tmp_path):
    jobs = [Job("short", work.double, (1,)), *(Job(str(n), work.wait_long, (str(tmp_path),)) for n in (1, 2))]
    results = run(jobs, [1.0], cluster)
    assert next(results).job.name == "short"
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.05)
    results.close()
    (result,) = run([Job("next", work.double, (1,))], [1.0], cluster)
    assert result.error is None, "cores of the cancelled tasks are free again"


def test_more_gpus_than_a_cluster_has_are_refused(cluster):
    with pytest.raises(ConfigError, match=r"A job needs 1 CPU cores and 0\.5 GPUs, but the cluster has 2 CPU cores"):
        RayCluster(cluster.address, gpus=0.5).connect()


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1", "nowhere"])
def test_a_missing_cluster_is_reported_at_once(monkeypatch, ray, address):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=f"No Ray cluster can be reached at '{address}'"):
        RayCluster(address).connect()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match="No Ray cluster can be reached"):
        RayCluster().connect()


def test_without_a_cluster_the_message_says_how_to_start_one(monkeypatch, ray):
    def init(address, **options):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(
        ConfigError, match=r"No Ray cluster is running on this machine\. Start one with `ray start --head`"
    ):
        RayCluster().connect()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[cluster\]'"):
        RayCluster().connect()


# `ddpn fit --cluster` saves the model of `ddpn fit`, though a node is killed meanwhile.


def test_a_node_is_killed_and_the_program_saves_the_same_portfolio(nodes, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    x = rng.normal(size=160)
    pl.DataFrame({"x": x, "visits": rng.poisson(np.exp(0.5 + 0.6 * x))}).write_csv("visits.csv")
    (tmp_path / "quick.toml").write_text(
        'target = "visits"\nhidden = [8]\nepochs = 3\nlikelihood = "poisson"\ncompare_with = []\n'
    )
    kept, has_ended = [], threading.Event()

    def kill_a_node():
        while not (stored := list(tmp_path.glob(".there*jobs/*.json"))) and not has_ended.is_set():
            time.sleep(0.05)
        kept.extend(stored)
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)

    command = ["fit", "visits.csv", "--config", "quick.toml", "--device", "cpu", "--json"]
    killer = threading.Thread(target=kill_a_node)
    killer.start()
    on_cluster = CliRunner().invoke(app, [*command, "-o", "there", "--cluster", cluster.address])
    has_ended.set()
    killer.join()
    while count_slots(cluster) > 1:
        time.sleep(0.1)
    nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    while count_slots(cluster) < 2:
        time.sleep(0.1)
    locally = CliRunner().invoke(app, [*command, "-o", "here"])
    assert on_cluster.exit_code == locally.exit_code == 0, on_cluster.output
    assert "Fitted networks ..." in on_cluster.stderr
    assert "Fitted GLM, fold 5 ..." in on_cluster.stderr
    assert 1 <= len(kept) < 5, "most was fitted after a node was killed"
    names = {path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.safetensors")}
    assert len(names) > 3
    assert {n for n in names if (tmp_path / "there" / n).read_bytes() != (tmp_path / "here" / n).read_bytes()} == set()
    scores = [json.loads(run.stdout)["scores"]["entries"] for run in (on_cluster, locally)]
    assert [row["crps"] for row in scores[0]] == [row["crps"] for row in scores[1]]
    assert not list(tmp_path.glob(".there*jobs"))


# Trials on a Ray cluster are those of one process that runs as many at once.


QUICK = {
    "n_networks": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip


def test_the_search_and_the_refit_are_the_same(cluster, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=120)
    table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    prepared = prepare(table, FitConfig(target="visits", compare_with=(), **QUICK))
    _, on_cluster = tuning.tune(tmp_path / "cluster", prepared, trials=5, search=["lr"], n_jobs=cluster)
    for module in (search, folds):
        monkeypatch.setattr(module, "run", lambda jobs, shared, n_jobs, store: run(jobs, shared, None, store))
    _, locally = tuning.tune(tmp_path / "here", prepared, trials=5, search=["lr"], n_jobs=2)
    trials = [[(t.settings, t.crps, t.dropped) for t in outcome.trials] for outcome in (on_cluster, locally)]
    assert trials[0] == trials[1]
    weights = [(tmp_path / name / "networks" / "networks.safetensors").read_bytes() for name in ("cluster", "here")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "cluster" / "task.json").read_text())["tuning"]["best_number"] in range(5)


# The example of a training in processes of a Ray cluster: the weights of one process, though one of them dies.


ROOT = Path(__file__).resolve().parents[2]
TRAINING = str(ROOT / "tests" / "networks" / "training" / "one_training.py")


@pytest.fixture
def example(ray, monkeypatch):
    """Workers need not find the example, but are sent it."""
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("needs ddpn[distributed]")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module("train_on_ray")
    sys.modules["ray.cloudpickle"].register_pickle_by_value(module)
    return module


@pytest.fixture(scope="module")
def plain_weights():
    """The weights of a training in this process."""
    program = runpy.run_path(TRAINING)
    program["run_training"](model := program["make_network"]())
    return model.state_dict()


@pytest.mark.filterwarnings("ignore")  # on the inner workings of Ray
def test_a_process_of_the_example_trains_the_same_weights(example, work, plain_weights, tmp_path):
    build = work.SelfKillingTraining(TRAINING, str(tmp_path))  # only a second process would die
    example.train({"build": build, "folder": str(tmp_path), "gpus": False, "save_seconds": 0.0})
    weights = example.load_file(tmp_path / "weights.safetensors")
    torch.testing.assert_close(weights, dict(plain_weights), rtol=0.0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # on the inner workings of Ray
def test_a_training_survives_a_process(cluster, example, work, plain_weights, tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    (tmp_path / "shared").mkdir()
    options = {"processes": 2, "retries": 1, "save_seconds": 0.0}
    model = example.train_on_ray(work.SelfKillingTraining(TRAINING, str(killed)), tmp_path / "shared", **options)
    assert len(list(killed.iterdir())) == 1, "a process was killed"
    torch.testing.assert_close(dict(model.state_dict()), dict(plain_weights), rtol=0.0, atol=1e-6)


# Predictions on a Ray cluster: though a worker is killed meanwhile, the file is that of a run in this process.


ROWS, PARTS = 900, 12
SPEC = PredictionSpec(quantiles=(0.2,), keep=True)


@pytest.fixture(scope="module")
def model(quick, tmp_path_factory):
    """A model with exposures, saved in Python."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.normal(size=120), "ward": rng.choice(["a", "b"], 120)})
    days = rng.uniform(0.5, 2.0, 120)
    folder = tmp_path_factory.mktemp("models") / "visits.model"
    quick(n_networks=1, epochs=2).fit(X, rng.poisson(days * np.exp(1 + X["x"])), exposure=days).save(folder)
    return folder


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Files of one block each, with a level that training did not have."""
    folder, rng = tmp_path_factory.mktemp("days"), np.random.default_rng(2)
    for number in range(PARTS):
        columns = {"x": rng.normal(size=ROWS), "ward": rng.choice(["a", "b", "z"], ROWS)}
        pl.DataFrame(columns | {"days": rng.uniform(0.5, 2.0, ROWS)}).write_parquet(folder / f"{number:02d}.parquet")
    return folder


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", ROWS)


def test_a_worker_is_killed_and_the_predictions_are_the_same(nodes, cluster, model, days, tmp_path, monkeypatch):
    psutil = pytest.importorskip("psutil")
    findings, killed, rows, options = {"here": [], "there": []}, [], [], {"spec": SPEC, "exposure": "days"}
    local_path, cluster_path = tmp_path / "here.parquet", tmp_path / "there.parquet"
    predict_files(model, days, local_path, on_finding=findings["here"].append, **options)

    def kill_a_worker(number):
        rows.append(number)
        if len(rows) > 1 and not killed:
            raylets = [node.all_processes["raylet"][0].process.pid for node in nodes.list_all_nodes()]
            below = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
            killed.extend(child for child in below if "ray::_run_on_node" in " ".join(child.cmdline()))
            if killed:
                killed[0].kill()

    bar = SimpleNamespace(advance=kill_a_worker)
    monkeypatch.setattr(streaming, "progress_bar", lambda *_: nullcontext(bar))
    n_rows = predict_files(model, days, cluster_path, on_finding=findings["there"].append, n_jobs=cluster, **options)
    assert killed
    assert n_rows == ROWS * PARTS == sum(rows)
    assert findings["there"] == findings["here"]
    assert pl.read_parquet(cluster_path).equals(pl.read_parquet(local_path))
    assert sorted(os.listdir(tmp_path)) == ["here.parquet", "there.parquet"]


def test_errors_name_the_file_and_the_row(cluster, model, days, tmp_path):
    bad = pl.read_parquet(days / "03.parquet")
    bad = bad.with_columns(pl.when(pl.int_range(ROWS) == 41).then(-1.0).otherwise("days").alias("days"))
    files = [str(days / "00.parquet"), str(tmp_path / "bad.parquet")]
    bad.write_parquet(files[1])
    with pytest.raises(InputError, match=r"bad.parquet: exposure 'days' .* got -1 at row 42"):
        predict_files(model, files, tmp_path / "out.csv", spec=SPEC, exposure="days", n_jobs=cluster)
    assert os.listdir(tmp_path) == ["bad.parquet"]
    saved = SavedModel(model, exposure="days")
    work = _SharedInputs(saved.load_predictor(), saved.roles, Table(files), [0, 9], SPEC, "out.csv")
    with pytest.raises(ConfigError, match="differs in size between this machine and a node"):
        work.check(work.table.list_blocks()[1])
    os.remove(files[1])
    with pytest.raises(ConfigError, match="cannot read"):
        work.check(work.table.list_blocks()[1])


def test_standard_output_is_refused(cluster, model, days):
    with pytest.raises(ConfigError, match="cannot use standard input or output"):
        predict_files(model, days, "-", exposure="days", n_jobs=cluster)
