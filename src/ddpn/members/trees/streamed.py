"""Fit boosted trees to the mean of counts in a table that is larger than memory.

Rows are read in chunks. In memory, LightGBM stores only the bin of each value, in one byte.
"""

from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import Fold, FoldData, Settings, TreeRows, compute_rates
from ddpn.members.trees.mean import MeanFit
from ddpn.members.trees.table import TreeTable
from ddpn.networks.training import RowStream
from ddpn.networks.training.batches import CHUNK_ROWS
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import divide_exposure
from ddpn.runtime.deadlines import Clock

#: The most bytes that LightGBM may use, and the bytes per cell and per row. Bins are stored by columns and by rows, and
#: a row has a label, a weight, a score, two derivatives and a position in the tree. By benchmarks/scaling.py, a row of
#: 40 columns takes 138 bytes, a row of 10 columns 78.
MAX_BYTES, CELL_BYTES, ROW_BYTES = 768 * 2**20, 2, 60
#: The most rows times columns times rounds: about 20 minutes on one core (benchmarks/scaling.py).
MAX_FITTED_CELLS = 1e11
#: The fewest rounds; and the number of rows from which trees have twice the number of leaves chosen on the sample.
_MIN_ROUNDS, _MIN_ROWS_FOR_MORE_LEAVES = 100, 1_000_000
#: Under a time limit: cells that are read and fitted per second left.
_CELLS_PER_SECOND = 100_000.0


def count_affordable_stream_rows(stream: RowStream, columns: int, clock: Clock) -> int:
    """Return the number of stream rows that fit into memory and the time limit, a multiple of the chunk size.

    `columns` is the number of columns of the table.
    """
    max_rows = min(len(stream), MAX_BYTES // (CELL_BYTES * columns + ROW_BYTES))
    if clock.has_limit:
        max_rows = min(max_rows, int(_CELLS_PER_SECOND * clock.left / columns))
    return max_rows // CHUNK_ROWS * CHUNK_ROWS


def fit_stream(
    stream: RowStream,
    sample: TreeRows,
    table: TreeTable,
    unit: float,
    validation: CountRows,
    settings: Settings,
    clock: Clock,
) -> tuple[Booster, int, int] | None:
    """Fit boosted trees to the mean of counts on rows of a stream, with early stopping on validation rows.

    If the stream has more rows than memory or time allow, a random subset is used. Bins are computed from `sample`, the
    rows of the stream that are in memory. Exposures of the stream are divided by `unit` here. Exposures of the
    validation rows must already be divided by it.

    `table` converts rows to the matrix of the trees. `settings` are adapted to the number of rows: from 1,000,000 rows
    on, trees have twice `settings.leaves` leaves, and there may be fewer rounds than `settings.rounds`. `clock` is the
    time limit.

    Return the booster, the number of leaves of its trees, and the number of rows to which it was fitted. Return None if
    `sample` already has all rows that memory and time allow, or if all validation counts are 0.
    """
    columns = sample.matrix.shape[1]
    rows = count_affordable_stream_rows(stream, columns, clock)
    if rows <= len(sample.rate) or not validation.y.any():
        return None
    inputs, (rate, weight) = table.read(validation.X), compute_rates(validation)
    positions = np.arange(len(rate))
    held_out = sample._replace(
        matrix=inputs, rate=rate, weight=weight / weight.mean(), folds=[Fold(positions, positions)]
    )
    settings = settings._replace(
        leaves=settings.leaves * (2 if rows >= _MIN_ROWS_FOR_MORE_LEAVES else 1),
        rounds=int(min(settings.rounds, max(_MIN_ROUNDS, MAX_FITTED_CELLS / (rows * columns)))),
    )
    streamed = StreamedTreeRows(stream, table, unit, rows, settings.seed)
    fit = MeanFit(held_out, settings, StreamedData(sample, held_out, streamed))
    fit.run(1, clock)
    return fit.to_boosters()[0], settings.leaves, rows


class StreamedTreeRows(lightgbm.Sequence):
    """Passes random rows of a stream to LightGBM, which requests them in consecutive slices.

    While a row is read, its rate (count / exposure) and its weight (see `compute_rates`) are written to the attributes
    `rate` and `weight`, of shape (rows,).

    Parameters
    ----------
    stream : RowStream
        All rows of the table.
    table : TreeTable
        Converts rows to the matrix of the trees.
    unit : float
        The reference exposure: exposures are divided by this number.
    rows : int
        The number of rows to pass.
    seed : int
        The seed of the random choice of rows.
    """

    def __init__(self, stream: RowStream, table: TreeTable, unit: float, rows: int, seed: int) -> None:
        self.batch_size = CHUNK_ROWS
        self._stream, self._table, self._unit, self._seed = stream, table, unit, seed
        self.rate, self.weight = np.zeros(rows, dtype=np.float32), np.ones(rows, dtype=np.float32)
        self._matrices, self._unread = self._iter_matrices(), np.zeros((0, 0))

    def __len__(self) -> int:
        return len(self.rate)

    def __getitem__(self, rows_slice: Any) -> np.ndarray:
        rows, matrices = rows_slice.stop - rows_slice.start, [self._unread] if len(self._unread) else []
        while sum(map(len, matrices)) < rows:
            matrices.append(next(self._matrices))
        matrix = np.concatenate(matrices)
        self._unread = matrix[rows:]
        return np.ascontiguousarray(matrix[:rows])

    def _iter_matrices(self) -> Iterator[np.ndarray]:
        """Draw rows from each chunk of the stream, store their rates and weights, and yield their matrix of inputs.

        A matrix has shape (rows drawn from the chunk, columns). The last one has only as many rows as are still needed.
        """
        share, rng, start = len(self) / len(self._stream), np.random.default_rng(self._seed), 0
        for chunk in self._stream.chunks(CHUNK_ROWS, self._seed):
            sampled = self._stream.sample(chunk[np.flatnonzero(rng.random(len(chunk)) < share)])
            sampled = divide_exposure(sampled, self._unit)
            stop = min(start + len(sampled), len(self))
            rate, weight = compute_rates(sampled)
            self.rate[start:stop], self.weight[start:stop] = rate[: stop - start], weight[: stop - start]
            yield self._table.read(sampled.X)[: stop - start]
            start = stop
            if start == len(self):
                return


class StreamedData(FoldData):
    """Creates two LightGBM datasets: of rows of a stream (`streamed`), for training, and of the validation rows.

    The bins of both are computed from `sample`, the rows of the stream that are in memory.
    """

    def __init__(self, sample: TreeRows, validation: TreeRows, streamed: StreamedTreeRows) -> None:
        super().__init__(sample._replace(folds=[Fold(np.arange(0), np.arange(0))]))
        self._validation, self._streamed = validation, streamed

    def make_datasets(self, fold: Fold) -> tuple[Any, Any]:
        """Return the LightGBM datasets of the stream and of the validation rows. `fold` is ignored."""
        streamed, rows = self._streamed, self._validation
        like = {"reference": self._whole, "params": self._whole.params}
        train = lightgbm.Dataset(streamed, streamed.rate, weight=streamed.weight, **like)
        valid = lightgbm.Dataset(rows.matrix, rows.rate, weight=rows.weight, **like)
        return train.construct(), valid.construct()
