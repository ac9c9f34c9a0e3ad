"""Sums of a pmf over a range of counts, in logarithms: short ranges integer by integer, long ones by quadrature.

A rule is positions z, log p(z) and weights w, with which sum w p(z) g(z) is the sum of p g over all counts of the range
for every smooth g. Positions and weights are constants; where log p carries gradients, so do all sums, to any order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions import panels, tables
from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.distributions.quadrature import JOIN, PREFIX, between, cut_weights, prefix
from ddpn.distributions.rows import DEPTH, MARGIN

#: Sizes of ranges that are summed integer by integer.
_SHORT = (8, 32, 128)


class Rule(NamedTuple):
    """Positions, log p there, and weights. Shape: each (rows, n)."""

    z: Tensor
    log_p: Tensor
    weight: Tensor


Reduce = Callable[[Rule], tuple[Tensor, ...]]


def log_total(rule: Rule) -> tuple[Tensor]:
    """log sum p; minus infinity, without a gradient, where there is no mass."""
    mass, top = _scaled(rule)
    total = mass.sum(1)
    return (torch.where(total > 0, torch.where(total > 0, total, 1.0).log() + top, -torch.inf),)


def moments(rule: Rule) -> tuple[Tensor, Tensor]:
    """Mean and variance under p on the range, summed around the largest term: tiny variances stay right."""
    mass, _ = _scaled(rule)
    share = mass / mass.sum(1, keepdim=True).clamp(min=1e-300)
    centre = rule.z.gather(1, mass.detach().argmax(1, keepdim=True))
    gap = rule.z - centre
    shift = (share * gap).sum(1)
    return centre.squeeze(1) + shift, (share * gap * gap).sum(1) - shift**2


def log_total_and_mean(rule: Rule) -> tuple[Tensor, Tensor]:
    """`log_total` and the mean of `moments`."""
    return *log_total(rule), moments(rule)[0]


def _scaled(rule: Rule) -> tuple[Tensor, Tensor]:
    """Weighted p over its largest value, and the logarithm of that value."""
    unused = rule.weight == 0
    with torch.no_grad():
        top = rule.log_p.masked_fill(unused, -torch.inf).amax(1)
        top = torch.where(torch.isfinite(top), top, 0.0)
    return rule.weight * (rule.log_p - top.unsqueeze(1)).masked_fill(unused, -torch.inf).exp(), top


def over(rows: Any, start: Tensor, end: Tensor, reduce: Reduce) -> tuple[Tensor, ...]:
    """`reduce` of a rule for the counts start..end, both included; end may be infinite, start beyond end.

    rows: `SmoothRows`, or `TabulatedRows`; their `log_pmf` may carry gradients.
    """
    start = start.clamp(min=0.0)
    if not is_host(start):
        return _beyond(reduce, rows, start, end)
    length = end - start + 1.0
    cases, low = [], -torch.inf
    for n in _SHORT[:-1]:
        cases.append(Case((length > low) & (length <= n), partial(_by_integers, n, reduce), n * rows.copies))
        low = float(n)
    cases.append(Case(length > low, partial(_beyond, reduce), 1))
    return by_case(cases, rows, start, end)


def _beyond(reduce: Reduce, rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """Ranges that may be long: only the part that has mass is summed."""
    with torch.no_grad():
        first, last = ends(rows, start, end)
        length = last - first + 1.0
    cases, low = [], -torch.inf
    for n in _SHORT[1:] if is_host(start) else _SHORT[-1:]:
        cases.append(Case((length > low) & (length <= n), partial(_by_integers, n, reduce), n * rows.copies))
        low = float(n)
    rest = length > low
    if rows.tabulated:
        cases += tables.by_length(rest, length, lambda n: partial(_by_integers, n, reduce), rows.copies)
        return by_case(cases, rows, first, last, sort=True)
    width, at_zero = panels.NODES * rows.panels + PREFIX + 16, first < JOIN
    cases.append(Case(rest & at_zero, partial(_from_zero, reduce), width))
    cases.append(Case(rest & ~at_zero, partial(_between_cuts, reduce), width))
    return by_case(cases, rows, first, last)


def ends(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The part of start..end that holds all but e^-DEPTH of its mass."""
    return (_ends_by_bracket if rows.tabulated else _ends)(rows, start, end)


