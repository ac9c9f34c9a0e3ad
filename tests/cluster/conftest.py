"""Share a Ray cluster of two nodes on this machine; tests are skipped where Ray is not installed."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

JOBS = Path(__file__).resolve().parents[1] / "runtime"
#: A node has one core and 80 MB of shared objects, which is the least that Ray takes.
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
#: The head starts no further machines and sends no logs to drivers, which ddpn keeps quiet.
HEAD = NODE | {"no_monitor": True, "include_log_monitor": False}


@pytest.fixture(scope="session", autouse=True)
def ray():
    """Ray, quiet, with a folder of its own; workers find the jobs of these tests by PYTHONPATH."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs ddpn[cluster]")
    # A short name: it is part of the names of sockets.
    with TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)  # other programs would take the cluster noted in Ray's folder for theirs
        python_path = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(JOBS)] + ([python_path] if python_path else [])))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ddpn.runtime.cluster import import_ray

        yield import_ray()


@pytest.fixture(scope="session")
def work(ray):
    """The module of small jobs."""
    sys.path.insert(0, str(JOBS))
    yield importlib.import_module("small_jobs")
    sys.path.remove(str(JOBS))


@pytest.fixture(scope="session")
def nodes(ray):
    """A head and another node."""
    from ray.cluster_utils import Cluster

    two_nodes = Cluster(initialize_head=True, head_node_args=HEAD)
    two_nodes.add_node(**NODE)
    yield two_nodes
    two_nodes.shutdown()


@pytest.fixture(scope="session")
def cluster(ray, nodes):
    """One connection for all tests: workers of another would have to import torch again."""
    from ddpn.runtime.cluster import RayCluster

    connection = RayCluster(nodes.address, retries=2)
    connection.connect()
    yield connection
    ray.shutdown()
