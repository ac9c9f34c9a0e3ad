"""Measure how much longer fits and predictions take for wide counts than for ordinary ones, in CPU time.

    python benchmarks/wide_counts.py --out benchmarks/results

Each case is a default `CountRegressor` on a table of six numbers, in a process of its own with one thread. Its times
are divided by those of the same number of Negative Binomial counts with a mean of about 5. Seconds include the start of
the process. "Interval" is the CPU time of `predict_interval` per row, on rows that were not fitted. Writes
wide_counts_cpu.json and .md.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
import recording

#: Rows of each case; ordinary counts are fitted with every number of rows that occurs.
CASES = {
    "counts to 1e6": 20_000,
    "Poisson-lognormal, sd 2": 5_000,
    "0 or 200, separated": 5_000,
    "exposures over six orders": 5_000,
}
#: How many times the CPU of ordinary counts a fit and an interval may take.
ASKED = 3.0
NEW_ROWS = 2_000


def draw_case(case: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw inputs, counts and exposures."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 6))
    effect = 0.5 * X[:, 0] + 0.3 * np.sin(2.0 * X[:, 1]) + 0.2 * X[:, 2] * X[:, 3]
    noise = rng.gamma(2.0, 0.5, rows)
    if case == "counts to 1e6":
        return X, np.minimum(rng.poisson(np.exp(8.0 + 3.0 * effect) * noise), 1e6), None
    if case == "Poisson-lognormal, sd 2":
        return X, rng.poisson(np.exp(1.5 + effect + 2.0 * rng.normal(size=rows))).astype(float), None
    if case == "0 or 200, separated":
        return X, np.where(X[:, 0] > 0.0, 200.0, 0.0), None
    if case == "exposures over six orders":
        exposure = 10.0 ** rng.uniform(-3.0, 3.0, rows)
        return X, rng.poisson(5.0 * exposure * np.exp(effect) * noise).astype(float), exposure
    return X, rng.poisson(5.0 * np.exp(effect) * noise).astype(float), None


def measure_case(case: str, rows: int) -> dict[str, float]:
    """Return the CPU seconds of a fit, and the microseconds of an interval per row."""
    import torch

    from ddpn import CountRegressor

    torch.set_num_threads(1)
    X, y, exposure = draw_case(case, rows + NEW_ROWS)
    train, new = slice(0, rows), slice(rows, None)
    model = CountRegressor(random_state=0, n_jobs=1)
    options = [{} if exposure is None else {"exposure": exposure[part]} for part in (train, new)]
    model.fit(X[train], y[train], **options[0])
    fit = time.process_time()
    model.predict_interval(X[new][:10], **{name: x[:10] for name, x in options[1].items()})
    started = time.process_time()
    model.predict_interval(X[new], **options[1])
    return {"fit": fit, "interval": (time.process_time() - started) / NEW_ROWS * 1e6}


def measure_in_process(case: str, rows: int) -> dict[str, float]:
    """Return what `measure_case` measures in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--case", case, "--rows", str(rows)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


def compare_cases() -> list[dict]:
    """Measure every case, and divide it by ordinary counts."""
    measure_in_process("ordinary", 500)  # which compiles kernels where that has not been done
    ordinary = {rows: measure_in_process("ordinary", rows) for rows in sorted(set(CASES.values()))}
    results = [
        {"what": "ordinary", "rows": rows, "fit CPU s": times["fit"], "interval us": times["interval"]}
        for rows, times in ordinary.items()
    ]
    for case, rows in CASES.items():
        times, usual = measure_in_process(case, rows), ordinary[rows]
        results.append(
            {
                "what": case, "rows": rows, "fit CPU s": times["fit"], "interval us": times["interval"],
                "fit / ordinary": times["fit"] / usual["fit"],
                "interval / ordinary": times["interval"] / usual["interval"],
            }
        )  # fmt: skip
        print(results[-1], flush=True)
    return results


def main() -> None:
    parser = recording.make_parser(__doc__)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure_case(args.case, args.rows)))
        return
    args.device = "cpu"
    targets = dict.fromkeys(CASES, ASKED)
    recording.record("wide_counts", args, lambda _: compare_cases(), targets, "one thread, CPU seconds")


if __name__ == "__main__":
    main()
