"""Measure how the cost of fits and predictions grows with rows, columns and networks, in CPU seconds.

    python benchmarks/scaling.py --out benchmarks/results

Tables are those of benchmarks/streaming.py, some with fewer columns. All steps run on one thread, and each is measured
alone: the pass that checks all rows, the encoding of a chunk, one pass of training networks over the rows, a round of
boosted trees and the memory that LightGBM takes per row, a block of predictions, and what the program that controls a
cluster does for each block of predictions. Writes scaling.md.
"""

import argparse
import gc
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import polars as pl
import torch
from streaming import generate_table, make_part, read_resident_bytes

import ddpn.workflow.large_tables as large_tables
from ddpn.members.network_fit import NetworkFit
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.trees.boosting import BoostedTrees, Fold, Settings, TreeRows, compute_rates
from ddpn.members.trees.streamed import StreamedData, StreamedTreeRows
from ddpn.members.trees.table import TreeTable
from ddpn.networks.training import Runtime
from ddpn.networks.training.batches import CHUNK_ROWS
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT
from ddpn.storage.results import ResultStore
from ddpn.tables.blocks import Block
from ddpn.tables.shuffling import draw_row_numbers
from ddpn.workflow.config import FitConfig

ROWS, COLUMNS, MEMBERS = 65_536, 40, 5
#: Rows of the table that trees are measured by: so many that memory per row exceeds all other memory.
TREE_ROWS = 400_000
BLOCK_ROWS = 32_768


#: A line of the results.
Row = dict[str, Any]


