"""Predictions of long tables on the nodes of a Ray cluster, by Ray Data with a pool of actors."""

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.cluster.connection import connect, disconnect, import_data, import_ray
from ddpn.executors import JobError
from ddpn.executors.job import RETRIES
from ddpn.predictions.request import Request
from ddpn.runtime.errors import ConfigError, DDPNError, InputError
from ddpn.runtime.threads import limit_threads
from ddpn.runtime.validation import check_integer
from ddpn.workflow.block_work import BlocksHere, Predicted
from ddpn.workflow.model_folder import load, roles_of_model
from ddpn.workflow.reading import STDIN
from ddpn.workflow.streaming import predict_to
from ddpn.workflow.table_blocks import Extent
from ddpn.workflow.tables import Place, Tables
from ddpn.workflow.writing import check_output

#: What is sent to each actor: files of the model, roles of columns, tables with their sizes, request and target.
_Work = tuple[dict[str, bytes], dict[str, str | None], Tables, list[int], Request, str]
#: Blocks that are a task of Ray together, at most, and tasks of an actor, at least: each task takes the program that
#: controls the cluster some milliseconds, and what is lost with a worker is a task.
_TOGETHER, _TASKS = 16, 4


class RayBlocks:
    """Blocks of tables, checked and predicted by actors of one core each; `ddpn.workflow.block_work.Blocks`.

    An actor loads the model once and reads the blocks from the files themselves, which all nodes must see. What comes
    back is in order. A block whose worker or node dies is repeated elsewhere.

    Parameters
    ----------
    model : Path
        The folder of the model, which is sent to the nodes.
    columns : mapping
        Columns with other roles than in the fit, as for `ddpn.workflow.model_folder.load`.
    tables : Tables
        The tables.
    request : Request
        Which columns to predict.
    target : str
        The file that parts are made for.
    address : str
        As for `RayExecutor`.
    actors : int, optional
        Actors at most. Default: one per core of the cluster.
    """

    def __init__(
        self,
        model: Path,
        columns: Mapping[str, str | None],
        tables: Tables,
        request: Request,
        target: str,
        address: str = "auto",
        actors: int | None = None,
    ) -> None:
        self._most = None if actors is None else check_integer("actors", actors, minimum=1)
        if STDIN in (target, *tables.sources):
            raise ConfigError("A cluster reads and writes files, got standard input or output. Name files.")
        files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
        sizes = [os.path.getsize(source) for source in tables.sources]
        self._work: _Work = (files, dict(columns), tables, sizes, request, target)
        self._ray, self._connected = import_ray(), connect(address)

    def predict(self, places: Sequence[Place], done: Callable[[int], None] = lambda rows: None) -> Iterator[Predicted]:
        """Check all blocks on the nodes, then predict them; they come in order."""
        # One stream of work: actors go on to predict while the last blocks are checked, and nothing is written before.
        for row in self._mapped([*((place, True) for place in places), *((place, False) for place in places)]):
            if row["about"]:
                about = json.loads(row["about"])
                done(row["rows"])
                yield Predicted(row["content"], row["rows"], about["columns"], about["findings"])

    def _mapped(self, work: Sequence[tuple[Place, bool]]) -> Iterator[dict[str, Any]]:
        """A row of results per block and task."""
        data = import_data()
        try:
            for row in self._rows(data, work) if work else ():
                if row["error"]:
                    raise (InputError if row["is_input"] else ConfigError)(row["error"])
                yield row
        except (self._ray.exceptions.RayError, data.exceptions.UserCodeException) as error:
            reason = (str(error).strip().splitlines() or ["no message"])[-1].rstrip(".")
            raise JobError(f"Blocks of rows could not be predicted on the cluster: {reason}.") from error

    def _rows(self, data: Any, work: Sequence[tuple[Place, bool]]) -> Iterator[dict[str, Any]]:
        """The results as Ray Data returns them, in the order of the work."""
        items = [{"table": place.table, **place.extent._asdict(), "check": check} for place, check in work]
        slots = self._most or max(1, int(self._ray.cluster_resources().get("CPU", 0.0)))
        together = max(1, min(_TOGETHER, len(items) // (_TASKS * slots)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the inner workings of Ray
            tasks = -(-len(items) // together)
            found = data.from_items(items, override_num_blocks=tasks).map_batches(
                _Actor,
                batch_size=None,
                compute=data.ActorPoolStrategy(size=min(slots, tasks)),
                fn_constructor_args=self._work,
                num_cpus=1,
                max_restarts=-1,
                max_task_retries=RETRIES,
            )
            # The dataset has a context of its own, a copy of that of this process.
            found.context.enable_progress_bars, found.context.execution_options.preserve_order = False, True
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            return iter(found.iter_rows())

    def close(self) -> None:
        """Disconnect, if it was this object that connected."""
        if self._connected:
            self._connected = False
            disconnect()


class _Actor:
    """What a worker runs: the model is loaded once."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        columns: Mapping[str, str | None],
        tables: Tables,
        sizes: Sequence[int],
        request: Request,
        target: str,
    ) -> None:
        limit_threads(1)
        self._tables, self._sizes = tables, sizes
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            loaded = load(Path(folder), mixed_only=request.member is None, **columns)
            self._blocks = BlocksHere(loaded, tables, request, target)

    def __call__(self, batch: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
        """A result at a time: a worker holds one block of predictions, however many it is sent at once."""
        names = ("table", *Extent._fields, "check")
        for each in zip(*(batch[name].tolist() for name in names), strict=True):
            yield {name: [value] for name, value in self._guarded(*each).items()}

    def _guarded(self, number: int, begin: int, end: int, start: int, rows: int, check: bool) -> dict[str, Any]:
        """The result of a block, or its error: as a value, since Ray would repeat what raises."""
        found = {"error": "", "is_input": False, "content": b"", "rows": 0, "about": ""}
        try:
            return found | self._result(Place(number, Extent(begin, end, start, rows)), check)
        except DDPNError as error:
            return found | {"error": str(error), "is_input": isinstance(error, InputError)}

    def _result(self, place: Place, check: bool) -> dict[str, Any]:
        path = self._tables.paths[place.table]
        if not os.path.isfile(path):
            how = "Put tables into a folder that all nodes see under the same path"
            raise ConfigError(f"A node of the cluster cannot read {path}. {how}.")
        if os.path.getsize(path) != self._sizes[place.table]:
            raise ConfigError(f"{path} has another size on a node: it was changed, or nodes see different files.")
        if check:
            self._blocks.check(place)
            return {}
        one = self._blocks.predict_one(place)
        about = json.dumps({"columns": one.columns, "findings": one.findings})
        return {"content": one.content, "rows": one.rows, "about": about}


def predict_on_ray(
    model: str | PathLike[str],
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    address: str = "auto",
    actors: int | None = None,
    request: Request | None = None,
    exposure: str | None = None,
    upper: str | None = None,
    overwrite: bool = False,
    done: Callable[[int], None] = lambda rows: None,
    on_finding: Callable[[str], None] = lambda sentence: None,
) -> int:
    """Predict tables on a Ray cluster, as `ddpn predict --cluster` does: the rows and values of a run in one process.

    Blocks of about 32,768 rows are predicted by Ray Data with one actor per core, each of which loads the model once,
    and are written in order as parts beside the output. A program that is killed and started again continues with the
    parts that are done, also without a cluster.

    Parameters
    ----------
    model : path
        The folder of the model.
    data : path or sequence of paths
        Tables: files, folders or patterns such as data/*.parquet, which all nodes can read.
    out : path
        The file to write, by its ending.
    address : str
        As for `RayExecutor`.
    actors : int, optional
        Actors at most. Default: one per core of the cluster.
    request : Request, optional
        Which columns to predict (`ddpn.predictions.request.Request`).
    exposure, upper : str, optional
        Columns with these roles. Default: as in the fit.
    overwrite : bool
        Whether to replace an existing output.
    done, on_finding : callable
        Called with the number of rows of each block, and with every sentence about unusual rows.

    Returns
    -------
    int
        The number of rows.
    """
    folder, target, request = Path(model), os.fspath(out), request or Request()
    sources = [os.fspath(data)] if isinstance(data, str | PathLike) else [os.fspath(each) for each in data]
    for source in sources:
        check_output(target, overwrite, source)
    columns = {"exposure": exposure, "upper": upper}
    roles = roles_of_model(folder, **columns)
    tables = Tables(sources, roles.as_text)
    tables.check(roles)
    blocks = RayBlocks(folder, columns, tables, request, target, address, actors)
    try:
        loaded = load(folder, mixed_only=request.member is None, **columns)
        return predict_to(loaded, folder, tables, request, target, done, on_finding, blocks)
    finally:
        blocks.close()
