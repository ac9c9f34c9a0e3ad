"""Runs hostile cases in a process with little memory, in which every write, process and pickle is noticed.

    python -m benchmarks.prove.sandbox MODULE:FUNCTION OPTIONS

The function is called with a `Watch` and the options; it tries its cases and returns JSON values, which are printed.
"""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.prove.proof import ROOT, environment

from ddpn.runtime.errors import DDPNError

#: Memory that a case may take beyond what the warm process has, and its seconds.
MEMORY, SECONDS = 2**31, 20.0
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
_FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class"}
_FORBIDDEN |= {"socket.connect", "socket.bind"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class HangError(Exception):
    """A case that took too long."""


class Watch:
    """Counts how cases end, and keeps what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ends, self.wrong = folder, Counter[str](), []
        self._is_on, self._seen, self.longest = False, [], 0.0
        sys.addaudithook(self._hook)
        signal.signal(signal.SIGALRM, self._ring)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_on:
            return
        writes = event == "open" and bool((args[2] or 0) & _WRITING)
        if event in _FORBIDDEN or (
            (event in _CHANGES or writes) and not str(args[0]).startswith((str(self.folder), "/dev/null"))
        ):
            self._seen.append(f"{event} {str(args)[:200]}")

    def _ring(self, *_: Any) -> None:
        raise HangError

    def limit(self) -> None:
        """From now on no more memory than some beyond what is taken."""
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))

    def case(self, name: str, work: Callable[[], Any], allowed: tuple[type[Exception], ...] = (DDPNError,)) -> None:
        """Try one case; it may succeed or end with an allowed error."""
        self._seen, self._is_on = [], True
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            work()
            end = "accepted"
        except allowed as error:
            end = "refused"
            if "\n" in str(error).strip() and isinstance(error, DDPNError):
                self.wrong.append(f"{name}: the message has several lines: {str(error)[:200]!r}")
        except HangError:
            end = "hung"
        except Exception as error:
            end = f"crashed by {type(error).__name__}"
            self.wrong.append(f"{name}: {''.join(traceback.format_exception(error))[-900:]}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self._is_on = False
        if end == "hung":
            self.wrong.append(f"{name}: no end after {SECONDS:g} s")
        self.longest = max(self.longest, time.perf_counter() - start)
        self.ends[end] += 1
        self.wrong += [f"{name}: {event}" for event in self._seen]


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed meanwhile."""
    with open(os.devnull, "w") as nothing:
        old = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nothing
        try:
            yield
        finally:
            sys.stdout, sys.stderr = old


def sandboxed(function: str, seconds: float = 900.0, **options: Any) -> dict[str, Any]:
    """Call MODULE:FUNCTION in a process of its own; a process that dies or never ends is a result, too."""
    command = [sys.executable, "-m", "benchmarks.prove.sandbox", function, json.dumps(options)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"ends": {}, "wrong": [f"the process did not end in {seconds:g} s"], "longest": seconds}
    if done.returncode:
        how = f"the process ended with {done.returncode}: {done.stderr[-600:]}"
        return {"ends": {}, "wrong": [how], "longest": 0.0}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        watch = Watch(Path(folder))
        with quiet():
            getattr(importlib.import_module(module), name)(watch, **json.loads(sys.argv[2]))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ends": watch.ends, "wrong": watch.wrong[:50], "longest": watch.longest, "MiB": memory}))


if __name__ == "__main__":
    main()
