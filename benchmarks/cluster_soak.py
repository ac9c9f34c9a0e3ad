"""Sixty fits on a Ray cluster of three nodes, of which one is killed every ten seconds.

    python benchmarks/cluster_soak.py --out benchmarks/results

The cluster runs on this machine: a head, which runs no job, and three nodes of one core each. Every ten seconds a
random node is killed (SIGKILL, with all of its processes) and another one is started. Each fit is an ensemble of two
networks with a seed of its own, and takes a second at least. All fits must come back, with the weights of a run in
this process, bit for bit. Writes cluster.md.
"""

import argparse
import os
import platform
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

# Workers import this file by its name.
sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


def fit(progress, rows, seed, seconds=0.0):
    """Two networks, which take so many seconds at least: a node has little to do, and is killed in the middle of it."""
    from ddpn.members.network_options import NetworkOptions
    from ddpn.members.networks import Networks
    from ddpn.runtime.threads import limit_threads
    from ddpn.sample import Sample
    from ddpn.training import Runtime

    limit_threads(1)
    end = time.monotonic() + seconds
    options = NetworkOptions(members=2, hidden=(32, 32), numeric="standard", epochs=3)
    member = Networks(options=options, runtime=Runtime("cpu")).fit(Sample(*rows), None, seed)
    while time.monotonic() < end:
        progress("waiting")
        time.sleep(0.1)
    return {"weights": member.state()["networks.safetensors"]}


class Killer:
    """Kills a random node every so many seconds, and starts another one; Ray starts nodes in the main thread only."""

    def __init__(self, cluster, every: float) -> None:
        self.cluster, self.every, self.killed = cluster, every, 0
        self.random, self.due = random.Random(0), time.monotonic() + every

    def __call__(self) -> None:
        """Called often; kills if it is time to."""
        if time.monotonic() < self.due:
            return
        self.due = max(self.due + self.every, time.monotonic() + 1.0)
        nodes = sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id)
        self.cluster.remove_node(self.random.choice(nodes), allow_graceful=False)
        self.killed += 1
        self.cluster.add_node(wait=False, **NODE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--fits", type=int, default=60)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each fit at least")
    args = parser.parse_args()
    import cluster_soak  # under the name that workers know

    from ddpn.cluster import RayExecutor
    from ddpn.cluster.connection import import_ray
    from ddpn.executors import InProcess, Job

    ray = import_ray()
    from ray.cluster_utils import Cluster

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    rows = X, rng.poisson(np.exp(1 + 0.5 * X[:, 0])).astype(float)
    began = time.monotonic()
    expected = {
        result.job.name: result.get()
        for result in InProcess().run([Job(f"fit {seed}", cluster_soak.fit, (rows, seed)) for seed in range(args.fits)])
    }
    alone = time.monotonic() - began
    print(f"{args.fits} fits in this process: {alone:.0f} s")
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 0})
    for _ in range(3):
        cluster.add_node(**NODE)
    states: Counter = Counter()
    killer = Killer(cluster, args.every)

    def follow(job: Job, state: str, detail: object) -> None:
        states.update([state])
        killer()

    try:
        with RayExecutor(cluster.address, retries=20) as executor:
            shared = executor.share(rows)
            jobs = [Job(f"fit {seed}", cluster_soak.fit, (shared, seed, args.seconds)) for seed in range(args.fits)]
            began, found = time.monotonic(), {}
            for result in executor.run(jobs, follow):
                found[result.job.name] = result.files
                print(f"{time.monotonic() - began:.0f} s: {len(found)} fits, {killer.killed} nodes killed", flush=True)
            seconds = time.monotonic() - began
    finally:
        cluster.shutdown()
    complete = sum(files is not None for files in found.values())
    equal = sum(found[name] == files for name, files in expected.items())
    machine = platform.processor() or platform.machine()
    lines = [
        f"# Fits on a cluster whose nodes are killed, on {machine}, Ray {ray.__version__}",
        "",
        f"Made by `python benchmarks/cluster_soak.py --every {args.every:g}`: a head and three nodes of one core each, "
        f"all on one machine with {os.cpu_count()} cores.",
        "",
        f"- fits: {complete} of {args.fits} complete, {equal} with the weights of a run in one process, bit for bit",
        f"- nodes killed: {killer.killed}, about every {args.every:g} s; each was replaced",
        f"- jobs repeated: {states['retried']}",
        f"- time: {seconds:.0f} s; in one process without a cluster {alone:.0f} s",
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cluster.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if equal < args.fits:
        sys.exit(1)


if __name__ == "__main__":
    main()
