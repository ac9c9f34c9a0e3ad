"""Measure how often `ddpn.diagnose` is right on simulated counts: size on Poisson data, power and direction elsewhere.

    python benchmarks/diagnosis.py --out benchmarks/results

Every run has 2,000 rows and three columns. "rejected" is the share of runs in which the test of dispersion has p <
0.05, "over" and "under" the shares in which the 95% interval lies above or below 1, "any finding" the share in which
any check reports something after Holm's correction, "covered" the share of intervals that hold the true dispersion.
The mean model is a GLM, which is the true one; the last lines have a mean that is not linear and the default mean
model. The project asks for rejections between 4% and 6% on Poisson counts and above 90% at a dispersion of 0.7 and
1.4. Writes diagnosis_cpu.json and .md.
"""

import argparse
from collections.abc import Callable

import numpy as np
import recording

from ddpn.diagnosis import diagnose
from ddpn.diagnosis.dispersion import conditional_dispersion
from ddpn.diagnosis.means import out_of_fold_means
from ddpn.sample import Sample

ROWS = 2000
ASKED = {"Poisson": 0.05, "dispersion 0.7": 0.9, "dispersion 1.4": 0.9}
Simulation = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def linear(X: np.ndarray) -> np.ndarray:
    return np.exp(1.2 + 0.5 * X[:, 0])


def curved(X: np.ndarray) -> np.ndarray:
    return np.exp(1.2 + 0.4 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1]) + 0.3 * X[:, 1] * X[:, 2])


def counts(rng: np.random.Generator, mean: np.ndarray, dispersion: float) -> np.ndarray:
    """Counts with variance = dispersion * mean in every row: a Negative Binomial, a Poisson, or a binomial.

    A binomial needs an integer number of trials, mean / (1 - dispersion). Its two neighbours are mixed such that the
    mean is right, which changes the variance by less than a tenth of (1 - dispersion)^2.
    """
    if dispersion == 1.0:
        return rng.poisson(mean)
    if dispersion > 1.0:
        return rng.poisson(rng.gamma(mean / (dispersion - 1.0), dispersion - 1.0))
    trials = mean / (1.0 - dispersion)
    return rng.binomial((np.floor(trials) + (rng.random(len(mean)) < trials % 1)).astype(int), 1.0 - dispersion)


def plain(rng: np.random.Generator, mean: np.ndarray, dispersion: float) -> tuple[np.ndarray, dict]:
    return counts(rng, mean, dispersion), {}


def censored(rng: np.random.Generator, mean: np.ndarray, dispersion: float) -> tuple[np.ndarray, dict]:
    """Counts that are recorded up to 5."""
    return np.minimum(counts(rng, mean, dispersion), 5), {"censored_above": 5}


def bounded(rng: np.random.Generator, mean: np.ndarray, dispersion: float) -> tuple[np.ndarray, dict]:
    """Successes of 12 trials, beta-binomial with this multiple of the variance of a Binomial."""
    share = mean / (mean + 3.0)
    if dispersion > 1.0:
        size = 11.0 / (dispersion - 1.0) - 1.0
        share = rng.beta(share * size, (1.0 - share) * size)
    return rng.binomial(12, share), {"upper": 12}


def run(
    seed: int, mean: Callable, dispersion: float, model: str, draw: Callable = plain, full: bool = False
) -> tuple[bool, str, bool, bool]:
    """The p-value, direction and coverage of the dispersion, and whether any check reports something (if `full`)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 3))
    drawn, known = draw(rng, mean(X), dispersion)
    y = drawn.astype(float)
    if full:
        found = diagnose(X, y, mean_model=model, **known)
        estimate, reported = found.dispersion, bool(found.labels)
    else:
        means = out_of_fold_means(Sample(X, y), model, 0, lambda words: None)
        estimate, reported = conditional_dispersion(y, np.ones(ROWS), means), False
    return estimate.p_value < 0.05, estimate.direction, estimate.low <= dispersion <= estimate.high, reported


def row(what: str, runs: int, *arguments: object, full: bool = False) -> dict:
    rejected, direction, covered, reported = zip(
        *(run(seed, *arguments, full=full) for seed in range(runs)), strict=True
    )
    found = {
        "what": what,
        "runs": runs,
        "rejected": float(np.mean(rejected)),
        "over": direction.count("over") / runs,
        "under": direction.count("under") / runs,
        "covered": float(np.mean(covered)),
    }
    return found | ({"any finding": float(np.mean(reported))} if full else {})


def measured(runs: int) -> list[dict]:
    few, fewest = max(1, runs // 5), max(1, runs // 20)
    return [
        row("Poisson", runs, linear, 1.0, "glm", full=True),
        row("dispersion 0.7", few, linear, 0.7, "glm"),
        row("dispersion 1.4", few, linear, 1.4, "glm"),
        row("Binomial of 12 trials, upper bound given", few, linear, 1.0, "glm", bounded, full=True),
        row("beta-binomial of 12 trials, upper bound given", fewest, linear, 2.1, "glm", bounded, full=True),
        row("Poisson, recorded up to 5, given", few, linear, 1.0, "glm", censored, full=True),
        row("dispersion 1.4, recorded up to 5, given", fewest, linear, 1.4, "glm", censored, full=True),
        row("dispersion 0.7, recorded up to 5, given", fewest, linear, 0.7, "glm", censored, full=True),
        row("Poisson, curved mean, default mean model", fewest, curved, 1.0, "auto"),
        row("dispersion 0.7, curved mean, default mean model", fewest, curved, 0.7, "auto"),
        row("dispersion 1.4, curved mean, default mean model", fewest, curved, 1.4, "auto"),
    ]


def arguments() -> argparse.ArgumentParser:
    parser = recording.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--runs", type=int, default=1000)
    return parser


def main() -> None:
    args = arguments().parse_args()
    recording.record("diagnosis", args, lambda device: measured(args.runs), ASKED)


if __name__ == "__main__":
    main()
