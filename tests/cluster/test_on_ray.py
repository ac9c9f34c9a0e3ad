"""Jobs, fits, searches, trainings and predictions on one Ray cluster, which all tests of this file share."""

import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.members import folds
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import Job, JobError, run, slots
from ddpn.storage.results import ResultStore
from ddpn.tables import table as table_module
from ddpn.tables.table import Table
from ddpn.workflow import tuning
from ddpn.workflow.model_folder import load
from ddpn.workflow.plan import Plan
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.preparing import prepare
from ddpn.workflow.streaming import _Work, predict_files, predict_to

pytestmark = pytest.mark.last


# Jobs on a Ray cluster: whatever fails meanwhile, the weights are those of an undisturbed run in this process.


SEEDS = range(6)


@pytest.fixture(scope="module")
def expected(work, rows):
    """The weights of each seed."""
    jobs = [Job(str(seed), work.fit_networks, (seed,)) for seed in SEEDS]
    return {result.job.name: result.get() for result in run(jobs, rows)}


def test_a_node_is_killed_and_a_task_raises(nodes, cluster, work, rows, expected, tmp_path):
    assert slots(cluster) == 2
    begun, failed = tmp_path / "begun", tmp_path / "failed"
    begun.mkdir()
    failed.mkdir()
    jobs = [
        Job(str(seed), work.fit_networks, (seed, 1.0, str(failed) if seed == 3 else None, str(begun))) for seed in SEEDS
    ]
    results = run(jobs, rows, cluster)
    found = [next(results)]
    while len(list(begun.iterdir())) < 4:  # two further ones have begun, one on each node
        time.sleep(0.05)
    nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
    nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    found += results
    assert {result.job.name: result.get() for result in found} == expected
    attempts = [path.name.split("-")[0] for path in begun.iterdir()]
    assert attempts.count("3") >= 2, "it raised an error that may not come again"
    assert len(attempts) > len(SEEDS) + 1, "what ran on the node was repeated"


def test_errors_of_ddpn_are_not_repeated_and_others_only_so_often(cluster, work, tmp_path):
    jobs = [Job("refused", work.refuse), Job("never", work.fail_first, (str(tmp_path), 9))]
    found = {result.job.name: result for result in run(jobs, None, cluster)}
    with pytest.raises(InputError, match="This cannot be fitted"):
        found["refused"].get()
    with pytest.raises(JobError, match=r"^never failed 3 times, the last time: ZeroDivisionError: odd\.$"):
        found["never"].get()
    assert "in fail_first" in found["never"].trace
    assert len(list(tmp_path.iterdir())) == 3


def test_a_job_that_kills_its_worker_each_time_fails_with_one_sentence(cluster, work, tmp_path):
    (found,) = run([Job("deadly", work.die_first, (str(tmp_path), 9))], None, cluster)
    with pytest.raises(JobError, match=r"^deadly failed 3 times, the last time: its worker or node was lost"):
        found.get()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
