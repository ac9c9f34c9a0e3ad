"""Define jobs for tests, in a module of their own because workers import it by its name."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from ddpn.runtime.errors import InputError


def double(data, factor):
    data[0] += 0.0  # data may be written to
    return {"sum": str(sum(data) * factor).encode(), "process": str(os.getpid()).encode()}


def read_elsewhere(data):
    """Read the data in another process, as images are read."""
    from torch.utils.data import DataLoader

    return {"sum": str(sum(int(batch.sum()) for batch in DataLoader(data, num_workers=1))).encode()}


def refuse(data):
    raise InputError("This cannot be fitted.")


def fail_first(data, folder, times):
    """Raise so many times, then return how often it ran."""
    ran = len(list(Path(folder).iterdir()))
    (Path(folder) / str(ran)).touch()
    if ran < times:
        raise ZeroDivisionError("odd\nsecond line")
    return {"ran": str(ran).encode()}


def die_first(data, folder, times):
    """Kill the process of the job so many times."""
    ran = len(list(Path(folder).iterdir()))
    (Path(folder) / str(ran)).touch()
    if ran < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"ran": str(ran).encode()}


def wait_long(data, folder):
    """Write the number of the process, and the time again and again."""
    path = Path(folder) / str(os.getpid())
    for _ in range(600):
        path.write_text(str(time.time()))
        time.sleep(0.1)
    return {}


def draw_numbers(data, seed, seconds=0.0):
    """Draw numbers that depend on the data and the seed, for at least this many seconds."""
    time.sleep(seconds)
    return {"numbers": np.random.default_rng(seed).normal(data, size=(9, len(data))).tobytes()}


class SelfKillingTraining:
    """A builder of the training of tests/networks/training, whose process 1 kills itself once, in epoch 2."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self):
        import runpy

        program = runpy.run_path(self.program)
        model, file = program["make_network"](), Path(self.folder) / "killed"
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
        return model, program["simulate_rows"](50, seed=1), program["simulate_rows"](40, seed=2), program["CONFIG"]


if __name__ == "__main__":
    # The program that a test kills: the address of its cluster, its store, and seeds.
    import sys

    import small_jobs  # workers import its functions by this name

    from ddpn.runtime.cluster import RayCluster
    from ddpn.runtime.jobs import Job, run
    from ddpn.storage.results import ResultStore

    address, store, *seeds = sys.argv[1:]
    jobs = [Job(seed, small_jobs.draw_numbers, (int(seed), 0.5), {"seed": seed}) for seed in seeds]
    for result in run(jobs, [1.0, 2.0], RayCluster(address), ResultStore(store)):
        print(result.job.name, flush=True)
