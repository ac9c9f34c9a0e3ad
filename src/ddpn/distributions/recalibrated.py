"""Count distributions whose cdf is recalibrated: F'(y) = G(F(y)) with a monotone map G."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import quantiles, tables
from ddpn.distributions.arguments import check_coverage
from ddpn.distributions.count import CountDistribution, bracket_of, crps_of
from ddpn.distributions.discretized import discretized
from ddpn.distributions.dispatch import Case, by_case, take
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.grid_summary import Summary
from ddpn.distributions.keeping import kept
from ddpn.distributions.mixture import Mixture
from ddpn.distributions.mixture_tables import FEW
from ddpn.distributions.monotone import MonotoneMap
from ddpn.distributions.rows import DEPTH, Cut, Rows
from ddpn.distributions.tables import Method, TabulatedRows, by_window

#: A quantile is looked up at a level so much lower, relatively: G and its inverse round a few times each.
_ROUNDING = 1e-14
#: Distributions whose windows have more counts stay as they are: their sums would take seconds and gigabytes.
LONGEST = 2**16


class RecalibratedRows(TabulatedRows):
    """Rows of another distribution with recalibrated cdfs. Sums run over all integers of the base's windows."""

    def __init__(self, base: Rows, change: MonotoneMap, far: Tensor | None = None) -> None:
        self.base, self.map, self.rounding = base, change, max(base.rounding, _ROUNDING)
        if far is None:
            far = base.upper_bound() > LONGEST
            if bool(far.any()):
                first, last = base.window()
                far = last - first > LONGEST
        self.far = far

    def __len__(self) -> int:
        return len(self.base)

    @property
    def device(self) -> torch.device:
        return self.base.device

    @property
    def copies(self) -> int:  # type: ignore[override]
        return self.base.copies

    def rows(self, index: Tensor | slice) -> "RecalibratedRows":
        return RecalibratedRows(self.base.rows(index), self.map, take(self.far, index))

    def prepared(self, far: bool = False) -> "RecalibratedRows":
        return RecalibratedRows(self.base.prepared(far), self.map, self.far)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        is_usual = isinstance(depth, float) and depth == DEPTH
        return (self.base.window_from_zero() if is_usual else None) or self.base.window(depth)

    def upper_bound(self) -> Tensor:
        return self.base.upper_bound()

    def by_span(self, near: Method, far: Method, *extra: Tensor) -> tuple[Tensor, ...]:
        """`near` of these rows, but `far` of the base's rows where these are too long for tables."""
        if not bool(self.far.any()):
            return near(self, *extra)
        cases = [Case(~self.far, near, 1), Case(self.far, lambda rows, *more: far(rows.base, *more), 1)]
        return by_case(cases, self, *extra, sort=True)

    def log_pmf(self, y: Tensor) -> Tensor:
        log_p = self.base.log_pmf(y)
        if y.dim() == 1:
            cdf, far = self.base.sides(y)[0], self.far
        else:
            row = torch.arange(len(self), device=self.device).repeat_interleave(y.shape[1])
            cdf, far = self.base.rows(row).sides(y.flatten())[0].view_as(y), self.far.unsqueeze(1)
        return log_p + torch.where(far, 0.0, self.map.mean_slope(log_p.exp(), cdf).log())

    def pmf_first(self, n: int) -> Tensor:
        return self._changed(self.base.pmf_first(n))

    def pmf_table(self, n: int) -> Tensor:
        return self._changed(self.base.pmf_table(n))

    def pmf_window(self, y: Tensor) -> Tensor:
        return self._changed(self.base.pmf_window(y))

    def _changed(self, pmf: Tensor) -> Tensor:
        """The pmf on consecutive integers that nothing of weight comes before. Shape: (rows, n)."""
        return self.map.changed(pmf)

    def crps(self, at: tables.Table, y: Tensor) -> tuple[Tensor]:
        """CRPS from a table of the base: G is applied to sums of its pmf from either end."""
        cdf, survival = tables.both_tails(at.pmf)
        return tables.crps_of_tails(at.y, self.map(cdf), self.map.mirrored()(survival), y)

    def by_table(self, short: Method, *extra: Tensor, changed: bool = True) -> tuple[Tensor, ...]:
        """`short(table, *extra)` of each row's whole table; of the base's unless `changed`."""
        from_zero = getattr(self.base, "from_zero", None)
        if from_zero is None or len(self) <= FEW:
            return by_window(self if changed else BaseTables(self), short, None, *extra)
        found: list[tuple[Tensor, tuple[Tensor, ...]]] = []
        for place, mass in from_zero.whole():
            rows, pmf = torch.from_numpy(place), torch.from_numpy(mass)
            y = tables.counts(pmf.shape[1], pmf.device).expand_as(pmf)
            at = tables.Table(y, self._changed(pmf) if changed else pmf)
            found.append((rows, short(at, *(x[rows] for x in extra))))
        rest = torch.ones(len(self), dtype=torch.bool)
        for rows, _ in found:
            rest[rows] = False
        if bool(rest.any()):
            far = self.rows(rest.nonzero().squeeze(1))
            values = by_window(far if changed else BaseTables(far), short, None, *(x[rest] for x in extra))
            found.append((rest.nonzero().squeeze(1), values))
        order = torch.cat([rows for rows, _ in found]).argsort()
        return tuple(torch.cat(x)[order] for x in zip(*(values for _, values in found), strict=True))

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        mean, variance = self.by_span(lambda rows: rows.by_table(tables.moments), lambda base: base.mean_variance())
        return mean, variance

    def moments_and_mode(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and mode, from one table per row."""
        mean, variance, mode = self.by_span(
            lambda rows: rows.by_table(lambda at: (*tables.moments(at), *tables.mode(at))),
            lambda base: (*base.mean_variance(), by_window(base, tables.mode, lambda rows: (rows.far_mode(),))[0]),
        )
        return mean, variance, mode

    def cut(self, y: Tensor) -> Cut:
        found = self.by_span(
            lambda rows, y: by_window(rows, tables.cut, None, y), lambda base, y: tuple(base.cut(y)), y
        )
        return Cut(*found)

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = self.base.sides(y)
        return torch.where(self.far, cdf, self.map(cdf)), torch.where(self.far, survival, self.map.mirrored()(survival))

    def base_level(self, q: Tensor) -> Tensor:
        """The level of the base's quantile. Shape: q (rows,) or (rows, n)."""
        far = self.far if q.dim() == 1 else self.far.unsqueeze(1)
        # G(F(y)) >= q exactly where F(y) >= the inverse of G at q.
        return torch.where(far, q, self.map.inverse(q - self.rounding * torch.minimum(q, 1.0 - q)))

    def quantile(self, q: Tensor) -> Tensor:
        return quantiles.smallest_count(self.base, self.base_level(q))


class BaseTables(TabulatedRows):
    """Rows whose tables are those of the base of recalibrated rows, for sums of their cdf."""

    def __init__(self, rows: RecalibratedRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def device(self) -> torch.device:
        return self._rows.device

    @property
    def copies(self) -> int:  # type: ignore[override]
        return self._rows.copies

    def rows(self, index: Tensor | slice) -> "BaseTables":
        return BaseTables(self._rows.rows(index))

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return self._rows.window(depth)

    def log_pmf(self, y: Tensor) -> Tensor:
        return self._rows.base.log_pmf(y)

    def pmf_table(self, n: int) -> Tensor:
        return self._rows.base.pmf_table(n)

    def pmf_window(self, y: Tensor) -> Tensor:
        return self._rows.base.pmf_window(y)


class Recalibrated(CountDistribution):
    """A count distribution whose cdf F is replaced by G(F), with a monotone map G: p(y) = G(F(y)) - G(F(y - 1)).

    Integers stay integers, and all of `CountDistribution` is exact: probabilities (relatively accurate in both tails),
    quantiles, intervals, entropy, CRPS, samples. Moments, entropy and CRPS sum over all counts that matter, which takes
    longer than for the base where these are many thousands. Distributions that span more than 65,536 counts stay as
    they are. There are no gradients.

    Parameters
    ----------
    base : Distribution
        A count distribution, or a Normal or mixture of Normals, which are rounded.
    change : MonotoneMap
        The map G, see `ddpn.calibration.recalibration.Recalibration`.

    Notes
    -----
    `aleatoric` and `epistemic` are the variance of the recalibrated distribution, divided as in the base: the exact
    parts of the base's variance, multiplied by the same factor. Those of the mixture itself are `base.aleatoric` and
    `base.epistemic`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> wider = MonotoneMap.of([0.0, 0.1, 0.9, 1.0], [0.0, 0.2, 0.8, 1.0])
    >>> dist = Recalibrated(Poisson(torch.tensor([4.0, 30.0]).double()), wider)
    >>> dist.interval(0.8)[1].tolist(), dist.base.interval(0.8)[1].tolist()
    ([8.0, 39.0], [7.0, 37.0])
    """

    def __init__(self, base: Distribution, change: MonotoneMap) -> None:
        self.base: Any = discretized(base)
        self.map = change.to(self.base._device)
        super().__init__(self.base.batch_shape, self.base._check)

    @cached_property
    def _like(self) -> Tensor:
        return self.base._like

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), finite and relatively accurate however far y is, as far as that of the base is."""
        y, dist, shape = self._paired(value)
        return self._shaped(dist.log_pmf(y), shape)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies."""
        return bracket_of(self, depth)

    def rows(self, index: Any) -> "Recalibrated":
        """The distributions of some rows along the first batch axis."""
        return Recalibrated(self.base.rows(index), self.map)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Recalibrated":
        """The same distributions, repeated along new or singleton batch axes."""
        return Recalibrated(self.base.expand(torch.Size(batch_shape)), self.map)

    def _reshape(self, shape: Sequence[int]) -> "Recalibrated":
        return Recalibrated(self.base._reshape(shape), self.map)

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base._leaves()

    def _flat(self, shape: torch.Size | None = None) -> RecalibratedRows:
        return RecalibratedRows(self.base._flat(shape), self.map)

    @without_gradient
    def crps(self, value: Tensor) -> Tensor:
        """Continuous ranked probability score, sum over z of (F(z) - 1[z >= y])^2; smaller is better."""
        y, dist, shape = self._paired(value)
        found = dist.by_span(
            lambda rows, y: rows.by_table(rows.crps, y, changed=False),
            crps_of,
            y,
        )
        return self._shaped(found[0], shape)

    @without_gradient
    def entropy(self) -> Tensor:
        """-E[log p(Z)] in nats."""
        found = self._flat().by_span(
            lambda rows: rows.by_table(tables.entropy), lambda base: (tables.entropy_of(base),)
        )
        return self._shaped(found[0])

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smallest of several."""
        return self._moments[2]

    @torch.no_grad()
    def summary(self, levels: Tensor) -> Summary:
        """Quantiles (rows, n) and mode (rows,) at once, and the entropy.

        Parameters
        ----------
        levels : Tensor
            Levels in (0, 1) per row, of shape (rows, n), or (n,) for all rows of a batch shape (rows,).
        """
        q, dist = torch.as_tensor(levels, dtype=torch.float64, device=self._device), self._flat()
        found = quantiles.smallest_counts(dist.base, dist.base_level(q.expand(len(dist), q.shape[-1])))
        return Summary(found.to(self._dtype), self.mode, self.entropy)

    def interval(self, coverage: float, kind: str = "central") -> tuple[Tensor, Tensor]:
        """Counts (low, high), both included, as for any `CountDistribution`."""
        if kind != "highest":
            return super().interval(coverage, kind)
        coverage = check_coverage(coverage)

        def shortest(rows: Rows) -> tuple[Tensor, Tensor]:
            return quantiles.highest(rows, coverage)

        with torch.no_grad():
            low, high = self._flat().by_span(shortest, shortest)
        return self._shaped(low), self._shaped(high)

    def sample(self, sample_shape: Any = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draws by inversion of the cdf, from uniforms in float64."""
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            dist, size = self._flat(), (shape.numel(), self.batch_shape.numel())
            u = torch.rand(size, dtype=torch.float64, device=self._device, generator=generator).T
            return self._shaped(quantiles.many_counts(dist.base, dist.base_level(u)).T, self._extended_shape(shape))

    @kept
    def _moments(self) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            mean, variance, mode = self._flat().moments_and_mode()
        return self._shaped(mean), self._shaped(variance), self._shaped(mode)

    @property
    @without_gradient
    def mean(self) -> Tensor:
        """Mean E[Z]."""
        return self._moments[0]

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Variance Var[Z]."""
        return self._moments[1]

    @property
    def size(self) -> int:
        """The number of components of the base, 1 where it is no mixture."""
        return self.base.size if isinstance(self.base, Mixture) else 1

    @property
    @without_gradient
    def epistemic(self) -> Tensor:
        """The part of the variance that the components of the base disagree about, in the proportion of the base."""
        if not isinstance(self.base, Mixture):
            return torch.zeros_like(self.variance)
        whole = self.base.variance
        return self.variance * torch.where(whole > 0, self.base.epistemic / whole, 0.0)

    @property
    @without_gradient
    def aleatoric(self) -> Tensor:
        """The part of the variance that more data would not remove, in the proportion of the base."""
        return self.variance - self.epistemic
