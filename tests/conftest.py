"""Share small data with a known distribution, small models, and programs to start."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from xml.sax.saxutils import escape, quoteattr

import pytest

# Imports are within the fixtures: pytest-xdist's own process reads this file too, and runs no test.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ddpn import DDPNRegressor

#: The results of `make prove`, and the page that shows them between two marks.
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "reliability.json"
PAGE, BEGIN, END = (
    RESULTS.parents[2] / "docs" / "reliability.md",
    "<!-- results of make prove -->",
    "<!-- end of results -->",
)
#: Two small networks with one encoding.
SMALL = {"n_networks": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "random_state": 0, "device": "cpu"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that start programs or a cluster after the others, and doctests, which may register things, at the
    end.

    A process that was the driver of a Ray cluster has threads, which tests that fork must not inherit.
    """
    items.sort(key=lambda item: 2 if item.nodeid.startswith("src") else int(bool(item.get_closest_marker("last"))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", action="store_true", help="write what tests with the mark proof found to the page")


@pytest.fixture
def record_proof(record_property) -> Callable[[str, str], None]:
    """Record how often the claim of a test was tried, and what was found, for the table of `make prove`."""

    def keep(tried: str, result: str) -> None:
        record_property("tried", tried)
        record_property("found", result)

    return keep


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Record the claim of a test."""
    report = yield
    if proof := item.get_closest_marker("proof"):
        report.user_properties += [("kind", proof.args[0]), ("claim", proof.args[1])]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the table of all proofs; with -k, rows of tests that did not run stay."""
    if not config.getoption("--table"):
        return
    results = json.loads(RESULTS.read_text()) if config.getoption("keyword") else {}
    today, load = datetime.now(UTC).date().isoformat(), f"{os.getloadavg()[0]:.1f}"
    for outcome, held in (("passed", "yes"), ("failed", "**no**"), ("error", "**no**"), ("skipped", "not tried")):
        for report in terminalreporter.stats.get(outcome, []):
            if not isinstance(report, pytest.TestReport):
                continue  # a file that was not collected
            reason = report.longrepr[-1] if held == "not tried" else str(report.longrepr)[-300:]
            facts = {"tried": "not tried", "found": reason} | dict(report.user_properties)
            if "claim" in facts:
                minutes = f"{report.duration / 60.0:.1f}"
                results[report.nodeid] = facts | {"held": held, "minutes": minutes, "date": today, "load": load}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    columns = ("kind", "claim", "tried", "held", "found", "minutes", "load", "date")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in results.values():
        cells = (" ".join(row[name].replace("|", "/").replace("<", "&lt;").split()) for name in columns)
        lines.append(f"| {' | '.join(cells)} |")
    before, _, tail = PAGE.read_text().partition(BEGIN)
    PAGE.write_text("\n\n".join([before + BEGIN, "\n".join(lines), END + tail.partition(END)[2]]))


@pytest.fixture(scope="session")
def scoringrules() -> Any:
    """The package of scores with its formulas in numpy, as those for numba compile for seconds at every import."""
    with patch.dict(sys.modules, {"numba": None}):
        import scoringrules

    return scoringrules


@pytest.fixture(scope="session")
def quick() -> Callable[..., DDPNRegressor]:
    """Make an ensemble of the default networks that is trained in a twentieth of a second."""
    from ddpn import DDPNRegressor

    return lambda **options: DDPNRegressor(**SMALL | {"preset": "default", "likelihood": "mixed"} | options)


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
def small_ensemble(quick, counts) -> DDPNRegressor:
    """An ensemble for tests that only predict with it."""
    return quick(n_networks=3, epochs=40).fit(*counts)


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
        manifest_content = json.loads((folder / "model.json").read_text()) | manifest
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
            manifest_content["files"][name] = sha256(content)
        manifest_content["checksum"] = _checksum(manifest_content)
        (folder / "model.json").write_text(json.dumps(manifest_content))

    return change


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Program(subprocess.Popen):
    """A process that prints to the files `out` and `err`."""

    def __init__(
        self, command: list[str], output_folder: Path, folder: Path | None, environment: dict[str, str]
    ) -> None:
        self.out, self.err = output_folder / "out", output_folder / "err"
        with open(self.out, "w") as out, open(self.err, "w") as err:
            super().__init__(command, cwd=folder or output_folder, env=os.environ | environment, stdout=out, stderr=err)


@pytest.fixture(scope="session")
def python(tmp_path_factory) -> Iterator[Callable[..., Program]]:
    """Start Python with these words; kill what still runs at the end."""
    started = []

    def start(*words: str, folder: Path | None = None, **environment: str) -> Program:
        command = [sys.executable, *words]
        started.append(Program(command, tmp_path_factory.mktemp("process"), folder, environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def program(python) -> Callable[..., Program]:
    """Start the program `ddpn` with these words."""
    return lambda *words, **options: python("-m", "ddpn.cli", *words, **options)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium here: install the package chromium")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=path) as browser:
        yield browser


# Excel workbooks, written with the standard library: truth for what is read from them --------------------------------

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def _write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]]) -> None:
    """Write rows of numbers, texts and None (an empty cell) to sheets by their names."""
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        + "".join(f'<Override PartName="/xl/{i}.xml" ContentType="{_TYPE}.worksheet+xml"/>' for i in numbers)
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="r" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(f'<sheet name={quoteattr(name)} sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        + "".join(f'<Relationship Id="r{i}" Type="{_OFFICE}/worksheet" Target="{i}.xml"/>' for i in numbers)
        + "</Relationships>",
    }
    for i, rows in enumerate(sheets.values(), 1):
        cells = ("".join(map(_format_cell, "ABCDEFGH", [row] * len(cells), cells)) for row, cells in enumerate(rows, 1))
        lines = "".join(f'<row r="{row}">{line}</row>' for row, line in enumerate(cells, 1))
        parts[f"xl/{i}.xml"] = f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')


def _format_cell(column: str, row: int, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'<c r="{column}{row}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f'<c r="{column}{row}"><v>{value}</v></c>'


@pytest.fixture
def write_workbook() -> Callable[[Path, Mapping[str, Sequence[Sequence[object]]]], None]:
    """Writes a workbook from rows of numbers, texts and None by the names of its sheets."""
    return _write_workbook
