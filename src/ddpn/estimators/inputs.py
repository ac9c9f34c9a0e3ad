"""What a user hands to `fit`, checked once: counts, weights and exposures, one a row."""

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils.validation import column_or_1d

from ddpn.errors import ConfigError, InputError


class Targets(NamedTuple):
    """Float64 vectors, one value a row of X."""

    y: np.ndarray
    weight: np.ndarray | None
    exposure: np.ndarray | None

    def rows(self, which: np.ndarray) -> "Targets":
        """Some of the rows, by mask or number."""
        return Targets(*(None if values is None else values[which] for values in self))  # type: ignore[arg-type]


def targets(X: Any, y: Any, sample_weight: Any, exposure: Any, fractional: str, names: str = "") -> Targets:
    """All three, checked; `names` goes after each argument's name ("_val" for a validation set)."""
    rows = row_count(X)
    return Targets(
        counts(y, rows, fractional, f"y{names}"),
        vector("sample_weight", sample_weight, rows, zero=True),
        vector(f"exposure{names}", exposure, rows, zero=False),
    )


def row_count(X: Any) -> int:
    """Rows of anything that will be read as a table."""
    if hasattr(X, "shape"):
        return X.shape[0] if len(X.shape) else 0
    try:
        return len(X) if hasattr(X, "__len__") else len(np.asarray(X))
    except TypeError:
        raise InputError(
            f"X must be a table with rows, got {type(X).__name__}. Pass an array or a data frame."
        ) from None


def _plain(values: Any) -> np.ndarray:
    series = nw.from_native(values, series_only=True, pass_through=True)
    return series.to_numpy() if isinstance(series, nw.Series) else np.asarray(values)


def counts(y: Any, rows: int, fractional: str = "error", name: str = "y") -> np.ndarray:
    """y as float64 counts; `fractional="round"` takes the nearest count instead of refusing."""
    if fractional not in ("error", "round"):
        raise ConfigError(f'fractional must be "error" or "round", got {fractional!r}. Choose one of the two.')
    if y is None:
        # The middle part is the sentence scikit-learn's checks look for.
        told = "this estimator requires y to be passed, but the target y is None"
        raise InputError(f"{name} must be given: {told}. Pass one count a row.")
    plain = _plain(y)
    if plain.dtype.kind not in "buifOUS":
        # The words in brackets are those scikit-learn's checks look for.
        words = " (Complex data not supported)" if plain.dtype.kind == "c" else ""
        raise InputError(f"{name} must hold numbers, got dtype {plain.dtype}{words}. Give counts 0, 1, 2, ...")
    plain = column_or_1d(plain, warn=True)
    if plain.dtype.kind in "OUS":
        plain = _numbers(plain, name)
    if len(plain) != rows:
        raise InputError(
            f"{name} must have one count a row of X, got {len(plain)} counts and {rows} rows: "
            f"inconsistent numbers of samples: [{rows}, {len(plain)}]. Align the two."
        )
    if rows == 0:
        raise InputError(f"{name} must hold at least one count, got 0 sample(s). Give it rows.")
    values = plain.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        words = "NaN" if np.isnan(values[bad[0]]) else "infinity or a value too large for dtype('float64')"
        raise InputError(
            f"{name} must be finite, got {values[bad[0]]} at row {bad[0]}. Input {name} contains {words}. "
            "Drop such rows."
        )
    bad = np.flatnonzero(values < 0)
    if len(bad):
        raise InputError(
            f"{name} must hold non-negative integers, got {values[bad[0]]:g} at row {bad[0]} "
            f"({len(bad)} negative in all). Recode or drop those rows."
        )
    bad = np.flatnonzero(values != np.floor(values))
    if len(bad) and fractional == "error":
        raise InputError(
            f"{name} must hold non-negative integers, got {values[bad[0]]:g} at row {bad[0]} "
            f'({len(bad)} fractional in all). Recode those rows, or pass fractional="round".'
        )
    return np.rint(values) if len(bad) else values


def _numbers(plain: np.ndarray, name: str) -> np.ndarray:
    for row, value in enumerate(plain.tolist()):
        if isinstance(value, str | bytes) or not np.isscalar(value) or isinstance(value, complex):
            raise InputError(f"{name} must hold numbers, got {value!r} at row {row}. Give counts 0, 1, 2, ...")
    return plain.astype(np.float64)


def vector(name: str, values: Any, rows: int, zero: bool) -> np.ndarray | None:
    """A weight or an exposure a row: finite, positive, or 0 where that is allowed. A single number serves all rows."""
    if values is None:
        return None
    plain = np.asarray(_plain(values))
    try:
        numbers = plain.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must hold numbers, got dtype {plain.dtype}. Pass one number a row.") from None
    numbers = np.full(rows, numbers) if numbers.ndim == 0 else numbers
    if numbers.shape != (rows,):
        raise InputError(
            f"{name} must have one value a row of X, got shape {numbers.shape} for {rows} rows. Align them."
        )
    good = (numbers >= 0 if zero else numbers > 0) & np.isfinite(numbers)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        what = "finite and not negative" if zero else "finite and positive"
        raise InputError(f"{name} must be {what}, got {numbers[row]:g} at row {row}. Recode or drop such rows.")
    if zero and rows and not numbers.any():
        raise InputError(f"{name} must be positive for some row, got zero weights only. Use None for equal weights.")
    return numbers


def collapsed(X: Any, found: Targets) -> tuple[Any, Targets]:
    """Rows that are the same become one with the sum of their weights, and rows of weight 0 none, in sorted order.

    For small numeric arrays only: with it a fit with integer weights and one with repeated rows are the same
    computation, not merely the same expectation.
    """
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "buif" or not np.isfinite(X).all():
        return X, found
    weight = np.ones(len(X)) if found.weight is None else found.weight
    kept = weight > 0
    extra = [found.y] if found.exposure is None else [found.y, found.exposure]
    table = np.column_stack([X, *extra])[kept]
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    first = np.full(len(unique), len(X))
    np.minimum.at(first, inverse.ravel(), np.flatnonzero(kept))
    total = np.bincount(inverse.ravel(), weights=weight[kept], minlength=len(unique))
    return X[first], Targets(found.y[first], total, None if found.exposure is None else found.exposure[first])


def exposure_unit(found: Targets) -> float:
    """The power of two next to the mean exposure: dividing by it loses no digit. 1 without exposures."""
    if found.exposure is None:
        return 1.0
    return float(2.0 ** np.round(np.log2(np.average(found.exposure, weights=found.weight))))


def in_units(found: Targets, unit: float) -> Targets:
    """With exposures divided by `unit`."""
    return found if found.exposure is None else found._replace(exposure=found.exposure / unit)
