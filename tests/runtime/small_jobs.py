"""Jobs for tests; a module of its own, because workers import it by its name."""

import os
import signal
import time
from pathlib import Path
from uuid import uuid4

from ddpn.runtime.errors import InputError


def double(data, factor):
    data[0] += 0.0  # data may be written to
    return {"sum": str(sum(data) * factor).encode(), "process": str(os.getpid()).encode()}


def read_elsewhere(data):
    """Reads its data in a process of its own, as images are read."""
    from torch.utils.data import DataLoader

    return {"sum": str(sum(int(batch.sum()) for batch in DataLoader(data, num_workers=1))).encode()}


def refuse(data):
    raise InputError("This cannot be fitted.")


def fail_first(data, folder, times):
    """Raises so many times, then returns how often it ran."""
    ran = len(list(Path(folder).iterdir()))
    (Path(folder) / str(ran)).touch()
    if ran < times:
        raise ZeroDivisionError("odd\nsecond line")
    return {"ran": str(ran).encode()}


def die_first(data, folder, times):
    """Its process is killed so many times."""
    ran = len(list(Path(folder).iterdir()))
    (Path(folder) / str(ran)).touch()
    if ran < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"ran": str(ran).encode()}


def wait_long(data, folder):
    """Leaves the number of its process, and the time again and again."""
    path = Path(folder) / str(os.getpid())
    for _ in range(600):
        path.write_text(str(time.time()))
        time.sleep(0.1)
    return {}


def fit_networks(data, seed, seconds=0.0, fails_in=None, begun_in=None):
    """A small fit that takes this long at least.

    With `fails_in`, its first attempt raises and leaves a file there. With `begun_in`, each attempt leaves one there.
    """
    from ddpn.members.network_options import NetworkOptions
    from ddpn.members.networks import Networks
    from ddpn.networks.training import Runtime
    from ddpn.sample import Sample

    if begun_in is not None:
        (Path(begun_in) / f"{seed}-{uuid4().hex}").touch()
    end, (X, y) = time.monotonic() + seconds, data
    options = NetworkOptions(members=2, hidden=(8,), numeric="standard", epochs=5)
    member = Networks(options=options, runtime=Runtime("cpu")).fit(Sample(X, y), None, seed)
    time.sleep(max(0.0, end - time.monotonic()))
    if fails_in is not None and not (file := Path(fails_in) / "failed").exists():
        file.touch()
        raise RuntimeError("a fault that comes once")
    return {"weights": member.state()["networks.safetensors"]}


class Dying:
    """Builds the training of tests/networks/training; process 1 kills itself once, in its second epoch."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self):
        import runpy

        program = runpy.run_path(self.program)
        model, file = program["network"](), Path(self.folder) / "killed"
        if os.environ.get("RANK") == "1" and not file.exists():
            compute, uses = model.raw, 0

            def raw(x):
                nonlocal uses
                uses += 1
                if uses == 10:
                    file.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return compute(x)

            model.raw = raw
        return model, program["simulated"](50, seed=1), program["simulated"](40, seed=2), program["CONFIG"]


if __name__ == "__main__":
    # The program that a test kills: the address of its cluster, its store, seconds of each job, and seeds.
    import sys

    import numpy as np
    import small_jobs  # workers import its functions by this name

    from ddpn.runtime.cluster import RayCluster
    from ddpn.runtime.jobs import Job, run
    from ddpn.storage.results import ResultStore

    address, store, seconds, *seeds = sys.argv[1:]
    with np.load(Path(store).with_suffix(".npz")) as known:
        rows = known["X"], known["y"]
    jobs = [Job(f"seed {s}", small_jobs.fit_networks, (int(s), float(seconds)), {"seed": s}) for s in seeds]
    for result in run(jobs, rows, RayCluster(address), ResultStore(store)):
        print(result.job.name, flush=True)
