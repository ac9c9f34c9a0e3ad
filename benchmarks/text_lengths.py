"""Measure how well total variance separates verses from reviews of equal length, where length itself says nothing.

Reads the finished runs of `ddpn reproduce reviews`, `reviews-tuned` or `reviews-frozen`, and writes
`table_ood_matched.md` beside them: `python benchmarks/text_lengths.py reviews --out results`.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from ddpn.paper.experiments.catalogue import read_experiment
from ddpn.paper.experiments.rows import LOADERS, load_data
from ddpn.paper.experiments.runs import find_finished_runs
from ddpn.paper.experiments.scoring import evaluate_detection
from ddpn.paper.experiments.tables import Cell, ResultTable, format_table, mark_best, score_ood_rows

COLUMNS = ("AUROC", "FPR80", "equal lengths: AUROC", "equal lengths: FPR80")


def count_tokens(texts: torch.Tensor) -> np.ndarray:
    """Count the tokens of every text; rows are padded with zeros."""
    return (texts != 0).sum(dim=1).numpy()


def match_lengths(reviews: np.ndarray, verses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw as many reviews as verses of every length; return the rows of both."""
    random = np.random.default_rng(0)
    rows: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for length in np.intersect1d(reviews, verses):
        candidates = [np.flatnonzero(lengths == length) for lengths in (reviews, verses)]
        number = min(map(len, candidates))
        for drawn, same_length in zip(rows, candidates, strict=True):
            drawn.append(random.choice(same_length, number, replace=False))
    return np.concatenate(rows[0]), np.concatenate(rows[1])


def compare_at_equal_lengths(name: str, folder: Path) -> ResultTable:
    """Compare the detection by total variance among all texts with the detection among texts of equal length."""
    experiment = read_experiment(name)
    parts = LOADERS["reviews"](experiment, load_data(experiment.data))
    reviews, verses = count_tokens(parts.test.X), count_tokens(parts.ood)
    matched = match_lengths(reviews, verses)
    scores = {
        scored_run.run.label: (scored_run.test_variances, scored_run.ood_variances)
        for scored_run in score_ood_rows(find_finished_runs(experiment, folder))
    }
    scores["number of tokens alone, few"] = (
        torch.from_numpy(-reviews.astype(float)),
        torch.from_numpy(-verses.astype(float)),
    )
    rows = {}
    for label, (inside, outside) in scores.items():
        everything, equal = (
            evaluate_detection(inside, outside),
            evaluate_detection(inside[matched[0]], outside[matched[1]]),
        )
        rows[label] = [Cell(*value) for value in (everything.auroc, everything.fpr80, equal.auroc, equal.fpr80)]
    notes = (
        f"With equal lengths: {len(matched[0]):,} rows of each kind, equally many of every length.",
        "The last row uses nothing but the length: shorter texts count as OOD.",
    )
    title = f"Detecting {experiment.ood} among {experiment.title.lower()}: what the length of a text explains"
    return ResultTable(title, COLUMNS, mark_best(rows, low=(1, 3), high=(0, 2)), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiments", nargs="+", help="names of finished experiments with texts")
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder of their results (results)")
    options = parser.parse_args()
    for name in options.experiments:
        path = options.out / name / "table_ood_matched.md"
        path.write_text(format_table(compare_at_equal_lengths(name, options.out)), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
