"""Test that model folders, ONNX files, tables and requests of strangers are read, or refused in one sentence."""

import copy
import gzip
import io
import json
import os
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from ddpn.runtime.errors import DDPNError
from ddpn.serving import create_app
from ddpn.serving.schemas import RequestError
from ddpn.storage.files import sha256
from ddpn.tables.files import read_file
from ddpn.workflow.model_folder import load

onnx = pytest.importorskip("onnx")

#: Memory that a case may take beyond what the process has, and its seconds.
MEMORY, SECONDS = 2**31, 20.0
#: Errors that a prediction of a model with strange numbers may raise, as in `ddpn.serving.model`.
IN_PREDICTIONS = (DDPNError, ValueError, ArithmeticError)
ROW = {"age": 50.0, "ward": "A"}
REQUEST = {"rows": [ROW], "coverage": 0.8, "quantiles": [0.1], "pmf": 3, "outputs": ["mean", "lower", "distribution"]}
ABOUT = {
    "format": 1, "ddpn": "0.2", "inputs": [{"name": "[/a]", "type": "float64", "meaning": "a number"}],
    "outputs": {"mean": "mean"}, "coverage": 0.9, "pmf_up_to": 20, "target": "y", "members": {}, "fit": {},
}  # fmt: skip


def parametrize_cases(many: int, few: int, what: str) -> Any:
    """Run a few cases in every run of the tests, and many as a proof."""
    claim = f"{what} are read, or refused in one sentence: no crash, no hang, no write outside, memory bounded"
    marks = [pytest.mark.slow, pytest.mark.proof("Fuzz", claim)]
    return pytest.mark.parametrize("cases", [few, pytest.param(many, marks=marks)])


# Damage ------------------------------------------------------------------------------------------------------------

#: Values that nobody expects in a JSON file.
_NUMBERS = (True, -1, 0, 2**70, 1e308, -1e308, 0.5, 10**400)
_WORDS = ("", "x", "../../../etc/passwd", "/dev/zero", "\x00", "a" * 5000, "__import__('os').system('id')", "NaN")
STRANGE = st.sampled_from([None, *_NUMBERS, *_WORDS, [], {}, [[]], {"a": 1}, [1, "x", None]])


@st.composite
def damage(draw: Any, content: bytes) -> bytes:
    """Change some bytes of the content, drop or repeat a part of it, or replace it."""
    how = draw(st.sampled_from(["flip", "flip", "cut", "drop", "repeat", "longer", "other", "zeros"]))
    if not content or how == "other":
        return draw(st.binary(max_size=200))
    position = draw(st.integers(0, len(content) - 1))
    size = draw(st.integers(1, 64))
    if how == "flip":
        changed = bytearray(content)
        for offset in range(draw(st.integers(1, 8))):
            changed[(position + offset * 97) % len(content)] ^= draw(st.integers(1, 255))
        return bytes(changed)
    return {
        "cut": content[:position],
        "drop": content[:position] + content[position + size :],
        "repeat": content[: position + size] + content[position:],
        "longer": content + draw(st.binary(min_size=1, max_size=64)),
        "zeros": content[:position] + bytes(size) + content[position + size :],
    }[how]


def _list_keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


@st.composite
def change_document(draw: Any, document: Any) -> bytes:
    """Replace one value of a JSON document by a strange one, or remove one key."""
    document = copy.deepcopy(document)
    spot = document
    for _ in range(draw(st.integers(0, 5))):
        below = [key for key in _list_keys(spot) if _list_keys(spot[key])]
        if not below:
            break
        spot = spot[draw(st.sampled_from(below))]
    if not _list_keys(spot):
        return json.dumps(draw(STRANGE)).encode()
    key = draw(st.sampled_from(_list_keys(spot)))
    if isinstance(spot, dict) and draw(st.booleans()):
        del spot[key]
    else:
        spot[key] = draw(STRANGE)
    return json.dumps(document).encode()


