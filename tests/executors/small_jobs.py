"""Jobs for tests; a module of its own, because workers import it by its name."""

import os
import signal
import time
from pathlib import Path

from ddpn.runtime.errors import InputError


def double(progress, data, factor):
    progress("half way")
    return {"sum": str(sum(data) * factor).encode(), "process": str(os.getpid()).encode()}


def refuse(progress):
    raise InputError("This cannot be fitted.")


def fail_first(progress, folder, times):
    """Raises so many times, then returns how often it ran."""
    ran = len(list(Path(folder).iterdir()))
    (Path(folder) / str(ran)).touch()
    if ran < times:
        raise ZeroDivisionError("odd\nsecond line")
    return {"ran": str(ran).encode()}


def die_first(progress, folder):
    """Its process is killed at the first attempt."""
    if not (file := Path(folder) / "ran").exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"ran": b"twice"}


def wait_long(progress, folder):
    """Leaves a file when it is told to end."""
    try:
        progress("waiting")
        time.sleep(60)
    except KeyboardInterrupt:
        (Path(folder) / "ended").touch()
        raise
    return {}


def made():
    """Data that a worker makes by itself."""
    return [1, 2, os.getpid()]


def first_and_maker(progress, data):
    return {"sum": str(sum(data[:2])).encode(), "maker": str(data[2]).encode(), "here": str(os.getpid()).encode()}


def fit_networks(progress, data, seed, seconds=0.0, fails_in=None):
    """A small fit that takes this long at least; with `fails_in`, its first attempt raises and leaves a file there."""
    from ddpn.members.network_options import NetworkOptions
    from ddpn.members.networks import Networks
    from ddpn.sample import Sample
    from ddpn.training import Runtime

    end, (X, y) = time.monotonic() + seconds, data
    options = NetworkOptions(members=2, hidden=(8,), numeric="standard", epochs=5)
    member = Networks(options=options, runtime=Runtime("cpu")).fit(Sample(X, y), None, seed)
    while time.monotonic() < end:
        progress("waiting")
        time.sleep(0.05)
    if fails_in is not None and not (file := Path(fails_in) / "failed").exists():
        file.touch()
        raise RuntimeError("a fault that comes once")
    return {"weights": member.state()["networks.safetensors"]}


class Networks:
    """Builds the networks of tests/training/one_training.py; process 1 of a training kills itself so many times.

    It does so in the second epoch after it began, and leaves a file each time.
    """

    def __init__(self, program, folder, kills):
        self.program, self.folder, self.kills = program, folder, kills

    def __call__(self, members):
        import runpy

        program = runpy.run_path(self.program)
        model = program["network"]()
        killed = len(list(Path(self.folder).iterdir()))
        if os.environ.get("RANK") == "1" and killed < self.kills:
            compute, uses = program["ending_itself"](model, signal.SIGKILL, 10).raw, 0

            def raw(x):
                nonlocal uses
                uses += 1
                if uses == 10:
                    (Path(self.folder) / str(killed)).touch()
                return compute(x)

            model.raw = raw
        return model


if __name__ == "__main__":
    # The driver that a test kills: address, store, seconds of each job, and the seeds.
    import sys

    import numpy as np
    import small_jobs  # workers import its functions by this name

    from ddpn.cluster import RayExecutor
    from ddpn.executors import Job

    address, store, seconds, *seeds = sys.argv[1:]
    with RayExecutor(address, store=store) as executor, np.load(Path(store).with_suffix(".npz")) as known:
        shared = executor.share((known["X"], known["y"]))
        jobs = [Job(f"seed {s}", small_jobs.fit_networks, (shared, int(s), float(seconds)), {"seed": s}) for s in seeds]
        for result in executor.run(jobs):
            print(result.job.name, flush=True)
