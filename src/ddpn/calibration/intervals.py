"""Intervals that hold what is asked of them: at which level a law's interval is taken, learnt from other rows."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import Mixture, discretized
from ddpn.distributions.arguments import check_coverage
from ddpn.errors import ConfigError, InputError
from ddpn.metrics import pit_bounds
from ddpn.sample import checked_sample as targets

FILE = "intervals.safetensors"
#: The laws' own word is asked at so many of their counts, all rows together, wherever it has a say.
_WORDS = 2000
#: Its multiples fill the interval from 0 to 1 evenly.
_GOLDEN = (5**0.5 - 1.0) / 2.0
#: A count enters an interval just above the level it needs; levels lie strictly between 0 and 1.
_JUST = 1e-9


def level_needed(law: Distribution, y: Tensor) -> Tensor:
    """The level from which on the law's central interval holds y: max(1 - 2 F(y), 2 F(y - 1) - 1, 0).

    Shape: y broadcasts with law.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> law, y = Poisson(torch.tensor([2.0, 2.0])), torch.tensor([0, 5])
    >>> level_needed(law, y)
    tensor([0.7293, 0.8947])
    >>> law.interval(0.89)[1], law.interval(0.9)[1]
    (tensor([4., 4.]), tensor([5., 5.]))
    """
    before, upto = pit_bounds(discretized(law), y)
    return torch.maximum(1.0 - 2.0 * upto, 2.0 * before - 1.0).clamp(min=0.0)


def level_expected(law: Distribution, rows: int, first: int = 0) -> Tensor:
    """The levels that the laws' own counts would need: quantiles that are spread over each law and over all of them.

    `rows` is how many laws there are in all, of which these are those from `first` on. Shape: (B, k).
    """
    counts: Any = discretized(law)
    each = max(1, _WORDS // rows)
    start = (first + torch.arange(counts.batch_shape[0], dtype=torch.float64) + 0.5) * _GOLDEN % 1.0
    return torch.stack([level_needed(counts, counts.icdf((start + k) / each)) for k in range(each)], dim=1)


class Levels(NamedTuple):
    """The levels that calibration rows need, in order, and what each row counts, 1 on average (split conformal).

    An interval of counts holds more than its level, much more where few counts have all the mass, and a law may be too
    sure or not sure enough. The level that held the asked share of the calibration rows makes up for both: where rows
    chose nothing else and the laws have no say, a new row like these lies inside with at least that probability, on
    average over calibration sets, whatever the law.
    """

    needed: np.ndarray
    weight: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(
        cls,
        needed: np.ndarray,
        weight: np.ndarray | None = None,
        expected: np.ndarray | None = None,
        law_rows: float = 0.0,
    ) -> Self:
        """From rows in any order, and from what the laws expect of them, which counts as `law_rows` more."""
        rows = len(needed)
        each = np.ones(rows) if weight is None else weight * (rows / weight.sum())
        if expected is not None and law_rows:
            words = np.repeat(each * (law_rows / rows / expected.shape[1]), expected.shape[1])
            needed, each = np.concatenate([needed, expected.ravel()]), np.concatenate([each, words])
        order = np.argsort(needed, kind="stable")
        return cls(np.ascontiguousarray(needed[order]), np.ascontiguousarray(each[order]), np.array([rows]))

    def at(self, coverage: float) -> float:
        """The level to take an interval at, so that it holds `coverage`.

        Where the rows are too few to tell (fewer than 9 for 90%), the asked level itself, or the most that any needed.

        >>> Levels.of(np.linspace(0.05, 0.95, 19)).at(0.9), Levels.of(np.array([0.2])).at(0.9)
        (0.900000001, 0.9)
        """
        coverage = check_coverage(coverage)
        # The new row counts too. A trace less than asked: sums of weights are not exact.
        total = np.cumsum(self.weight)
        wanted = coverage * (total[-1] + 1.0) - 1e-9 if len(total) else np.inf
        place = int(np.searchsorted(total, wanted))
        if place < len(self.needed):
            level = float(self.needed[place])
        else:
            level = max(coverage - _JUST, float(self.needed.max(initial=0.0)))
        return float(np.clip(level + _JUST, _JUST, 1.0 - _JUST))


def levels_by_blocks(
    laws: Iterable[Distribution], y: Tensor, law_rows: float = 0.0
) -> tuple[np.ndarray, np.ndarray | None]:
    """What every row needs and, where the laws have a say, what they expect. Shape: (N,), (N, k)."""
    needed, expected, rest = [], [], y
    for law in laws:
        part, rest = rest[: law.batch_shape[0]], rest[law.batch_shape[0] :]
        needed.append(level_needed(law, part).double())
        if law_rows:
            expected.append(level_expected(law, len(y), len(y) - len(rest) - len(part)).double())
    return torch.cat(needed).numpy(), torch.cat(expected).numpy() if expected else None


class CalibratedIntervals:
    """Intervals by calibration rows, for an estimator that gives its laws block by block (`_blocks`).

    After `fit_intervals`: `interval_levels_`, what the calibration rows need.
    """

    interval_levels_: Levels
    fractional: str

    def _blocks(self, X: Any, exposure: Any) -> Iterator[Mixture]:
        raise NotImplementedError

    def fit_intervals(
        self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, law_rows: float = 0.0
    ) -> Self:
        """Learn from rows that `fit` was not trained on at which level intervals hold what is asked.

        `predict_interval(..., kind="calibrated")` then takes each row's central interval at that level. The promise is
        for all rows together: where few counts have all the mass, some intervals hold more and some less. It is exact
        with `law_rows` 0. Few rows say little: the laws' own word then steadies theirs, and counts as `law_rows` rows.

        >>> from ddpn import CountRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (2300, 1))
        >>> y = rng.poisson(np.exp(X[:, 0] - 1))
        >>> model = CountRegressor(members=2, hidden=(16,), epochs=30, random_state=0).fit(X[:300], y[:300])
        >>> model = model.fit_intervals(X[300:1300], y[300:1300])
        >>> for kind in ("central", "calibrated"):
        ...     low, high = model.predict_interval(X[1300:], coverage=0.9, kind=kind).T
        ...     print(kind, round(float(((low <= y[1300:]) & (y[1300:] <= high)).mean()), 2))
        central 0.99
        calibrated 0.89
        """
        if not 0.0 <= law_rows < np.inf:
            raise ConfigError(f"law_rows must be finite and at least 0, got {law_rows}. Use 0 for an exact promise.")
        found = targets(X, y, sample_weight, exposure, self.fractional)
        used = np.ones(len(found.y), dtype=bool) if found.weight is None else found.weight > 0
        observed = torch.from_numpy(found.y)
        needed, expected = levels_by_blocks(self._blocks(X, exposure), observed, law_rows)
        weight = None if found.weight is None else found.weight[used]
        self.interval_levels_ = Levels.of(needed[used], weight, None if expected is None else expected[used], law_rows)
        return self

    def interval_level(self, coverage: float = 0.9) -> float:
        """The level of the laws' intervals that hold `coverage`; the coverage itself before `fit_intervals`."""
        levels = getattr(self, "interval_levels_", None)
        return check_coverage(coverage) if levels is None else levels.at(coverage)

    def _calibrated_interval(self, law: Mixture, coverage: float) -> tuple[Tensor, Tensor]:
        if not hasattr(self, "interval_levels_"):
            raise InputError(
                'kind must be "central" or "highest" before fit_intervals, got "calibrated". '
                "Call fit_intervals with rows that fit was not trained on."
            )
        return discretized(law).interval(self.interval_level(coverage))

    # Keeping -----------------------------------------------------------------------------------------------------

    def _forget_intervals(self) -> None:
        """Levels of another fit say nothing about this one."""
        self.__dict__.pop("interval_levels_", None)

    def _saved_intervals(self) -> dict[str, bytes]:
        """Files by name; none without calibration."""
        levels = getattr(self, "interval_levels_", None)
        return {} if levels is None else {FILE: save_arrays(levels._asdict())}

    def _restore_intervals(self, files: dict[str, bytes], path: Path) -> None:
        if FILE not in files:
            return
        try:
            arrays = load_arrays(files[FILE])
            self.interval_levels_ = Levels(*(arrays[name] for name in Levels._fields))
        except (KeyError, SafetensorError) as error:
            raise InputError(f"{path / FILE} must hold levels, got {error}. Save the model again.") from None