def _ends(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    below, above = end < rows.location, start > rows.location

    def across(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        return rows.window()

    def lower(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        at = torch.minimum(end, rows.location).clamp(min=0.0)
        return rows.tail_end(at, torch.ones_like(at, dtype=torch.bool)), end

    def upper(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        at = torch.maximum(start, rows.location).clamp(min=0.0)
        return start, rows.tail_end(at, torch.zeros_like(at, dtype=torch.bool))

    cases = [Case(below, lower, 1), Case(above & ~below, upper, 1), Case(~(below | above), across, 1)]
    first, last = by_case(cases, rows, start, end)
    return torch.maximum(start, first.floor() - MARGIN), torch.minimum(end, last.ceil() + MARGIN)


def _ends_by_bracket(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The same from windows deep enough to hold what a range beyond the usual one has."""
    first, last = rows.window()
    nearest = torch.minimum(torch.maximum(start, first), torch.minimum(last, end)).clamp(min=0.0)
    outside = (end < first) | (start > last)
    nearest = torch.where(outside, torch.where(end < first, end, start), nearest)
    depth = torch.where(outside & (start <= end), -rows.log_pmf(nearest.unsqueeze(1)).squeeze(1), 0.0)
    deepest = depth.masked_fill(torch.isinf(depth), 0.0).max().item() if len(depth) else 0.0
    if deepest > 0.0:
        first, last = rows.window(DEPTH + deepest)
    return torch.maximum(start, first), torch.minimum(end, last)


def _by_integers(n: int, reduce: Reduce, rows: Any, first: Tensor, last: Tensor) -> tuple[Tensor, ...]:
    z = first.unsqueeze(1) + tables.counts(n, first.device)
    # Positions beyond the range repeat its end, so that they are those of possible counts.
    inside = (z <= last.unsqueeze(1)).to(z.dtype)
    z = torch.minimum(z, torch.maximum(first, last).unsqueeze(1))
    return reduce(Rule(z, rows.log_pmf(z), inside))


def _between_cuts(reduce: Reduce, rows: Any, first: Tensor, last: Tensor) -> tuple[Tensor, ...]:
    """Panels between first - 1/2 and last + 1/2, with the corrections of both cuts."""
    first, last = _long(first, last, JOIN)
    x, weight = _nodes(rows, first - 0.5, last + 0.5)
    offsets, cut = cut_weights(first.device)
    z = torch.cat([(y.unsqueeze(1) + offsets).clamp(min=12.0) for y in (first - 1.0, last)], dim=1)
    weights = torch.cat([weight, torch.cat([-cut, cut]).expand(len(z), -1)], dim=1)
    log_p = torch.cat([rows.smooth_log_pmf(x), rows.log_pmf(z)], dim=1)
    return reduce(Rule(torch.cat([x, z], dim=1), log_p, weights))


def _from_zero(reduce: Reduce, rows: Any, first: Tensor, last: Tensor) -> tuple[Tensor, ...]:
    """The first counts one by one, then panels up to last + 1/2 with the correction of that cut."""
    first, last = _long(first, last, 0)
    x, weight = _nodes(rows, torch.full_like(first, JOIN - 0.5), last + 0.5)
    counts, joined = prefix(first.device)
    offsets, cut = cut_weights(first.device)
    head = joined - (counts < first.unsqueeze(1)).to(joined.dtype)
    z = torch.cat([counts.expand_as(head), (last.unsqueeze(1) + offsets).clamp(min=12.0)], dim=1)
    weights = torch.cat([weight, head, cut.expand(len(z), -1)], dim=1)
    log_p = torch.cat([rows.smooth_log_pmf(x), rows.log_pmf(z)], dim=1)
    return reduce(Rule(torch.cat([x, z], dim=1), log_p, weights))


def _long(first: Tensor, last: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Ranges as they are; where another method is the right one, as all methods see all rows of a GPU, any long range.

    Its results are dropped, but infinite ones would make gradients NaN.
    """
    first = first.clamp(min=least)
    return first, torch.maximum(last, first + _SHORT[-1])


def _nodes(rows: Any, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        ends = rows.spread(start, end)
        x, weight = between(ends[:, :-1], ends[:, 1:], panels.NODES)
    return x.flatten(1), weight.flatten(1)
