"""Hostile model folders: damaged by accident, or made by somebody who knows how hashes are computed."""

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from benchmarks.prove.hostile import changed_document, damaged, dumped
from benchmarks.prove.proof import Place, Result, table
from benchmarks.prove.sandbox import Watch, sandboxed
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ddpn.runtime.errors import DDPNError
from ddpn.storage.files import sha256

#: What a prediction of a model with strange numbers may end with, as in `ddpn.serving.model`.
IN_PREDICTIONS = (DDPNError, ValueError, ArithmeticError)


def fuzzing(number: int, cases: int) -> Callable[[Any], Any]:
    """Hypothesis as a generator of so many cases."""
    options = settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    return lambda function: seed(number)(options(function))


def rewritten(folder: Path, files: dict[str, bytes], manifest: dict[str, Any] | None = None) -> None:
    """Put files into a model folder and update its hashes, as somebody would who wants it to be loaded."""
    known = json.loads((folder / "model.json").read_text()) if manifest is None else manifest
    for name, content in files.items():
        (folder / name).write_bytes(content)
        known["files"][name] = sha256(content)
    rest = {name: value for name, value in known.items() if name != "checksum"}
    known["checksum"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(known))


def used(folder: Path, frame: pl.DataFrame) -> None:
    """Show, load and predict: all that a user does with a folder of a stranger."""
    from ddpn.cli.model import _show_folder
    from ddpn.workflow.model_folder import load

    _show_folder(folder, False)
    found = load(folder)
    try:
        roles = found.roles
        dist = found.model.predictor_.distribution(roles.features(frame, lambda sentence: None), None)
        (dist.mean + dist.variance).tolist()
    except IN_PREDICTIONS as error:
        raise DDPNError(str(error).partition("\n")[0]) from error


def folders(watch: Watch, model: str, cases: int, number: int) -> None:
    """Random damage, with the old hashes and with new ones."""
    frame, target, source = table(3, seed=2), watch.folder / "hostile.model", Path(model)
    names = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    used(source, frame)
    watch.limit()

    @fuzzing(number, cases)
    @given(data=st.data())
    def run(data: Any) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        name, rehash = data.draw(st.sampled_from(names)), data.draw(st.booleans())
        content = (source / name).read_bytes()
        if data.draw(st.integers(0, 9)) == 0:
            content = (source / data.draw(st.sampled_from(names))).read_bytes()
        elif name.endswith(".json") and data.draw(st.booleans()):
            content = dumped(data.draw(changed_document(json.loads(content))))
        else:
            content = data.draw(damaged(content))
        if name == "model.json" and rehash:
            try:
                manifest = json.loads(content)
                rewritten(target, {}, manifest)
            except (ValueError, TypeError, AttributeError, RecursionError):
                (target / name).write_bytes(content)
        elif rehash:
            rewritten(target, {name: content})
        else:
            (target / name).write_bytes(content)
        watch.case(f"{name}, {'new' if rehash else 'old'} hashes", lambda: used(target, frame))

    run()


# Attacks that somebody would try -------------------------------------------------------------------------------------


def huge_tensor() -> bytes:
    """A safetensors file that declares a tensor of terabytes."""
    head = json.dumps({"x": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}).encode()
    return struct.pack("<Q", len(head)) + head + b"\0" * 64


#: The file of the boosted trees that a model is compared with.
TREES = "trees/trees.safetensors"
PICKLE = b"cposix\nsystem\n(S'touch /tmp/ddpn-prove-owned'\ntR."


def attacks(watch: Watch, model: str) -> None:
    """Known tricks: code in files, paths out of the folder, devices, circles in trees, huge declared sizes."""
    frame, target, source = table(3, seed=2), watch.folder / "hostile.model", Path(model)
    used(source, frame)
    watch.limit()
    for name, change in known_attacks().items():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        change(target)
        before = watch.ends["refused"]
        watch.case(name, lambda: used(target, frame))
        if watch.ends["refused"] == before:
            watch.wrong.append(f"{name}: it was not refused")
    if Path("/tmp/ddpn-prove-owned").exists():
        watch.wrong.append("a pickle was executed")


def known_attacks() -> dict[str, Callable[[Path], None]]:
    """Each changes a model folder."""

    def files(**content: bytes) -> Callable[[Path], None]:
        return lambda folder: rewritten(folder, {name.replace("__", "/"): value for name, value in content.items()})

    def listed(name: str) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            manifest = json.loads((folder / "model.json").read_text())
            manifest["files"][name] = sha256(b"")
            rewritten(folder, {}, manifest)

        return change

    def networks(**facts: Any) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            known = json.loads((folder / "networks" / "networks.json").read_text()) | facts
            rewritten(folder, {"networks/networks.json": dumped(known)})

        return change

    def pipe(folder: Path) -> None:
        (folder / "task.json").unlink()
        os.mkfifo(folder / "task.json")

    def sparse(folder: Path) -> None:
        with open(folder / "model.json", "ab") as file:
            file.truncate(2**40)

    return {
        "pickle as weights": lambda folder: rewritten(folder, {"networks/networks.safetensors": PICKLE}),
        "pickle as trees": lambda folder: rewritten(folder, {TREES: PICKLE}),
        "tensor of terabytes": lambda folder: rewritten(folder, {"networks/networks.safetensors": huge_tensor()}),
        "network of petabytes": networks(inputs=2**40, members=2**10),
        "trees in a circle": in_a_circle,
        "path upwards": listed("../../../../etc/passwd"),
        "absolute path": listed("/etc/passwd"),
        "endless device": listed("/dev/zero"),
        "path with a backslash": listed("..\\..\\secret"),
        "pipe that nobody writes": pipe,
        "manifest of a terabyte": sparse,
        "deeply nested manifest": lambda folder: (folder / "model.json").write_bytes(b"[" * 10**6) and None,
        "deeply nested task": files(**{"task.json": b"[" * 10**6}),
        "unknown member": lambda folder: _with_member(folder, "os.system"),
        "member by a path": lambda folder: _with_member(folder, "../../other"),
    }


def _with_member(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "model.json").read_text())
    manifest["members"][name] = {"weight": 1.0, "seconds": None, "facts": {}}
    rewritten(folder, {}, manifest)


def in_a_circle(folder: Path) -> None:
    """Trees whose first node is its own child, which compiled code would follow for ever."""
    from safetensors.numpy import load, save

    arrays = load((folder / TREES).read_bytes())
    arrays["0.left_child"][0] = arrays["0.right_child"][0] = 0
    rewritten(folder, {TREES: save(arrays)})


# Proofs ------------------------------------------------------------------------------------------------------------


def verdict(found: dict[str, Any], what: str) -> Result:
    """The result of cases in a sandbox."""
    ends, wrong = found["ends"], found["wrong"]
    counted = ", ".join(f"{number:,} {end}" for end, number in sorted(ends.items()))
    shown = f"{counted}; longest {found['longest']:.1f} s, at most {found.get('MiB', 0):,.0f} MiB"
    return Result(
        not wrong and bool(ends), f"{sum(ends.values()):,} {what}", wrong[0][-300:] if wrong else shown, found
    )


def prove_folders(place: Place) -> Result:
    """Random damage."""
    options = {"model": str(place.model), "cases": place.times(500, 10), "number": place.seed}
    return verdict(sandboxed("benchmarks.prove.fuzz_models:folders", **options), "model folders")


def prove_attacks(place: Place) -> Result:
    """Tricks that are known."""
    return verdict(sandboxed("benchmarks.prove.fuzz_models:attacks", model=str(place.model)), "attacks")