def repeat(cases: int, run: Callable[[Any], None], strategy: st.SearchStrategy = st.data()) -> None:  # noqa: B008
    """Call a function with so many draws of hypothesis."""
    options = settings(
        max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    seed(1)(options(given(strategy)(run)))()


# The watch ---------------------------------------------------------------------------------------------------------


class HangError(Exception):
    """A case that took too long."""


class Watch:
    """A counter of how cases end, and of what they must not do.

    They must not write outside the folder, start processes, load pickles or raise errors other than one sentence.
    """

    CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
    FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class"}
    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def __init__(self, folder: Path) -> None:
        self.folder, self.ends, self.wrong, self.longest, self.is_on = folder, Counter[str](), [], 0.0, False
        sys.addaudithook(self._hook)
        signal.signal(signal.SIGALRM, self._ring)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        writes = event in self.CHANGES or (event == "open" and bool((args[2] or 0) & self.WRITING))
        if event in self.FORBIDDEN or (writes and not str(args[0]).startswith((str(self.folder), "/dev/null"))):
            self.wrong.append(f"{event} {str(args)[:200]}")

    def _ring(self, *_: Any) -> None:
        raise HangError

    def case(self, name: str, work: Callable[[], Any]) -> str:
        """Try one case, and return how it ended."""
        self.is_on, start = True, time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            work()
            end = "accepted"
        except DDPNError as error:
            end = "refused"
            if "\n" in str(error).strip():
                self.wrong.append(f"{name}: the message has several lines: {str(error)[:200]!r}")
        except Exception as error:
            end = "hung" if isinstance(error, HangError) else f"crashed by {type(error).__name__}"
            self.wrong.append(f"{name}: {end}: {''.join(traceback.format_exception(error))[-900:]}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self.is_on = False
        self.longest = max(self.longest, time.perf_counter() - start)
        self.ends[end] += 1
        return end

    def __str__(self) -> str:
        counted = ", ".join(f"{number:,} {end}" for end, number in sorted(self.ends.items()))
        return f"{counted}; longest {self.longest:.1f} s"


@pytest.fixture
def watch(tmp_path, capsys):
    """A watch over cases in this process, which has little more memory meanwhile than it takes."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGALRM)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, before[1]))
    yield Watch(tmp_path)
    resource.setrlimit(resource.RLIMIT_AS, before)
    signal.signal(signal.SIGALRM, handler)


# Model folders -----------------------------------------------------------------------------------------------------


def use_like_a_user(folder: Path, frame: pl.DataFrame) -> None:
    """Show, load and predict: everything that a user does with a folder of a stranger."""
    from ddpn.cli.model import _show_saved_model

    _show_saved_model(folder, False)
    saved = load(folder)
    try:
        dist = saved.model.predictor_.distribution(saved.roles.parse(frame, lambda sentence: None), None)
        (dist.mean + dist.variance).tolist()
    except IN_PREDICTIONS as error:
        raise DDPNError(str(error).partition("\n")[0]) from error


@parametrize_cases(500, 25, "damaged and hand-made model folders")
def test_damaged_folders_are_used_or_refused(model, visits, rewrite, watch, cases, record_proof):
    """Damage folders at random, with the old hashes and with new ones."""
    frame, target = visits(3, seed=2), watch.folder / "hostile.model"
    names = sorted(str(path.relative_to(model)) for path in model.rglob("*") if path.is_file())
    use_like_a_user(model, frame)

    def run(data: Any) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(model, target)
        name, rehash = data.draw(st.sampled_from(names)), data.draw(st.booleans())
        content = (model / name).read_bytes()
        if data.draw(st.integers(0, 9)) == 0:
            content = (model / data.draw(st.sampled_from(names))).read_bytes()
        elif name.endswith(".json") and data.draw(st.booleans()):
            content = data.draw(change_document(json.loads(content)))
        else:
            content = data.draw(damage(content))
        (target / name).write_bytes(content)
        if rehash:
            try:
                rewrite(target, {} if name == "model.json" else {name: content})
            except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
                rehash = False
        watch.case(f"{name}, {'new' if rehash else 'old'} hashes", lambda: use_like_a_user(target, frame))

    repeat(cases, run)
    assert watch.wrong == []
    assert watch.ends["refused"] >= 0.4 * cases
    record_proof(f"{cases:,} model folders", str(watch))


#: The files of the networks and of the boosted trees that a model is compared with.
NETWORKS, TREES = "networks/networks.safetensors", "trees/trees.safetensors"
EMPTY, MEMBER = sha256(b""), {"weight": 1.0, "seconds": None, "facts": {}}
PICKLE = b"cposix\nsystem\n(S'true'\ntR."
HUGE = json.dumps({"x": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}).encode()


def make_attacks(rewrite: Callable[..., None]) -> dict[str, Callable[[Path], Any]]:
    """Make known tricks, each a function that changes a model folder."""

    def files(name: str, content: bytes) -> Callable[[Path], None]:
        return lambda folder: rewrite(folder, {name: content})

    def manifest(part: str, name: str, value: Any) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            document = json.loads((folder / "model.json").read_text())
            document[part][name] = value
            (folder / "model.json").write_text(json.dumps(document))
            rewrite(folder)

        return change

    def petabytes(folder: Path) -> None:
        document = json.loads((folder / "networks" / "networks.json").read_text()) | {
            "inputs": 2**40,
            "n_networks": 2**10,
        }
        rewrite(folder, {"networks/networks.json": json.dumps(document).encode()})

    def circle(folder: Path) -> None:
        from safetensors.numpy import load, save

        arrays = load((folder / TREES).read_bytes())
        arrays["0.left_child"][0] = arrays["0.right_child"][0] = 0
        rewrite(folder, {TREES: save(arrays)})

    def pipe(folder: Path) -> None:
        (folder / "task.json").unlink()
        os.mkfifo(folder / "task.json")

    return {
        "pickle as weights": files(NETWORKS, PICKLE),
        "pickle as trees": files(TREES, PICKLE),
        "tensor of terabytes": files(NETWORKS, struct.pack("<Q", len(HUGE)) + HUGE + b"\0" * 64),
        "network of petabytes": petabytes,
        "trees in a circle, which compiled code would follow for ever": circle,
        "path upwards": manifest("files", "../../../../etc/passwd", EMPTY),
        "absolute path": manifest("files", "/etc/passwd", EMPTY),
        "endless device": manifest("files", "/dev/zero", EMPTY),
        "path with a backslash": manifest("files", "..\\..\\secret", EMPTY),
        "pipe that nobody writes": pipe,
        "manifest of a terabyte": lambda folder: os.truncate(folder / "model.json", 2**40),
        "deeply nested manifest": lambda folder: (folder / "model.json").write_bytes(b"[" * 10**6),
        "deeply nested task": files("task.json", b"[" * 10**6),
        "unknown member": manifest("members", "os.system", MEMBER),
        "member by a path": manifest("members", "../../other", MEMBER),
    }


@pytest.mark.proof("Security", "tricks with model folders are refused: no code, no file outside")
def test_known_attacks_are_refused(model, visits, rewrite, watch, record_proof):
    use_like_a_user(model, frame := visits(3, seed=2))
    for number, (name, change) in enumerate(make_attacks(rewrite).items()):
        target = watch.folder / f"{number}.model"
        shutil.copytree(model, target)
        change(target)
        assert watch.case(name, lambda target=target: use_like_a_user(target, frame)) == "refused", (name, watch.wrong)
    assert watch.wrong == []
    record_proof(f"{watch.ends['refused']} attacks", str(watch))


# ONNX files, tables and requests -----------------------------------------------------------------------------------


@parametrize_cases(1000, 200, "ONNX files")
def test_damaged_onnx_files_are_shown_or_refused(watch, cases, record_proof):
    """Do what `ddpn show` does with a file that ends with .onnx."""
    from ddpn.cli.model import show_onnx
    from ddpn.export.description import ENTRY

    def write_description(about: str) -> bytes:
        small = onnx.ModelProto()
        onnx.helper.set_model_props(small, {ENTRY: about})
        return small.SerializeToString()

    target = watch.folder / "hostile.onnx"
    target.write_bytes(content := write_description(json.dumps(ABOUT)))
    show_onnx(target, False)

    def run(data: Any) -> None:
        hostile = damage(content) | change_document(ABOUT).map(lambda about: write_description(about.decode()))
        target.write_bytes(data.draw(hostile))
        as_json = data.draw(st.booleans())
        watch.case("ONNX file", lambda: show_onnx(target, as_json))

    repeat(cases, run)
    assert watch.wrong == []
    assert min(watch.ends["refused"], watch.ends["accepted"]) >= 0.1 * cases
    record_proof(f"{cases:,} ONNX files", str(watch))


@parametrize_cases(3000, 40, "tables")
def test_damaged_tables_are_read_or_refused(visits, watch, cases, record_proof):
    """Read files of every ending, damaged or of another type than their ending says."""
    frame = visits(40).with_columns(pl.Series("when", ["2024-02-03"] * 40), pl.Series("text", ['a "b", c\n;'] * 40))
    contents = {"csv": frame.write_csv().encode(), "tsv": frame.write_csv(separator="\t").encode()}
    contents |= {"jsonl": frame.write_ndjson().encode(), "csv.gz": gzip.compress(contents["csv"])}
    for name, write in (("parquet", frame.write_parquet), ("feather", frame.write_ipc)):
        write(out := io.BytesIO())
        contents[name] = out.getvalue()

    def run(data: Any) -> None:
        ending = data.draw(st.sampled_from(sorted(contents)))
        kind = ending if data.draw(st.integers(0, 4)) else data.draw(st.sampled_from(sorted(contents)))
        target = watch.folder / f"hostile.{ending}"
        target.write_bytes(data.draw(damage(contents[kind])))
        watch.case(f"table {ending}", lambda: read_file(str(target)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        repeat(cases, run)
    assert watch.wrong == []
    assert min(watch.ends["refused"], watch.ends["accepted"]) >= 0.1 * cases
    record_proof(f"{cases:,} tables", str(watch))


@parametrize_cases(2000, 25, "bodies of requests")
def test_damaged_requests_are_answered_or_refused(model, watch, cases, record_proof):
    """Send bodies of requests, from bytes to rows."""

    def send(body: bytes) -> None:
        response = client.post("/predict", content=body, headers={"content-type": "application/json"})
        assert response.status_code < 500
        if response.status_code != 200:
            raise RequestError(response.json()["message"], response.status_code)

    def with_cell(column: str, cell: Any) -> bytes:
        return json.dumps({**REQUEST, "rows": [{**ROW, column: cell}]}).encode()

    cells = st.builds(with_cell, st.sampled_from(sorted(ROW)), STRANGE | st.floats() | st.integers() | st.text())
    bodies = damage(json.dumps(REQUEST).encode()) | change_document(REQUEST) | cells
    with TestClient(create_app({"m": model}, reload_every=0.0)) as client:
        send(json.dumps(REQUEST).encode())

        def run(data: Any) -> None:
            body = data.draw(bodies)
            watch.case("request", lambda: send(body))

        repeat(cases, run)
    assert watch.wrong == []
    assert min(watch.ends["refused"], watch.ends["accepted"]) >= 0.1 * cases
    record_proof(f"{cases:,} requests", str(watch))
