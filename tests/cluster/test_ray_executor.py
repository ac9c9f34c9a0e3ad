"""Jobs on a Ray cluster: whatever fails meanwhile, the weights are those of an undisturbed run in this process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ddpn.cluster import RayExecutor
from ddpn.executors import InProcess, Job, JobError
from ddpn.runtime.errors import ConfigError, InputError

SEEDS = range(6)


@pytest.fixture(scope="module")
def expected(work, rows):
    """The weights of each seed."""
    jobs = [Job(str(seed), work.fit_networks, (rows, seed)) for seed in SEEDS]
    return {result.job.name: result.get() for result in InProcess().run(jobs)}


def test_a_node_is_killed_and_a_task_raises(cluster, executor, work, rows, expected, tmp_path):
    shared, reports = executor.share(rows), []
    assert executor.slots == 2
    fails = {seed: str(tmp_path) if seed == 3 else None for seed in SEEDS}
    jobs = [Job(str(seed), work.fit_networks, (shared, seed, 3.0, fails[seed])) for seed in SEEDS]
    waiting, killed = set(), []

    def follow(job, state, detail):
        """Kill a node, and start another one, as soon as both run a job."""
        reports.append((job.name, state, detail))
        (waiting.add if detail == "waiting" else waiting.discard)(job.name)
        if len(waiting) == 2 and not killed:
            killed.append(next(iter(cluster.worker_nodes)))
            cluster.remove_node(killed[0], allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=80_000_000)

    found = {result.job.name: result.get() for result in executor.run(jobs, follow)}
    assert found == expected
    assert ("3", "retried", "RuntimeError: a fault that comes once") in reports
    assert any("node was lost" in why for name, state, why in reports if state == "retried")
    assert any(state == "running" and detail == "waiting" for _, state, detail in reports)


def test_errors_of_ddpn_are_not_repeated_and_others_only_so_often(executor, work, tmp_path):
    reports = []
    jobs = [Job("refused", work.refuse), Job("never", work.fail_first, (str(tmp_path), 9))]
    found = {r.job.name: r for r in executor.run(jobs, lambda job, *rest: reports.append((job.name, *rest)))}
    with pytest.raises(InputError, match="This cannot be fitted"):
        found["refused"].get()
    with pytest.raises(JobError, match=r"^never failed 3 times, the last time: ZeroDivisionError: odd\.$"):
        found["never"].get()
    assert [name for name, state, _ in reports if state == "retried"] == ["never", "never"]


def test_the_driver_is_killed_and_started_again(cluster, executor, work, rows, expected, tmp_path):
    store = tmp_path / "store"
    np.savez(tmp_path / "store.npz", X=rows[0], y=rows[1])
    driver = subprocess.Popen(
        [sys.executable, Path(work.__file__), cluster.address, str(store), "0.7", *map(str, SEEDS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    done = {driver.stdout.readline().strip() for _ in range(2)}
    driver.kill()
    driver.wait()
    driver.stdout.close()
    ran = set()
    again = RayExecutor(cluster.address, store=store)
    shared = again.share(rows)
    jobs = [Job(f"seed {seed}", work.fit_networks, (shared, seed), {"seed": str(seed)}) for seed in SEEDS]
    results = again.run(jobs, lambda job, state, _: ran.add(job.name) if state == "running" else None)
    found = {result.job.name.removeprefix("seed "): result.get() for result in results}
    assert found == expected
    assert 2 <= len(done) < len(SEEDS)
    assert not done & ran


def test_an_exception_in_the_loop_cancels_the_tasks(executor, work, rows):
    shared = executor.share(rows)
    results = executor.run([Job(str(seed), work.fit_networks, (shared, seed, 0.1 + 60 * seed)) for seed in (0, 1)])
    assert next(results).job.name == "0"
    results.close()
    (found,) = executor.run([Job("next", work.fit_networks, (shared, 0))])
    assert found.error is None, "cores of the cancelled task are free again"


def test_what_a_cluster_does_not_have_is_refused(cluster, executor):
    with pytest.raises(ConfigError, match=r"A job needs 1 CPU cores and 0\.5 GPUs, but the cluster has 2 CPU cores"):
        RayExecutor(cluster.address, gpus=0.5)
    with pytest.raises(ConfigError, match=r"gpus must be a share of a GPU or an integer, got 1\.5"):
        RayExecutor(cluster.address, gpus=1.5)


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1", "nowhere"])
def test_a_missing_cluster_is_reported_at_once(monkeypatch, ray, address):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=f"No Ray cluster can be reached at '{address}'"):
        RayExecutor(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match="No Ray cluster can be reached"):
        RayExecutor("auto")


def test_without_a_cluster_the_message_says_how_to_start_one(monkeypatch, ray):
    def init(address, **options):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(
        ConfigError, match=r"No Ray cluster was found on this machine\. Start one with `ray start --head`"
    ):
        RayExecutor()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[cluster\]'"):
        RayExecutor()
