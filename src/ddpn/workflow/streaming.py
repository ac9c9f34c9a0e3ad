"""Predict tables of any length from files to a file, in order and at constant memory."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from ddpn.runtime.errors import InputError
from ddpn.storage.files import sha256_of_file
from ddpn.storage.model_files import MANIFEST
from ddpn.tables import table_blocks
from ddpn.tables.reading import STDIN
from ddpn.tables.tables import Tables
from ddpn.tables.writing import write
from ddpn.workflow import prediction
from ddpn.workflow.block_work import Blocks, BlocksHere
from ddpn.workflow.findings import Findings
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.parts import Parts
from ddpn.workflow.prediction_request import Request

#: Of the entries in the manifest.
_FORMAT = 2


def predict_to(
    folder: ModelFolder,
    model: Path,
    tables: Tables,
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
    tables : Tables
        The tables.
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
    if elsewhere is None and (target == STDIN or not tables.is_long):
        rows = _at_once(folder, tables, request, target, done, findings)
    else:
        blocks = elsewhere or BlocksHere(folder, tables, request, target)
        identity = {
            "format": _FORMAT,
            "ddpn": version("ddpn"),
            "model": sha256_of_file(model / MANIFEST),
            "tables": tables.identity(),
            "request": asdict(request),
            "roles": folder.roles.as_dict(),
            "rows": [table_blocks.ROWS, prediction.BLOCK],
            "target": Path(target).name,
        }
        with Parts(Path(target), identity).opened() as parts:
            rows = _in_parts(parts, blocks, tables, done, findings)
    for sentence in findings.sentences():
        on_finding(sentence)
    return rows


def _at_once(
    folder: ModelFolder,
    tables: Tables,
    request: Request,
    target: str,
    done: Callable[[int], None],
    findings: Findings,
) -> int:
    """A short table in one piece; a long one to standard output block by block, after all of its rows are checked."""
    rows, places = 0, tables.places()
    if tables.is_long:
        for place in places:
            tables.check_rows(folder.roles, place)
    for place in places:
        block = tables.block(place)
        with tables.named(place.table):
            found = prediction.predict_block(folder, block.frame, request, findings, done, block.start)
        if target == STDIN:
            sys.stdout.write(found.write_csv(include_header=rows == 0))
        else:
            write(found, target)
        rows += found.height
    return rows


def _in_parts(parts: Parts, blocks: Blocks, tables: Tables, done: Callable[[int], None], findings: Findings) -> int:
    """A part per block; those of an earlier run are kept."""
    for each in parts.done:
        findings.merge(each["findings"])
    if parts.done:
        done(sum(each["rows"] for each in parts.done))
    places = tables.places()[len(parts.done) :]
    try:
        for found in blocks.predict(places, done):
            findings.merge(found.findings)
            parts.add(found.content, found.rows, found.columns, findings=found.findings)
    except InputError:
        if not parts.done:
            parts.discard()
        raise
    return parts.join()
