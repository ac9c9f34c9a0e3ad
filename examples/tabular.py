"""From a data frame to intervals and out-of-distribution flags.

Run `python examples/tabular.py`, or pass a file of your own: `python examples/tabular.py bikes.csv --target rentals`.
Without a file, it simulates a repair shop: jobs per day by weekday, temperature, rain and number of mechanics.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddpn import DDPNRegressor


def simulate_shop(days: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Simulate numbers, categories and missing values; more mechanics make the variance relatively smaller."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "weekday": rng.choice(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat"], days),
            "temperature": rng.normal(12, 8, days).round(1),
            "rain": rng.gamma(0.5, 4.0, days).round(1),
            "mechanics": rng.integers(1, 7, days),
        }
    )
    busy = frame["weekday"].isin(["Mon", "Sat"]).to_numpy()
    mean = np.exp(1.8 + 0.5 * busy + 0.03 * frame["temperature"].to_numpy() - 0.02 * frame["rain"].to_numpy())
    steady = frame["mechanics"].to_numpy()
    # Over-dispersed with few mechanics (negative binomial), under-dispersed with many (binomial).
    wide = rng.negative_binomial(4, 4 / (4 + mean))
    narrow = rng.binomial(np.ceil(mean / 0.7).astype(int), np.minimum(1.0, mean / np.ceil(mean / 0.7)))
    frame["jobs"] = np.where(steady >= 4, narrow, wide)
    frame.loc[rng.choice(days, days // 50, replace=False), "rain"] = np.nan
    return frame


def fit_model(frame: pd.DataFrame, target: str, **options: Any) -> tuple[DDPNRegressor, pd.DataFrame]:
    """Fit a model to 70% of the rows, calibrate its flags for unusual rows on 10%, and return it with the test rows."""
    rows = frame.sample(frac=1.0, random_state=0)
    train, calibration, test = np.split(np.arange(len(rows)), [int(0.7 * len(rows)), int(0.8 * len(rows))])
    X, y = rows.drop(columns=target), rows[target].to_numpy()
    model = DDPNRegressor(preset="default", random_state=0, **options).fit(X.iloc[train], y[train])
    # Calibration needs rows that the model was not trained on.
    model.fit_ood(X.iloc[calibration], alpha=0.05)
    return model, rows.iloc[test]


def predict_table(model: DDPNRegressor, X: pd.DataFrame) -> pd.DataFrame:
    """Return mean, interval, uncertainty and out-of-distribution flag of each row of X."""
    low, high = model.predict_interval(X, coverage=0.9).T
    prediction = model.predict_distribution(X)
    columns = {"mean": model.predict(X).round(1), "low": low, "high": high}
    columns |= {"aleatoric": prediction.aleatoric.round(2), "epistemic": prediction.epistemic.round(2)}
    return pd.DataFrame({**columns, "ood": model.is_ood(X)}, index=X.index)


def move_far_away(X: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with their numbers moved far out of the range of the training data."""
    moved = X.copy()
    for name in X.select_dtypes("number").columns:
        moved[name] = X[name].mean() + 8 * X[name].std()
    return moved


def run(frame: pd.DataFrame, target: str, **options: Any) -> dict[str, float]:
    """Fit, predict, and print the scores."""
    model, test = fit_model(frame, target, **options)
    X, y = test.drop(columns=target), test[target].to_numpy()
    table = predict_table(model, X)
    print(X.join(table).assign(**{target: y}).head(8).to_string(index=False))
    coverage = float(((table["low"] <= y) & (y <= table["high"])).mean())
    flagged, far = float(table["ood"].mean()), float(model.is_ood(move_far_away(X.head(50))).mean())
    print(f"\nCRPS {model.crps(X, y):.3f}; the 90% intervals cover {coverage:.1%} of {len(y):,} test rows.")
    print(f"Flagged as out-of-distribution: {flagged:.1%} of test rows, {far:.0%} of rows moved far away.")
    return {"coverage": coverage, "flagged": flagged, "far": far}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a CSV file; default: a simulated repair shop")
    parser.add_argument("--target", default="jobs", help="the column of counts")
    args = parser.parse_args()
    # Three networks instead of five, to save time.
    run(simulate_shop() if args.data is None else pd.read_csv(args.data), args.target, n_networks=3)


if __name__ == "__main__":
    main()
