"""Predict tables of any length and write the predictions to a file, with limited memory, locally or on a cluster.

A long table is divided into blocks of rows. Each block is predicted by a job (`ddpn.runtime.jobs`), whose result is one
part of the output. Finished parts are kept in the folder TARGET.parts until all are done. So a run that was killed can
continue, and writes the same file. Importing this module imports no torch.
"""

import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import polars as pl

from ddpn.prediction.spec import PredictionSpec
from ddpn.rows.count_rows import BLOCK
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.jobs import Job, Workers, run
from ddpn.runtime.progress import progress_bar
from ddpn.storage.files import atomic_path, folder_lock, hash_file
from ddpn.storage.model_files import MANIFEST
from ddpn.storage.results import ResultStore
from ddpn.tables import blocks as table_blocks
from ddpn.tables.blocks import Block
from ddpn.tables.files import BINARY, STDIN, TEXT, check_output, get_extension, write_file
from ddpn.tables.layout import WHOLE_FILE, Layout
from ddpn.tables.roles import Roles
from ddpn.tables.table import Table
from ddpn.workflow.model_folder import SavedModel

if TYPE_CHECKING:
    from ddpn.predictor import Predictor
    from ddpn.workflow.prediction import Findings

#: The number of jobs that are submitted together. Whenever one ends, Ray looks through all submitted jobs.
_SUBMITTED_JOBS = 1000


def predict_files(
    model: str | PathLike[str],
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    spec: PredictionSpec | None = None,
    exposure: str | None = None,
    upper: str | None = None,
    layout: Layout = WHOLE_FILE,
    overwrite: bool = False,
    verbose: bool = False,
    on_finding: Callable[[str], None] = lambda sentence: None,
    n_jobs: Workers = None,
) -> int:
    """Predict every row of one or several tables and write the predictions to a file, like `ddpn predict`.

    All rows of a long table are checked before the first is predicted, so that no output is written for an invalid
    table. The predictions of a long table are stored block by block in the folder `out`.parts. If the call is
    interrupted, the same call continues from there. When the output is complete, the folder is deleted.

    Parameters
    ----------
    model : path
        The folder of the model.
    data : path or sequence of paths
        Files, folders or patterns such as data/*.parquet. "-" means CSV from standard input.
    out : path
        The file to write, whose extension determines the format. "-" means CSV on standard output.
    spec : PredictionSpec, optional
        The columns of the predictions.
    exposure, upper : str, optional
        The columns with the exposure and with the upper bound of each row. Default: as in the fit.
    layout : Layout
        The sheet of a workbook, and the number of rows above the header. Default: the first sheet, whose first row is
        the header.
    overwrite : bool
        Whether to replace an existing output.
    verbose : bool
        Show progress.
    on_finding : callable
        Called with each sentence about unusual cells and flagged rows.
    n_jobs : int or RayCluster, optional
        The number of processes, or the cluster, that predict blocks of rows. -1 means one process per core. The nodes
        of a cluster receive the model, but must see the tables under the same paths. Default: this process.

    Returns
    -------
    int
        The number of rows that were predicted.

    Raises
    ------
    InputError
        If the output exists and `overwrite` is False, or if a row or a column of the tables is invalid.
    """
    path, target = Path(model), os.fspath(out)
    sources = [os.fspath(source) for source in ([data] if isinstance(data, str | PathLike) else data)]
    for source in sources:
        check_output(target, overwrite, source)
    saved = SavedModel(path, exposure=exposure, upper=upper)
    about = saved.describe()
    spec = (spec or PredictionSpec()).for_model(about["members"], about["ood"])
    table = Table(sources, saved.roles.as_text, layout)
    table.check_columns(saved.roles)
    if isinstance(n_jobs, RayCluster):
        if STDIN in (target, *table.sources):
            raise ConfigError(
                "A cluster cannot use standard input or output. Give file names for the tables and for the predictions."
            )
        n_jobs.connect()
    from ddpn.workflow.prediction import Findings, check_spec  # imports torch, so invalid tables are reported first

    predictor, roles = saved.load_predictor(mixed_only=spec.member is None), table.find_date_formats(saved.roles)
    spec = check_spec(predictor, spec)
    findings = Findings(predictor, spec)
    with progress_bar("Predicting", table.rows, verbose) as bar:
        if target == STDIN or not table.is_long:
            rows = _predict_in_memory(predictor, roles, table, spec, target, bar.advance, findings)
        else:
            identity = {
                "model": hash_file(path / MANIFEST),
                "tables": table.describe_files(),
                "spec": asdict(spec),
                "roles": saved.roles.as_dict(),
                "rows": [table_blocks.BLOCK_ROWS, BLOCK],
            }
            parts = ResultStore(f"{target}.parts", identity)
            sizes = [0 if source == STDIN else os.path.getsize(source) for source in table.sources]
            with folder_lock(parts.folder):
                shared = _SharedInputs(predictor, roles, table, sizes, spec, target)
                _predict_missing_parts(parts, shared, n_jobs, bar.advance)
                rows = _join_parts(parts, table.list_blocks(), Path(target), findings)
    for sentence in findings.to_sentences():
        on_finding(sentence)
    if "calibration" in about["task"].get("missing", ()):
        on_finding("Intervals are not calibrated, because the fit was stopped by Ctrl-C.")
    return rows


