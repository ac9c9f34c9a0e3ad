"""Small data with a known distribution and small models, which many tests share."""

from __future__ import annotations

import atexit
import compileall
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

# Imports are within the fixtures: pytest-xdist's own process reads this file too, and runs no test.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ddpn import DDPNRegressor

#: Tests on Ray, which share one cluster.
RAY = "tests/cluster"
#: When this share of the tests is left, those on Ray begin.
LAST = 0.12
#: The connection to the process that forks.
SERVER = pytest.StashKey[Connection]()
#: Two small networks with one encoding.
SMALL = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="session", autouse=True)
def one_command() -> Iterator[None]:
    """Build the program's commands from their signatures once, not in every call of a `CliRunner`."""
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session")
def quick() -> Callable[..., DDPNRegressor]:
    """An ensemble that is trained in a twentieth of a second."""
    from ddpn import DDPNRegressor

    return lambda **options: DDPNRegressor(**SMALL | options)


@pytest.fixture(scope="session")
def counts() -> tuple[np.ndarray, np.ndarray]:
    """90 rows of three numbers, and Poisson counts whose mean depends on the first two."""
    import numpy as np

    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    return X, rng.poisson(np.exp(1.2 + 0.8 * X[:, 0] - 0.4 * X[:, 1])).astype(float)


@pytest.fixture(scope="session")
def exposures() -> np.ndarray:
    """One exposure per row of `counts`."""
    import numpy as np

    return np.random.default_rng(6).uniform(0.2, 4.0, 90)


@pytest.fixture(scope="session")
def larger() -> tuple[np.ndarray, np.ndarray]:
    """300 rows: more than one batch, and enough for validation rows."""
    import numpy as np

    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 2)) * (rng.uniform(size=(300, 2)) > 0.3)
    return X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)


@pytest.fixture(scope="session")
def wards() -> tuple[pd.DataFrame, np.ndarray]:
    """90 rows of text, levels, numbers with gaps and flags; counts are higher in ward A."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(9)
    ward = np.array(["A", "B", "C"])[rng.integers(0, 3, 90)]
    age = np.where(rng.uniform(size=90) < 0.2, np.nan, rng.uniform(20, 80, 90))
    frame = pd.DataFrame({"ward": ward, "kind": pd.Categorical(ward), "age": age, "urgent": rng.uniform(size=90) < 0.5})
    return frame, rng.poisson(np.where(ward == "A", 9.0, 2.0)).astype(float)


@pytest.fixture(scope="session")
def fitted(quick, counts) -> DDPNRegressor:
    """An ensemble for tests that only predict with it."""
    return quick(members=3, epochs=40).fit(*counts)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the paper's data; tests that need them are skipped where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DDPN_DATA", beside))
    if not (folder / "length_of_stay").is_dir():
        pytest.skip(f"no data in {folder}: set DDPN_DATA to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def rewrite() -> Callable[..., None]:
    """Change a saved model and update its hashes, as somebody would who wants it to be loaded."""
    from ddpn.storage.files import sha256
    from ddpn.storage.model_files import _checksum

    def change(folder: Path, files: dict[str, bytes] | None = None, **manifest: Any) -> None:
        known = json.loads((folder / "model.json").read_text()) | manifest
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
            known["files"][name] = sha256(content)
        known["checksum"] = _checksum(known)
        (folder / "model.json").write_text(json.dumps(known))

    return change


class Forked:
    """A process that `forked` started; what it prints is in the files `out` and `err`."""

    def __init__(self, server: Connection, number: int, place: Path) -> None:
        self.server, self.number, self.out, self.err = server, number, place / "out", place / "err"

    @property
    def exitcode(self) -> int | None:
        """None while it runs, and negative for a signal."""
        self.server.send(self.number)
        return self.server.recv()

    def send_signal(self, number: int) -> None:
        if self.exitcode is None:
            os.kill(self.number, number)

    def wait(self, seconds: float = 120.0) -> int | None:
        """The exit code."""
        end = time.monotonic() + seconds
        while (code := self.exitcode) is None and time.monotonic() < end:
            time.sleep(0.005)
        return code


@pytest.fixture(scope="session")
def forked(request, tmp_path_factory) -> Iterator[Callable[..., Forked]]:
    """Run code in a copy of a process that has imported torch: a new process takes two seconds for that."""
    server, started = request.config.stash[SERVER], []

    def start(code: str, *words: str, folder: Path | None = None, **environment: str) -> Forked:
        place = tmp_path_factory.mktemp("process")
        for name in ("out", "err"):
            (place / name).touch()
        server.send((code, words, folder or place, environment, place))
        started.append(Forked(server, server.recv(), place))
        return started[-1]

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def program(forked) -> Callable[..., Forked]:
    """Start the program `ddpn` with these words."""
    return lambda *words, **options: forked("from ddpn.cli.program import main; main()", *words, **options)


def pytest_configure() -> None:
    """Look for garbage less often while tests are imported, and not at exit, where all objects end anyway."""
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)


def pytest_collection_finish() -> None:
    """Leave modules and tests, more than half a million objects, out of every later search for garbage."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Fork the process that forks, before tests are imported: some of them use polars, which starts threads."""
    is_worker = hasattr(session.config, "workerinput")
    if os.name != "posix" or (session.config.getoption("numprocesses", None) and not is_worker):
        return
    if is_worker:  # which imports this anyway
        _preload()
    here, there = Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads: xdist has one
        number = os.fork()
    if number == 0:
        try:
            _serve(there)
        finally:  # an error must not leave a second process that runs the tests
            os._exit(1)
    there.close()
    session.config.stash[SERVER] = here
    session.config.add_cleanup(lambda: (here.close(), os.waitpid(number, 0)))


