"""Predict tables of any length from files to a file, in order and at constant memory."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ddpn.runtime.errors import InputError
from ddpn.storage.files import sha256_of_file
from ddpn.storage.model_files import MANIFEST
from ddpn.tables import table as table_module
from ddpn.tables.reading import STDIN
from ddpn.tables.table import Place, Table
from ddpn.tables.writing import write
from ddpn.workflow import prediction
from ddpn.workflow.findings import Findings
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.parts import OutputParts, part_content
from ddpn.workflow.prediction_request import Request

#: Of the entries in the manifest.
_FORMAT = 2


class Predicted(NamedTuple):
    """The predictions of a block as a part of the output, and what is unusual about its rows."""

    content: bytes
    rows: int
    columns: list[str]
    findings: dict[str, Any]


class Blocks(Protocol):
    """Where blocks are checked and predicted."""

    def predict(self, places: Sequence[Place], done: Callable[[int], None]) -> Iterator[Predicted]:
        """Check all blocks, with an `InputError` for rows that cannot be read or predicted, then predict them in order.

        `done` is called with numbers of rows.
        """
        ...


class BlocksHere:
    """Blocks in this process, one after the other.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    table : Table
        The table.
    request : Request
        Which columns to predict.
    target : str
        The file that parts are made for.
    """

    def __init__(self, folder: ModelFolder, table: Table, request: Request, target: str) -> None:
        self._folder, self._table, self._request, self._target = folder, table, request, target
        self._roles = folder.roles

    def predict(self, places: Sequence[Place], done: Callable[[int], None] = lambda rows: None) -> Iterator[Predicted]:
        """Check all blocks, then predict them."""
        for place in places:
            self.check(place)
        for place in places:
            yield self.predict_one(place, done)

    def check(self, place: Place) -> None:
        """Read and check a block."""
        self._table.check_rows(self._roles, place)

    def predict_one(self, place: Place, done: Callable[[int], None] = lambda rows: None) -> Predicted:
        """Predict a block."""
        findings = Findings(self._folder.model.predictor_, self._request)
        frame = self._table.block(place)
        with self._table.named(place):
            found = prediction.predict_block(
                self._folder, frame, self._request, findings, done, place.start, findings.note
            )
        return Predicted(part_content(found, self._target), found.height, found.columns, findings.as_dict())


def predict_to(
    folder: ModelFolder,
    model: Path,
    table: Table,
    request: Request,
    target: str,
    done: Callable[[int], None] = lambda rows: None,
    on_finding: Callable[[str], None] = lambda sentence: None,
    elsewhere: Blocks | None = None,
) -> int:
    """Predict every row of tables and write the predictions to a file.

    A long table is predicted in parts, which are kept in the folder TARGET.parts until all are done: a run that was
    killed continues where it was, and gives the same file. All rows of a long table are checked before the first is
    predicted, so that an error in a table leaves nothing.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    model : Path
        The folder that it was loaded from.
    table : Table
        The table.
    request : Request
        Which columns to predict.
    target : str
        The file to write, by its ending; "-" is CSV on standard output.
    done : callable
        Called with the number of rows of each block.
    on_finding : callable
        Called with every sentence about unusual rows.
    elsewhere : Blocks, optional
        Where blocks are predicted, in parts of the target. Default: in this process.

    Returns
    -------
    int
        The number of rows.
    """
    findings = Findings(folder.model.predictor_, request)
    prediction.check_request(folder.model.predictor_, request)
    if elsewhere is None and (target == STDIN or not table.is_long):
        rows = _at_once(folder, table, request, target, done, findings)
    else:
        blocks = elsewhere or BlocksHere(folder, table, request, target)
        identity = {
            "format": _FORMAT,
            "ddpn": version("ddpn"),
            "model": sha256_of_file(model / MANIFEST),
            "tables": table.identity(),
            "request": asdict(request),
            "roles": folder.roles.as_dict(),
            "rows": [table_module.ROWS, prediction.BLOCK],
            "target": Path(target).name,
        }
        with OutputParts(Path(target), identity).opened() as parts:
            rows = _in_parts(parts, blocks, table, done, findings)
    for sentence in findings.sentences():
        on_finding(sentence)
    return rows


def _at_once(
    folder: ModelFolder,
    table: Table,
    request: Request,
    target: str,
    done: Callable[[int], None],
    findings: Findings,
) -> int:
    """A short table in one piece; a long one to standard output block by block, after all of its rows are checked."""
    rows, places = 0, table.places()
    if table.is_long:
        for place in places:
            table.check_rows(folder.roles, place)
    for place in places:
        frame = table.block(place)
        with table.named(place):
            found = prediction.predict_block(folder, frame, request, findings, done, place.start)
        if target == STDIN:
            sys.stdout.write(found.write_csv(include_header=rows == 0))
        else:
            write(found, target)
        rows += found.height
    return rows


def _in_parts(parts: OutputParts, blocks: Blocks, table: Table, done: Callable[[int], None], findings: Findings) -> int:
    """A part per block; those of an earlier run are kept."""
    for each in parts.done:
        findings.merge(each["findings"])
    if parts.done:
        done(sum(each["rows"] for each in parts.done))
    places = table.places()[len(parts.done) :]
    try:
        for found in blocks.predict(places, done):
            findings.merge(found.findings)
            parts.add(found.content, found.rows, found.columns, findings=found.findings)
    except InputError:
        if not parts.done:
            parts.discard()
        raise
    return parts.join()
