"""What a floor and a ceiling are worth: stars of product reviews, from 1 to 5.

    DDPN_DATA=FOLDER python benchmarks/stars.py --out benchmarks/results

Reviews of women's clothing (22,641 with a text), split 80/10/10 by seed 1998. Title and text become 64 numbers by
TF-IDF and an SVD that are fitted to training rows. GLMs and ensembles of two networks have the same inputs and settings
and differ only in the range of counts that they may predict. Scores of the test rows are CRPS, NLL and the probability
outside of 1 to 5; `gain` is the mean difference in CRPS from the model without bounds, and `error` its standard error
over the test rows. Needs about 4 minutes on one core. Writes stars_cpu.json and .md.
"""

from typing import Any

import numpy as np
import recording
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from ddpn import CountGLM, DDPNRegressor
from ddpn.datasets import load, split
from ddpn.datasets.splits import SEED, SHARES
from ddpn.metrics import crps, nll

NETWORK = {"members": 2, "hidden": (64, 64), "epochs": 10, "numeric": "standard", "random_state": 0}
#: What is known about the counts. The Double Binomial counts stars above the first, k of 4.
RANGES: dict[str, dict[str, Any]] = {
    "no bounds": {},
    "lower=1": {"lower": 1},
    "lower=1, upper=5": {"lower": 1, "upper": 5},
    "Double Binomial, k of 4": {"likelihood": "double_binomial", "upper": 4},
}


def embedded(texts: list[str], train: np.ndarray, size: int) -> np.ndarray:
    """TF-IDF of words and pairs of words, reduced by an SVD; both from training rows alone. Shape: (texts, size)."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=5, max_features=20_000)
    words.fit([texts[row] for row in train])
    table = words.transform(texts)
    return TruncatedSVD(size, random_state=0).fit(table[train]).transform(table)


def fitted(kind: str, given: dict[str, Any], X: np.ndarray, y: np.ndarray, parts: Any) -> Any:
    """A GLM of training and validation rows, or an ensemble that chooses its epochs on validation rows."""
    options = {"likelihood": "double_poisson", **given}
    if kind == "GLM":
        rows = np.r_[parts.train, parts.validation]
        return CountGLM(**options).fit(X[rows], y[rows])
    rest = {"X_val": X[parts.validation], "y_val": y[parts.validation]}
    return DDPNRegressor(**NETWORK, **options).fit(X[parts.train], y[parts.train], **rest)


def scores(dist: Any, y: np.ndarray, possible: range) -> dict[str, np.ndarray]:
    """CRPS, NLL and the probability of impossible counts, row by row."""
    counts = torch.from_numpy(y).double()
    inside = torch.stack([dist.log_prob(torch.tensor(float(k))).exp() for k in possible]).sum(0)
    found = {"crps": crps(dist, counts), "nll": nll(dist, counts), "outside": (1.0 - inside).clamp(min=0.0)}
    return {name: values.double().detach().numpy() for name, values in found.items()}


def measured(device: str, size: int = 64) -> list[dict]:
    data = load("reviews")
    stars = data.y
    texts = [f"{title} {text}" for title, text in data.X.select("title", "text").rows()]
    parts = split(len(stars), SEED, SHARES)
    X, results = embedded(texts, parts.train, size), []
    for kind in ("GLM", "networks"):
        plain = None
        for name, given in RANGES.items():
            shift = 1 if "likelihood" in given else 0
            model = fitted(kind, given, X, stars - shift, parts)
            dist = model.predict_distribution(X[parts.test])
            found = scores(dist, stars[parts.test] - shift, range(1 - shift, 6 - shift))
            plain = found["crps"] if plain is None else plain
            gain = plain - found["crps"]
            row = {"what": f"{kind}, {name}", **{key: float(value.mean()) for key, value in found.items()}}
            results.append(row | {"gain": float(gain.mean()), "error": float(gain.std() / len(gain) ** 0.5)})
            print(results[-1], flush=True)
    return results


if __name__ == "__main__":
    args = recording.parser(__doc__).parse_args()
    args.device = args.device or "cpu"
    recording.record("stars", args, measured, {})