def _predict_in_memory(
    predictor: "Predictor",
    roles: Roles,
    table: Table,
    spec: PredictionSpec,
    target: str,
    on_predicted: Callable[[int], None],
    findings: "Findings",
) -> int:
    """Predict a table in this process, write the predictions to `target`, and return the number of rows.

    A short table is predicted in one block. A long table is predicted here only if `target` is standard output: all its
    rows are checked, and then it is predicted block by block. `on_predicted` is called with the number of rows of each
    predicted block.
    """
    from ddpn.workflow.prediction import predict_block

    rows, blocks = 0, table.list_blocks()
    if table.is_long:
        for block in blocks:
            table.check_rows(roles, block)
    for block in blocks:
        frame = table.read_block(block)
        with table.locate_errors(block):
            predictions = predict_block(predictor, roles, frame, spec, findings, block.rows_before_in_file)
        if target == STDIN:
            sys.stdout.write(predictions.write_csv(include_header=rows == 0))
        else:
            write_file(predictions, target)
        rows += predictions.height
        on_predicted(predictions.height)
    return rows


class _SharedInputs(NamedTuple):
    """The inputs that all jobs of one call of `predict_files` share. Each node of a cluster receives a copy.

    `predictor` is the model, and `roles` says how it uses the columns of the table. `spec` says which columns are
    predicted, and `target` is the path of the output. `sizes` are the sizes in bytes of the table's files on this
    machine. If a file has another size on a node, it is a different file there.
    """

    predictor: "Predictor"
    roles: Roles
    table: Table
    sizes: list[int]
    spec: PredictionSpec
    target: str

    def check(self, block: Block) -> None:
        """Raise an error if this machine cannot read the file of a block, or if the file has a different size here."""
        path, size = self.table.paths[block.file], self.sizes[block.file]
        if size and not os.path.isfile(path):
            how = "Put tables into a folder that all nodes see under the same path"
            raise ConfigError(f"A node of the cluster cannot read {path}. {how}.")
        if size and os.path.getsize(path) != size:
            raise ConfigError(
                f"{path} differs in size between this machine and a node of the cluster. It changed during the run, or "
                "the path is a different file there. Use a shared folder."
            )


def _check_job(shared: _SharedInputs, block: Block) -> dict[str, bytes]:
    shared.check(block)
    shared.table.check_rows(shared.roles, block)
    return {}


