"""Predictions of long tables on the nodes of a Ray cluster, by Ray Data with an actor per core."""

import logging
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.runtime.cluster import RayCluster, import_ray
from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.runtime.jobs import JobError
from ddpn.runtime.threads import limit_threads
from ddpn.tables.reading import STDIN
from ddpn.tables.table import Place, Table
from ddpn.tables.writing import check_output
from ddpn.workflow.model_folder import load, roles_of_model
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.streaming import BlocksHere, Predicted, predict_to

#: Blocks that are a task of Ray together, at most, and tasks of an actor, at least: each task takes the program that
#: controls the cluster some milliseconds, and what is lost with a worker is a task.
_TOGETHER, _TASKS = 16, 4


class ClusterBlocks:
    """Blocks of tables, checked and predicted by actors of one core each; `ddpn.workflow.streaming.Blocks`.

    An actor loads the model once and reads the blocks from the files themselves, which all nodes must see. What comes
    back is in order. Ray repeats a block whose worker or node dies.

    Parameters
    ----------
    cluster : RayCluster
        Where.
    model : Path
        The folder of the model, which is sent to the nodes.
    columns : mapping
        Columns with other roles than in the fit, as for `ddpn.workflow.model_folder.load`.
    tables : Table
        The table.
    request : Request
        Which columns to predict.
    target : str
        The file that parts are made for.
    """

    def __init__(
        self,
        cluster: RayCluster,
        model: Path,
        columns: Mapping[str, str | None],
        tables: Table,
        request: Request,
        target: str,
    ) -> None:
        if STDIN in (target, *tables.sources):
            raise ConfigError("A cluster reads and writes files, got standard input or output. Name files.")
        cluster.connect()
        files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
        sizes = [os.path.getsize(source) for source in tables.sources]
        self._cluster, self._work = cluster, (files, dict(columns), tables, sizes, request, target)

    def predict(self, places: Sequence[Place], done: Callable[[int], None] = lambda rows: None) -> Iterator[Predicted]:
        """Check all blocks on the nodes, then predict them; they come in order."""
        ray = import_ray()
        errors = (ray.exceptions.RayError, import_ray("ray.data.exceptions").UserCodeException)
        try:
            for row in self._rows(places) if places else ():
                found = pickle.loads(row["found"])
                if isinstance(found, DDPNError):
                    raise found
                if found is not None:
                    done(found.rows)
                    yield found
        except errors as error:
            reason = (str(error).strip().splitlines() or ["no message"])[-1].rstrip(".")
            raise JobError(f"Blocks of rows could not be predicted on the cluster: {reason}.") from error

    def _rows(self, places: Sequence[Place]) -> Iterator[dict[str, Any]]:
        """The results of all checks and then of all predictions, as Ray Data returns them."""
        # One stream of work: actors go on to predict while the last blocks are checked, and nothing is written before.
        data, slots, number = import_ray("ray.data"), self._cluster.slots, 2 * len(places)
        tasks = -(-number // max(1, min(_TOGETHER, number // (_TASKS * slots))))
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the inner workings of Ray
            # Not `range`, which is read by tasks that need cores of their own, and actors have them all.
            found = data.from_items([{"id": place} for place in range(number)], override_num_blocks=tasks).map(
                _Actor,
                compute=data.ActorPoolStrategy(size=min(slots, tasks)),
                fn_constructor_args=(places, *self._work),
                num_cpus=self._cluster.cpus,
                max_restarts=-1,
                max_task_retries=self._cluster.retries,
            )
            # The dataset has a context of its own, a copy of that of this process.
            found.context.enable_progress_bars, found.context.execution_options.preserve_order = False, True
            return iter(found.iter_rows())


class _Actor:
    """What a worker runs: the model is loaded once."""

    def __init__(
        self,
        places: Sequence[Place],
        files: Mapping[str, bytes],
        columns: Mapping[str, str | None],
        tables: Table,
        sizes: Sequence[int],
        request: Request,
        target: str,
    ) -> None:
        limit_threads(1)
        self._places, self._tables, self._sizes = places, tables, sizes
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            loaded = load(Path(folder), mixed_only=request.member is None, **columns)
            self._blocks = BlocksHere(loaded, tables, request, target)

    def __call__(self, row: Mapping[str, Any]) -> dict[str, bytes]:
        """A block: None if it was checked, its predictions, or its error, as a value: Ray would repeat what raises."""
        round_number, place = divmod(int(row["id"]), len(self._places))
        found: Predicted | DDPNError | None = None
        try:
            found = self._done(self._places[place], only_check=round_number == 0)
        except DDPNError as error:
            found = error
        return {"found": pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)}

    def _done(self, place: Place, only_check: bool) -> Predicted | None:
        path = self._tables.paths[place.file]
        if not os.path.isfile(path):
            how = "Put tables into a folder that all nodes see under the same path"
            raise ConfigError(f"A node of the cluster cannot read {path}. {how}.")
        if os.path.getsize(path) != self._sizes[place.file]:
            raise ConfigError(f"{path} has another size on a node: it was changed, or nodes see different files.")
        if only_check:
            self._blocks.check(place)
            return None
        return self._blocks.predict_one(place)


def predict_on_cluster(
    model: str | PathLike[str],
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    cluster: RayCluster | None = None,
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
        Table: files, folders or patterns such as data/*.parquet, which all nodes can read.
    out : path
        The file to write, by its ending.
    cluster : RayCluster, optional
        Default: the cluster that this machine belongs to.
    request : Request, optional
        Which columns to predict (`ddpn.workflow.prediction_request.Request`).
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
    tables = Table(sources, roles.as_text)
    tables.check(roles)
    blocks = ClusterBlocks(cluster or RayCluster(), folder, columns, tables, request, target)
    loaded = load(folder, mixed_only=request.member is None, **columns)
    return predict_to(loaded, folder, tables, request, target, done, on_finding, blocks)
