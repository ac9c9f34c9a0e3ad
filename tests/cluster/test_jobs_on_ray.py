"""Jobs on a Ray cluster: whatever fails meanwhile, the weights are those of an undisturbed run in this process."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import Job, JobError, run, slots
from ddpn.storage.results import ResultStore

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
        Job(str(seed), work.fit_networks, (seed, 3.0, str(failed) if seed == 3 else None, str(begun))) for seed in SEEDS
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