def _predict_job(shared: _SharedInputs, block: Block) -> dict[str, bytes]:
    """Predict one block of a table, and return two files: byte strings by name (see `ddpn.runtime.jobs`).

    - "content": the output for the rows of the block
    - "facts": the number of rows, the column names and the `Findings`, as JSON
    """
    from ddpn.workflow.prediction import Findings, predict_block

    shared.check(block)
    findings, frame = Findings(shared.predictor, shared.spec), shared.table.read_block(block)
    with shared.table.locate_errors(block):
        predictions = predict_block(
            shared.predictor, shared.roles, frame, shared.spec, findings, block.rows_before_in_file, findings.add_note
        )
    content, kind = io.BytesIO(), get_extension(shared.target, to_write=True)
    if kind in TEXT:
        predictions.write_csv(content, include_header=False, separator=TEXT[kind] or ",")
    else:
        predictions.write_parquet(content)
    facts = {"rows": predictions.height, "columns": predictions.columns, "findings": findings.as_dict()}
    return {"content": content.getvalue(), "facts": json.dumps(facts).encode()}


def _predict_missing_parts(
    parts: ResultStore, shared: _SharedInputs, n_jobs: Workers, on_predicted: Callable[[int], None]
) -> None:
    """Predict the blocks of a table whose part of the output is not yet stored in `parts`, and store these parts.

    A part is the output for one block of rows. All blocks without a part are checked before the first is predicted.
    `on_predicted` is called with the number of rows of each block: first for blocks that were predicted before, then
    for every block when it is predicted. `n_jobs` is the number of processes (None: this process; -1: one per core) or
    a cluster.
    """
    missing = list[Block]()
    for block in shared.table.list_blocks():
        if (stored := parts.read(block)) is None:
            missing.append(block)
        else:
            on_predicted(json.loads(stored["facts"])["rows"])
    for name, job, store in (("checking", _check_job, None), ("predicting", _predict_job, parts)):
        for start in range(0, len(missing), _SUBMITTED_JOBS):
            some = missing[start : start + _SUBMITTED_JOBS]
            jobs = [Job(f"{name} rows from {block.rows_before + 1:,} on", job, (block,), block) for block in some]
            for result in run(jobs, shared, n_jobs, store):
                if facts := result.get().get("facts"):
                    on_predicted(json.loads(facts)["rows"])


def _join_parts(parts: ResultStore, blocks: Sequence[Block], target: Path, findings: "Findings") -> int:
    """Join the stored parts to the output file, delete the parts, and return the number of rows.

    The file is written completely or not at all. `blocks` are the blocks of the table, in order; each has one part. The
    findings of all parts are added to `findings`.
    """
    rows, columns, files = 0, list[str](), list[Path]()
    for block in blocks:
        paths = parts.paths(block)
        facts = json.loads(paths["facts"].read_bytes())
        findings.merge(facts["findings"])
        rows, columns = rows + facts["rows"], facts["columns"]
        files.append(paths["content"])
    kind = get_extension(str(target), to_write=True)
    with atomic_path(target) as draft:
        if kind in TEXT:
            header = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
            with ExitStack() as opened:
                out: BinaryIO | gzip.GzipFile = opened.enter_context(open(draft, "wb"))
                if target.name.lower().endswith(".gz"):
                    # Without a time stamp, so that equal predictions give equal files.
                    out = opened.enter_context(gzip.GzipFile("", "wb", fileobj=out, mtime=0))
                out.write(header.write_csv(separator=TEXT[kind] or ",").encode())
                for path in files:
                    with open(path, "rb") as part:
                        shutil.copyfileobj(part, out, 2**20)
        else:
            table = pl.scan_parquet(files, glob=False)
            is_parquet = BINARY[kind] == "read_parquet"
            (table.sink_parquet if is_parquet else table.sink_ipc)(draft, maintain_order=True)
    shutil.rmtree(parts.folder)
    return rows