def time_call(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call in this process, and its result."""
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def choose_columns(columns: int) -> list[str]:
    """Choose some columns of the table: numbers, integers and text in the proportions of all 40."""
    every = make_part(0, 1).drop("y").columns
    return [every[i] for i in np.linspace(0, len(every) - 1, columns).astype(int)]


def draw_sample(rows: int, columns: int) -> CountRows:
    frame = make_part(0, rows)
    return CountRows(frame.select(choose_columns(columns)), frame["y"].to_numpy().astype(float))


def measure_check(folder: Path, columns: int) -> Row:
    """Measure the first pass over a folder, which checks all rows."""
    plan = FitConfig(target="y")
    table = large_tables.open_table([str(folder)], plan, stream=True)[0]
    seconds, _ = time_call(lambda: large_tables.check_and_read_rows(table, plan, draw_row_numbers(table, 0)))
    return Row(what="check of all rows", rows=table.rows, columns=columns, networks="", seconds=seconds, per=table.rows)


class Stream:
    """Rows in memory, drawn in chunks."""

    identity, max_passes = "rows", 1.0

    def __init__(self, sample: CountRows) -> None:
        self.rows = sample

    def __len__(self) -> int:
        return len(self.rows)

    def chunks(self, rows: int, seed: int) -> Iterator[np.ndarray]:
        while True:
            order = np.random.default_rng(seed).permutation(len(self))
            yield from (order[start : start + rows] for start in range(0, len(order) - rows + 1, rows))

    def sample(self, chunk: np.ndarray) -> CountRows:
        return self.rows.rows(np.sort(chunk))


def measure_networks(rows: int, columns: int, n_networks: int) -> tuple[list[Row], Networks]:
    """Measure the encoding of a stream, and a pass of a training on it."""
    sample = draw_sample(rows, columns)
    options = NetworkOptions(n_networks=n_networks, hidden=(64, 64), epochs=1, numeric="steps")
    fit = NetworkFit(Networks, options=options, runtime=Runtime("cpu"), stream=Stream(sample))
    seconds, member = time_call(lambda: fit.fit(sample.rows(slice(0, 20_000)), None, 0, NO_LIMIT))
    config = options.make_config(rows, tuple(range(n_networks)))
    encoded, _ = fit.encode_stream("steps", sample.rows(slice(0, 20_000)), None, config)
    chunks = rows // CHUNK_ROWS
    encoding, _ = time_call(lambda: [encoded.train.encode(c) for c in islice(fit.stream.chunks(CHUNK_ROWS, 0), chunks)])
    common = {"rows": rows, "columns": columns, "networks": n_networks}
    results = [
        Row(what="encoding", **common, seconds=encoding, per=chunks * CHUNK_ROWS),
        Row(what="pass of networks, with encoding", **common, seconds=seconds, per=rows),
    ]
    return results, member


def measure_trees(rows: int, columns: int, rounds: int = 5) -> Row:
    """Measure rounds of boosting over a stream, and the memory of LightGBM per row."""
    sample = draw_sample(20_000, columns)
    (table, matrix), (rate, weight) = TreeTable.fit(sample.X), compute_rates(sample)
    row_numbers = np.arange(len(rate))
    rows_in_memory = TreeRows(matrix, table.is_category, rate, weight, [Fold(row_numbers, row_numbers)])
    stream = _Generated(rows // BLOCK_ROWS * BLOCK_ROWS, columns)
    chunks = StreamedTreeRows(stream, table, 1.0, len(stream), 0)
    gc.collect()
    before = read_resident_bytes()
    growing = BoostedTrees(
        StreamedData(rows_in_memory, rows_in_memory, chunks), rows_in_memory, 0, Settings(leaves=63, learning_rate=0.1)
    )
    seconds, _ = time_call(lambda: [growing.grow() for _ in range(rounds)])
    gc.collect()
    taken = (read_resident_bytes() - before) / len(stream)
    return Row(
        what="round of trees (63 leaves)", rows=len(stream), columns=columns, networks="", seconds=seconds / rounds,
        per=len(stream), note=f"{taken:.0f} bytes per row",
    )  # fmt: skip


class _Generated(Stream):
    """Rows that are generated when they are read, and not kept."""

    def __init__(self, rows: int, columns: int) -> None:
        self._rows, self._names = rows, choose_columns(columns)

    def __len__(self) -> int:
        return self._rows

    def chunks(self, rows: int, seed: int) -> Iterator[np.ndarray]:
        yield from (np.full(rows, number) for number in range(10_000))

    def sample(self, chunk: np.ndarray) -> CountRows:
        frame = make_part(int(chunk[0]), len(chunk))
        return CountRows(frame.select(self._names), frame["y"].to_numpy().astype(float))


def measure_predictions(member: Networks, columns: int, rows: int = 8192) -> Row:
    """Measure the mean, median, mode, interval and variances of networks alone."""
    from ddpn.prediction.spec import PredictionSpec
    from ddpn.predictor import Predictor

    spec = PredictionSpec()
    predictor, X = Predictor({"networks": member}, {"networks": 1.0}), draw_sample(rows, columns).X
    seconds, _ = time_call(lambda: [predictor.predict(X[i : i + 4096]).to_columns(spec) for i in (0, 4096)])
    return Row(
        what="predictions", rows=rows, columns=columns, networks=member.options.n_networks, seconds=seconds, per=rows
    )


def measure_driver(folder: Path, blocks: int = 200) -> Row:
    """Measure what the program that controls a cluster does for each block: write its predictions and its record."""
    frame = pl.DataFrame(np.random.default_rng(0).normal(size=(BLOCK_ROWS, 9)))
    frame.write_parquet(content := io.BytesIO())
    findings = {"rows": BLOCK_ROWS, "flagged": 0, "groups": {}, "notes": {}, "states": [[BLOCK_ROWS] * 6] * COLUMNS}
    facts = json.dumps({"rows": BLOCK_ROWS, "columns": frame.columns, "findings": findings}).encode()
    parts, files = ResultStore(folder / "out.parquet.parts", {}), {"content": content.getvalue(), "facts": facts}
    seconds, _ = time_call(lambda: [parts.write(Block(0, 0, 0, at), files, "a part") for at in range(blocks)])
    rows = blocks * BLOCK_ROWS
    return Row(what="parts and what is known of them", rows=rows, columns=9, networks="", seconds=seconds, per=rows)


def measure_all(rows: int, tree_rows: int) -> Iterator[Row]:
    """Measure every step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, columns in ((rows, COLUMNS), (4 * rows, COLUMNS), (4 * rows, COLUMNS // 4)):
            data = folder / f"{number}-{columns}"
            generate_table(data, number)
            for path in data.iterdir():
                pl.read_parquet(path).select([*choose_columns(columns), "y"]).write_parquet(path, row_group_size=50_000)
            yield measure_check(data, columns)
        for number, columns, n_networks in (
            (rows, COLUMNS, MEMBERS), (2 * rows, COLUMNS, MEMBERS), (rows, COLUMNS // 4, MEMBERS),
            (rows, COLUMNS, 1), (rows, COLUMNS, 2 * MEMBERS),
        ):  # fmt: skip
            results, member = measure_networks(number, columns, n_networks)
            yield from results
            if number == rows:
                yield measure_predictions(member, columns)
        for number, columns in ((tree_rows, COLUMNS), (2 * tree_rows, COLUMNS), (tree_rows, COLUMNS // 4)):
            # In a process of its own: memory that was used before would hide what is taken.
            command = [sys.executable, __file__, "trees", str(number), str(columns)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            yield Row(json.loads(output.splitlines()[-1]))
        yield measure_driver(folder)


def format_page(results: list[Row], command: str) -> str:
    """Format the results as Markdown."""
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread"
    lines = [
        "# How the cost grows", "", f"`{command}`, {machine}; CPU seconds. Networks are of two layers of 64.",
        "",
        "| step | rows | columns | networks | CPU seconds | CPU seconds per million rows | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    return "\n".join([*lines, *map(format_line, results)]) + "\n"


def format_line(row: Row) -> str:
    """Format a row of the table."""
    per_million = f"{1e6 * row['seconds'] / row['per']:.3g}"
    cells = [row["what"], f"{row['rows']:,}", row["columns"], row["networks"], f"{row['seconds']:.3g}", per_million]
    return f"| {' | '.join(map(str, cells))} | {row.get('note', '')} |"


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["trees"]:
        print(json.dumps(measure_trees(int(sys.argv[2]), int(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rows", type=int, default=ROWS, help="of the tables of networks")
    parser.add_argument("--tree-rows", type=int, default=TREE_ROWS)
    args = parser.parse_args()
    target = args.out / "scaling.md"
    results = []
    for row in measure_all(args.rows, args.tree_rows):
        results.append(row)
        print(dict(row), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python benchmarks/scaling.py", *sys.argv[1:]])
    target.write_text(format_page(results, command))
    print(target.read_text())


if __name__ == "__main__":
    main()
