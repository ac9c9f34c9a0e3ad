"""Jobs for tests; a module of its own, because workers import it by its name."""

import os
import signal
import time
from pathlib import Path

from ddpn.errors import InputError


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
