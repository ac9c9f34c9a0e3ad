"""How wide the priors of the slopes of a GLM should be, on the development tables and few to many of their rows.

    python -m benchmarks.tables --role development --prepare DIR
    python -m benchmarks.glm_priors --prepared DIR --out benchmarks/notes

Each pair of standard deviations, of slopes of the log mean and of slopes of the log inverse dispersion, is tried for
the Double Poisson GLM of a mixture. Then `CountRegressor()` is fitted to all development tables with the default and
with the widest priors. Scores are those of rows that were not fitted. Writes glm_priors.md.
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.tables.adapters.common import read_table as read_prepared
from benchmarks.tables.catalogue import read_catalogue

from ddpn import CountRegressor
from ddpn.members.glm import GLM
from ddpn.metrics import crps
from ddpn.rows.count_rows import CountRows
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

DEVIATIONS = (
    (4.0, 4.0),
    (1.0, 1 / 4),
    (1 / 2, 1 / 8),
    (1 / 4, 1 / 4),
    (1 / 4, 1 / 8),
    (1 / 4, 1 / 16),
    (1 / 4, 1 / 32),
    (1 / 8, 1 / 32),
)
TABLES = "crime1,bwght,fertil2,rwm1984,attendance,nmes,bikes_4000,smoke,citations"
SIZES = (60, 250, 1_000, 3_000)
TEST_ROWS, SPLITS = 500, 2
#: A mean negative log-likelihood above this is of distributions so wide that their CRPS would take minutes.
MAX_LOSS = 50.0
#: Rows that mixtures are fitted to, and the most rows that they are tested on.
MIXTURE_SIZES, MIXTURE_TEST_ROWS = (100, 250, 600, 3_000), 1_000


def measure_split(X: np.ndarray, y: np.ndarray, size: int, seed: int) -> dict[tuple[float, float], tuple[float, ...]]:
    """Fit GLMs with all priors to `size` rows; return CRPS, negative log-likelihood and CPU seconds of each."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:size], order[size : size + TEST_ROWS]
    table = read_table(X[train])
    new, counts = Schema.from_table(table).parse(X[test]), torch.from_numpy(y[test].astype(float))[:, None]
    scores = {}
    for deviations in DEVIATIONS:
        kind = type("PriorGLM", (GLM,), {"prior_deviations": deviations})
        start = time.process_time()
        member = kind.fit(CountRows(table, y[train].astype(float)), None, seed)
        seconds = time.process_time() - start
        distribution = member.distribution(new)
        loss = -float(distribution.log_prob(counts).mean())
        scores[deviations] = float(crps(distribution, counts).mean()) if loss < MAX_LOSS else np.nan, loss, seconds
    return scores