def _preload() -> None:
    """Import what commands need."""
    for name in ("cli.program", "estimators.regressor", "workflow.fitting", "paper.experiments.runner"):
        importlib.import_module(f"ddpn.{name}")


def _serve(connection: Connection) -> NoReturn:
    """Start a process for every job that arrives, and answer how a process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which then closes the connection
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, 1 << 16)
    ended: dict[int, int] = {}
    while True:
        try:
            job = connection.recv()
        except EOFError:
            os._exit(0)
        if not isinstance(job, int):
            _preload()
            number = os.fork()
            if number == 0:
                _run(*job)
            connection.send(number)
            continue
        if job not in ended:
            number, status = os.waitpid(job, os.WNOHANG)
            ended |= {job: os.waitstatus_to_exitcode(status)} if number else {}
        connection.send(ended.get(job))


def _run(code: str, words: tuple[str], folder: Path, environment: dict[str, str], place: Path) -> NoReturn:
    """Run code as `python -c` does, with files instead of a terminal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.update(environment)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(place / name, os.O_WRONLY), number)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1) for number in (1, 2))  # noqa: SIM115  (until the end)
    sys.argv = ["ddpn", *words]
    ended = 0
    try:
        exec(compile(code, "code", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        ended = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        ended = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[Any]:
    """Leave tests out of the search for doctests: they have none."""
    from _pytest.doctest import DoctestModule

    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Ray are the last tests: a process that was its driver has threads, and others start processes by a fork.

    Doctests, which start none and may register things, follow.
    """
    items.sort(key=lambda item: 2 if item.nodeid.startswith("src") else int(item.nodeid.startswith(RAY)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the package and the tests, if they are new, before the processes start that would each do it."""
    if sys.dont_write_bytecode:
        return
    root = Path(__file__).resolve().parents[1]
    compileall.compile_dir(root / "src", quiet=2)
    hook = config.pluginmanager.rewrite_hook

    def stop(*_: Any) -> NoReturn:
        raise ImportError

    for path in [*root.glob("tests/**/test_*.py"), *root.glob("tests/**/conftest.py")]:
        if not any(path.parent.glob(f"__pycache__/{path.stem}.*-pytest-*.pyc")):
            # pytest rewrites the assertions and keeps the code; the module itself ends at its first import.
            module = ModuleType(path.stem)
            module.__spec__ = ModuleSpec(path.stem, hook, origin=str(path))
            module.__dict__["__builtins__"] = {"__import__": stop}
            with suppress(ImportError):
                hook.exec_module(module)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whole files to processes, so that what is fitted once per file or folder is fitted in one process."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class FromBothEnds(LoadScopeScheduling):
        """Every other process starts at the end of the list of tests.

        The tests on Ray are one unit, which waits more than it computes. It begins while others can still compute, and
        its process has only doctests after it.
        """

        driver: Any = None

        def _split_scope(self, nodeid: str) -> str:
            return RAY if nodeid.startswith(RAY) else nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            files = [unit for unit in self.workqueue if unit.startswith("tests/") and unit != RAY]
            left = sum(len(self.workqueue[unit]) for unit in files)
            if node is self.driver:
                units = [unit for unit in self.workqueue if unit not in files][:1]
                if not units:
                    node.shutdown()
                    return
            elif RAY in self.workqueue and left <= LAST * len(self.collection):
                # A process alone has all the other tests to run, too.
                units, self.driver = [RAY], node if len(self.nodes) > 1 else None
            else:
                units = files[-1:] if self.nodes.index(node) % 2 else files[:1]
            if units:
                self.workqueue.move_to_end(units[0], last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return FromBothEnds(config, log)