def test_the_driver_is_killed_and_started_again(nodes, cluster, work, rows, expected, tmp_path):
    store = tmp_path / "store"
    np.savez(tmp_path / "store.npz", X=rows[0], y=rows[1])
    driver = subprocess.Popen(
        [sys.executable, Path(work.__file__), nodes.address, str(store), "0.7", *map(str, SEEDS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    done = {driver.stdout.readline().strip() for _ in range(2)}
    driver.kill()
    driver.wait()
    driver.stdout.close()
    ran = set()
    jobs = [Job(f"seed {seed}", work.fit_networks, (seed,), {"seed": str(seed)}) for seed in SEEDS]
    results = run(jobs, rows, cluster, ResultStore(store), lambda job: ran.add(job.name))
    found = {result.job.name.removeprefix("seed "): result.get() for result in results}
    assert found == expected
    assert 2 <= len(done) < len(SEEDS)
    assert not done & ran


def test_an_exception_in_the_loop_cancels_the_tasks(cluster, work, rows):
    results = run([Job(str(seed), work.fit_networks, (seed, 0.1 + 60 * seed)) for seed in (0, 1)], rows, cluster)
    assert next(results).job.name == "0"
    results.close()
    (found,) = run([Job("next", work.fit_networks, (0,))], rows, cluster)
    assert found.error is None, "cores of the cancelled task are free again"


def test_what_a_cluster_does_not_have_is_refused(cluster):
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
        ConfigError, match=r"No Ray cluster was found on this machine\. Start one with `ray start --head`"
    ):
        RayCluster().connect()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[cluster\]'"):
        RayCluster().connect()


# `ddpn fit --cluster` saves the model of `ddpn fit`.


def test_the_program_saves_the_same_portfolio(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    x = rng.normal(size=160)
    pl.DataFrame({"x": x, "visits": rng.poisson(np.exp(0.5 + 0.6 * x))}).write_csv("visits.csv")
    (tmp_path / "quick.toml").write_text(
        'target = "visits"\nhidden = [8]\nepochs = 3\nlikelihood = "poisson"\ncompare_with = []\n'
    )
    command = ["fit", "visits.csv", "--config", "quick.toml", "--device", "cpu", "--json"]
    there = CliRunner().invoke(app, [*command, "-o", "there", "--cluster", cluster.address])
    here = CliRunner().invoke(app, [*command, "-o", "here"])
    assert there.exit_code == here.exit_code == 0, there.output
    assert "Fitted networks ..." in there.stderr
    assert "Fitted GLM, fold 5 ..." in there.stderr
    names = {path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.safetensors")}
    assert len(names) > 3
    assert {n for n in names if (tmp_path / "there" / n).read_bytes() != (tmp_path / "here" / n).read_bytes()} == set()
    scores = [json.loads(each.stdout)["test"]["entries"] for each in (there, here)]
    assert [row["crps"] for row in scores[0]] == [row["crps"] for row in scores[1]]
    assert not list(tmp_path.glob(".there*jobs"))


# Trials on a Ray cluster are those of one process that runs as many at once.


QUICK = {
    "members": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "likelihood": "poisson", "device": "cpu",
    "mix_with": (),
}  # fmt: skip


def test_the_search_and_the_refit_are_the_same(cluster, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=120)
    table = pl.DataFrame({"x": x, "visits": np.random.default_rng(1).poisson(np.exp(1 + x))})
    prepared = prepare(table, Plan(target="visits", compare_with=(), model=QUICK))
    _, there = tuning.tune(tmp_path / "cluster", prepared, trials=5, search=["lr"], n_jobs=cluster)
    for module in (tuning, folds):
        monkeypatch.setattr(module, "run", lambda jobs, shared, n_jobs, store: run(jobs, shared, None, store))
    _, here = tuning.tune(tmp_path / "here", prepared, trials=5, search=["lr"], n_jobs=2)
    trials = [[(t.settings, t.crps, t.dropped) for t in each.trials] for each in (there, here)]
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
    found = importlib.import_module("train_on_ray")
    sys.modules["ray.cloudpickle"].register_pickle_by_value(found)
    return found


@pytest.fixture(scope="module")
def alone():
    """The weights of a training in this process."""
    program = runpy.run_path(TRAINING)
    program["trained"](model := program["network"]())
    return model.state_dict()


@pytest.mark.filterwarnings("ignore")  # on the inner workings of Ray
def test_what_a_process_of_the_example_runs(example, work, alone, tmp_path):
    build = work.Dying(TRAINING, str(tmp_path))  # only a second process would die
    example.train({"build": build, "folder": str(tmp_path), "gpus": False, "save_seconds": 0.0})
    found = example.load_file(tmp_path / "weights.safetensors")
    torch.testing.assert_close(found, dict(alone), rtol=0.0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # on the inner workings of Ray
def test_a_training_survives_a_process(cluster, example, work, alone, tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    (tmp_path / "shared").mkdir()
    options = {"processes": 2, "retries": 1, "save_seconds": 0.0}
    model = example.train_on_ray(work.Dying(TRAINING, str(killed)), tmp_path / "shared", **options)
    assert len(list(killed.iterdir())) == 1, "a process was killed"
    torch.testing.assert_close(dict(model.state_dict()), dict(alone), rtol=0.0, atol=1e-6)


# Predictions on a Ray cluster: whatever is killed meanwhile, the file is that of a run in this process.


ROWS, PARTS = 90, 12
REQUEST = Request(quantiles=(0.2,), keep=True)

DRIVER = f"""
import os, signal, sys
from pathlib import Path
from ddpn.runtime.cluster import RayCluster
from ddpn.tables import table as table_module
from ddpn.workflow.model_folder import load
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.streaming import predict_to

table_module.ROWS = {ROWS}
calls = []

def done(rows):
    calls.append(rows)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

model, data, out, address = sys.argv[1:]
folder = load(Path(model), mixed_only=True, exposure="days")
predict_to(folder, Path(model), table_module.Table([data]), {REQUEST!r}, out, done, n_jobs=RayCluster(address))
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
    kept = len(list((tmp_path / "out.parquet.parts").glob("*.json")))
    assert kept >= 3

    def kill_a_worker(number):
        rows.append(number)
        if len(rows) > kept + 1 and not killed:
            raylets = [node.all_processes["raylet"][0].process.pid for node in nodes.list_all_nodes()]
            below = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
            killed.extend(child for child in below if "ray::_on_node" in " ".join(child.cmdline()))
            if killed:
                killed[0].kill()

    found = predict_to(folder, model, tables, REQUEST, str(out), kill_a_worker, findings.append, n_jobs=cluster)
    assert killed
    assert found == ROWS * PARTS == sum(rows)
    assert rows[:kept] == [ROWS] * kept, "the parts of the killed driver are kept"
    assert findings == expected
    assert pl.read_parquet(out).equals(pl.read_parquet(tmp_path / "here.parquet"))
    assert sorted(os.listdir(tmp_path)) == ["here.parquet", "out.parquet"]


def test_errors_name_the_file_and_the_row(cluster, model, days, tables, tmp_path):
    bad = pl.read_parquet(days / "03.parquet")
    bad = bad.with_columns(pl.when(pl.int_range(ROWS) == 41).then(-1.0).otherwise("days").alias("days"))
    files = [str(days / "00.parquet"), str(tmp_path / "bad.parquet")]
    bad.write_parquet(files[1])
    with pytest.raises(InputError, match=r"bad.parquet: exposure 'days' .* got -1 at row 42"):
        predict_files(model, files, tmp_path / "out.csv", request=REQUEST, exposure="days", n_jobs=cluster)
    assert os.listdir(tmp_path) == ["bad.parquet"]
    work = _Work(load(model, exposure="days"), Table(files), [0, 9], REQUEST, "out.csv")
    with pytest.raises(ConfigError, match="another size on a node"):
        work.check(work.table.places()[1])
    os.remove(files[1])
    with pytest.raises(ConfigError, match="cannot read"):
        work.check(work.table.places()[1])


def test_standard_output_is_refused(cluster, model, days):
    with pytest.raises(ConfigError, match="reads and writes files"):
        predict_files(model, days, "-", exposure="days", n_jobs=cluster)