def measure(folder: Path, tables: list[str]) -> dict[int, dict[tuple[float, float], np.ndarray]]:
    """Return the scores of each size and prior, as an array of tables by (CRPS, loss, seconds), means over splits."""
    results: dict[int, dict[tuple[float, float], list[np.ndarray]]] = {size: defaultdict(list) for size in SIZES}
    for name in tables:
        columns, y = read_prepared(folder / name)
        X = columns.decode_levels()
        for size in (size for size in SIZES if size <= len(y) - TEST_ROWS // 2):
            splits = [measure_split(X, y, size, seed) for seed in range(SPLITS)]
            for deviations in DEVIATIONS:
                results[size][deviations].append(np.mean([scores[deviations] for scores in splits], axis=0))
            print(f"{name}, {size} rows", flush=True)
    return {size: {k: np.array(v) for k, v in by_prior.items()} for size, by_prior in results.items()}


def compare_mixtures(folder: Path, tables: list[str]) -> dict[str, dict[int, np.ndarray]]:
    """Return the CRPS of the mixture with the default priors over that with the widest, per table, size and split."""
    ratios: dict[str, dict[int, np.ndarray]] = {}
    for name in tables:
        columns, y = read_prepared(folder / name)
        X = columns.decode_levels()
        ratios[name] = {}
        for size in (size for size in MIXTURE_SIZES if size <= len(y) - MIXTURE_TEST_ROWS // 5):
            scores = [
                [score_mixture(X, y, size, seed, deviations) for deviations in (GLM.prior_deviations, DEVIATIONS[0])]
                for seed in range(SPLITS)
            ]
            ratios[name][size] = np.divide(*np.transpose(scores))
            print(f"{name}, {size} rows: {ratios[name][size]}", flush=True)
    return ratios


def score_mixture(X: np.ndarray, y: np.ndarray, size: int, seed: int, deviations: tuple[float, float]) -> float:
    """Fit `CountRegressor()` to `size` rows with these priors of the GLM; return its CRPS on other rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:size], order[size : size + MIXTURE_TEST_ROWS]
    with patch.object(GLM, "prior_deviations", deviations):
        model = CountRegressor(random_state=seed).fit(X[train], y[train])
    return float(model.predict_distribution(X[test]).distribution.crps(torch.from_numpy(y[test])).mean())


def format_deviations(deviations: tuple[float, float]) -> str:
    """Format standard deviations of slopes, such as "4, 1/4"."""
    return ", ".join(f"1/{1 / deviation:g}" if deviation < 1 else f"{deviation:g}" for deviation in deviations)


def describe_mixtures(ratios: dict[str, dict[int, np.ndarray]]) -> list[str]:
    """Return the lines of the section on mixtures."""
    lines = [
        "## The whole mixture",
        "",
        "`CountRegressor()` was fitted to so many rows, once with the default priors and once with the widest",
        f"({format_deviations(DEVIATIONS[0])}). The table shows the ratio of the two CRPS on up to "
        f"{MIXTURE_TEST_ROWS:,} other rows, for each",
        f"of {SPLITS} splits. Below 1, the default priors are better. Standard errors are over tables.",
        "",
        "| table | " + " | ".join(f"{size:,} rows" for size in MIXTURE_SIZES) + " |",
        "|---" * (len(MIXTURE_SIZES) + 1) + "|",
    ]
    for name, by_size in ratios.items():
        cells = [", ".join(f"{ratio:.3f}" for ratio in by_size.get(size, ())) for size in MIXTURE_SIZES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = []
    for size in MIXTURE_SIZES:
        logs = np.array([np.log(by_size[size]).mean() for by_size in ratios.values() if size in by_size])
        error = logs.std(ddof=1) / np.sqrt(len(logs))
        means.append(f"{np.exp(logs.mean()):.4f} (standard error {error:.4f})")
    return [*lines, "| geometric mean | " + " | ".join(means) + " |"]


def write_note(
    results: dict[int, dict[tuple[float, float], np.ndarray]],
    tables: list[str],
    mixtures: dict[str, dict[int, np.ndarray]],
    path: Path,
) -> None:
    """Write the note, with a line per prior, then the ratios of mixtures per table."""
    default = GLM.prior_deviations
    header = [f"{size:,} rows ({len(by_prior[default])} tables)" for size, by_prior in results.items()]
    lines = [
        "# Priors of the GLM in a mixture",
        "",
        "`python -m benchmarks.glm_priors` writes this note.",
        "",
        "The slopes of the GLM of a mixture have normal priors, per standard deviation of a column. The table shows",
        "the geometric mean of the test CRPS relative to the default priors, which are in bold, and the median over",
        "tables of the mean negative log-likelihood of a row minus that with the default priors. Lower is better. A",
        f"dash means that a negative log-likelihood exceeded {MAX_LOSS:g} on some table.",
        "",
        "| standard deviations of slopes: log mean, log gamma | " + " | ".join(header) + " |",
        "|---" * (len(header) + 1) + "|",
    ]
    for deviations in DEVIATIONS:
        mark = "**" if deviations == default else ""
        cells = []
        for by_prior in results.values():
            scores, reference = by_prior[deviations], by_prior[default]
            ratio = np.exp(np.mean(np.log(scores[:, 0] / reference[:, 0])))
            loss = np.median(scores[:, 1] - reference[:, 1])
            cells.append("-" if np.isnan(ratio) else f"{ratio:.3f} / {loss:+.3f}")
        lines.append(f"| {mark}{format_deviations(deviations)}{mark} | " + " | ".join(cells) + " |")
    seconds = {k: sum(by_prior[k][:, 2].sum() for by_prior in results.values()) for k in DEVIATIONS}
    lines += [
        "",
        f"Tables: {', '.join(tables)}, of the [development tables](development.md); {SPLITS} random splits, "
        f"{TEST_ROWS} test rows.",
        f"All fits with the default priors took {seconds[default]:.1f} s of CPU time, "
        f"those with the widest {seconds[DEVIATIONS[0]]:.1f} s.",
        "",
        *describe_mixtures(mixtures),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, default=Path(".bench/tables"), help="folder of the prepared tables")
    parser.add_argument("--tables", default=TABLES, help=f"names, with commas (default: {TABLES})")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the note (default: .)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tables = args.tables.split(",")
    every = [name for name, entry in read_catalogue().items() if entry.role == "development"]
    mixtures = compare_mixtures(args.prepared, every)
    write_note(measure(args.prepared, tables), tables, mixtures, args.out / "glm_priors.md")


if __name__ == "__main__":
    main()
