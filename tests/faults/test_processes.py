"""Processes that are killed, disks that are full, models that are replaced while they are read."""

import os
import shutil
import subprocess
import sys

import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.model_files import read_manifest, read_unchanged


def test_a_killed_command_can_be_given_again(place):
    """Two kills: at a file operation, with an older result in place, and at a random moment."""
    from benchmarks.prove.kills import kill

    result = kill("export", workers=1)(place)
    assert result.held, result.found
    assert result.tried == "2 kills"


#: Saves a model over the one in the working directory, on a disk that takes so many bytes per file.
FULL = """
import resource, signal, sys
from pathlib import Path
from ddpn.cli.console import friendly_errors
from ddpn.storage.model_files import read_files, read_manifest, write_model
manifest = read_manifest(Path("m"))
files = read_files(Path("m"), manifest)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with friendly_errors(""):
    write_model(Path("m"), files, {**manifest, "new": True}, overwrite=True)
"""


def test_a_full_disk_leaves_the_old_model(place, tmp_path):
    shutil.copytree(place.model, tmp_path / "m")
    before = read_manifest(tmp_path / "m")
    done = subprocess.run([sys.executable, "-c", FULL], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "File too large" in done.stderr
    assert read_manifest(tmp_path / "m") == before
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_that_is_replaced_meanwhile_is_read_again(place, tmp_path):
    from benchmarks.prove.fuzz_models import rewritten

    shutil.copytree(place.model, tmp_path / "m")
    seen = []

    def read():
        seen.append(read_manifest(tmp_path / "m")["checksum"])
        if len(seen) < 3:
            rewritten(tmp_path / "m", {"task.json": b'{"number": %d}' % len(seen)})
        if len(seen) == 2:
            raise InputError("task.json was truncated or changed")
        return seen[-1]

    assert read_unchanged(tmp_path / "m", read) == read_manifest(tmp_path / "m")["checksum"]
    assert len(set(seen)) == 3
    with pytest.raises(InputError, match="its own error"):
        read_unchanged(tmp_path / "m", lambda: (_ for _ in ()).throw(InputError("its own error")))


def test_results_are_stored_and_shown(place, tmp_path):
    from benchmarks.prove import page
    from benchmarks.prove.__main__ import proved, stored
    from benchmarks.prove.proof import Proof, Result

    good = Proof("good", "Faults", "it holds", lambda place: Result(True, "1 trial", "fine"))
    bad = Proof("bad", "Faults", "it breaks", lambda place: 1 / 0)
    about = {"source": "x", "seed": 0, "share": 1.0, "machine": "2 cores", "load": 0.5, "date": "2026-01-01"}
    results = stored(tmp_path / "none.json", about, fresh=False)
    results["proofs"] |= {proof.name: proved(proof, place) for proof in (good, bad)}
    (tmp_path / "page.md").write_text(f"# Title\n\n{page.BEGIN}\nstale\n{page.END}\n\nlast\n")
    page.write(tmp_path / "page.md", results, (good, bad))
    text = (tmp_path / "page.md").read_text()
    assert "| Faults | it holds | 1 trial | yes | fine |" in text
    assert "| Faults | it breaks | not finished | **no** | ZeroDivisionError: division by zero |" in text
    assert "stale" not in text
    assert text.endswith("\n\nlast\n")
