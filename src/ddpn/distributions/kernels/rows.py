"""Loops over rows: one distribution after the other, whatever its family is, through the addresses of their kernels.

A row is a mixture of K components, given by (a, b, c, low, high) each, and weights. Components that are tables have
address 0; their probabilities are in `tables`.
"""

from math import inf, log, log1p

import numpy as np

from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.panels import of_row as by_panels
from ddpn.distributions.kernels.ranges import BLOCK, facts, information, log_range, log_total, long_log_prob, sides

LOG_PROB, WALK, PREPARED = loops.LOG_PROB, loops.WALK, loops.PREPARED
#: Rows of more counts than this take panels, unless their cdf is changed or they are cut off: these take all counts.
SHORT, LONGEST = loops.USUAL // 2, 1 << 16
#: Two probabilities within this share of each other are equal: the smaller count is the mode.
TIE = 1e-13
#: Components with a larger standard deviation are not summed count by count for a cdf.
WALKED, WIDTH = 16.0, loops.FACTS + 1
#: Rounding of a cdf.
ROUNDING = 1e-15
#: Tails of less mass than this are summed on their own: a walk leaves out 1e-18.
FAR = 1e-5
#: Relative error of sums of probabilities, which must not move a quantile.
SLACK = 1e-10


def call(address, operation, inputs, results, length):
    """A family's kernel at its address. `compiling` puts the compiled call here."""
    raise NotImplementedError


def log_probs(address, inputs, results):
    """log p and its derivatives (4, n) from y, a, b, c (4, n)."""
    given, found = np.zeros(8), np.zeros(8)
    for i in range(inputs.shape[1]):
        for j in range(4):
            given[j] = inputs[j, i]
        if call(address, LOG_PROB, given.ctypes.data, found.ctypes.data, 8) < 0:
            long_log_prob(address, given, found)
        for j in range(results.shape[0]):
            results[j, i] = found[j]


def log_ranges(address, inputs, results):
    """log P(low <= Z <= high) and its derivatives (4, n) from low, high, a, b, c (5, n)."""
    given, found = np.zeros(8), np.zeros(8)
    for i in range(inputs.shape[1]):
        for j in range(5):
            given[j] = inputs[j, i]
        log_range(address, given, found)
        for j in range(4):
            results[j, i] = found[j]


def all_facts(address, inputs, results):
    """log total, mean, variance, first and last count (5, n) from a, b, c, low, high (5, n)."""
    given, found = np.zeros(8), np.zeros(8)
    for i in range(inputs.shape[1]):
        for j in range(5):
            given[j] = inputs[j, i]
        facts(address, given, found)
        for j in range(5):
            results[j, i] = found[j]


def all_information(address, inputs, results):
    """Expected curvatures of -log p (3, n) from a, b, c (3, n)."""
    given, found = np.zeros(8), np.zeros(8)
    for i in range(inputs.shape[1]):
        for j in range(3):
            given[j] = inputs[j, i]
        information(address, given, found)
        for j in range(3):
            results[j, i] = found[j]


def cdfs(addresses, components, weights, y, results):
    """P(Z <= y) and P(Z > y) (2, n) of mixtures without tables, both relatively accurate."""
    rows, size = weights.shape
    scratch, record, found = np.empty(2 * SHORT), np.zeros(16), np.zeros(4)
    sums, buffer = np.zeros(9), np.zeros(5 * BLOCK)
    for i in range(rows):
        lower, upper = 0.0, 0.0
        for k in range(size):
            w = weights[i, k]
            if w > 0.0:
                component_sides(addresses[k], components[i, k], y[i], scratch, record, found, sums, buffer)
                lower += w * found[0]
                upper += w * found[1]
        results[0, i], results[1, i] = min(lower, 1.0), min(upper, 1.0)


def component_sides(address, component, y, scratch, record, found, sums, buffer):
    """P(Z <= y) and P(Z > y) of one component: from all its weights where these are few and y is not far out."""
    call(address, PREPARED, component.ctypes.data, record.ctypes.data, 1)
    n = -1
    if record[WIDTH] < WALKED:
        n = call(address, WALK, component.ctypes.data, scratch.ctypes.data, len(scratch))
    at = y - scratch[0]
    if n > 0 and 0.0 <= at < n:
        start, split = int(scratch[1]), int(scratch[1]) + int(at) + 1
        lower, upper = 0.0, 0.0
        for j in range(start, split):
            lower += scratch[j]
        for j in range(split, start + n):
            upper += scratch[j]
        lower, upper = lower / scratch[2], upper / scratch[2]
        if (lower > FAR or y >= component[4]) and (upper > FAR or y >= component[4]):
            found[0], found[1] = (lower, 1.0 - lower) if lower < upper else (1.0 - upper, upper)
            return
    whole = log_total(address, record, component[3], component[4], sums, buffer)
    sides(address, record, y, component[3], component[4], whole, found, sums, buffer)


def deep_quantiles(addresses, components, weights, levels, results):
    """Quantiles at levels so close to 0 or 1 that the sums of `summaries` do not reach them: by bisection."""
    for i in range(len(levels)):
        low, high = -1.0, 1.0
        while high < 1e300 and not reaches(addresses, components[i : i + 1], weights[i : i + 1], levels[i], high):
            low, high = high, 2.0 * high + 1.0
        while high - low > 1.0:
            middle = np.floor(0.5 * (low + high))
            if not low < middle < high:
                break
            if reaches(addresses, components[i : i + 1], weights[i : i + 1], levels[i], middle):
                high = middle
            else:
                low = middle
        results[i] = high


def reaches(addresses, components, weights, q, z):
    """Whether P(Z <= z) >= q, or P(Z > z) <= 1 - q for levels above 1/2; also where there is no number."""
    y, found = np.zeros(1), np.zeros((2, 1))
    y[0] = z
    cdfs(addresses, components, weights, y, found)
    if q <= 0.5:
        return not found[0, 0] < q * (1.0 - ROUNDING)
    return not found[1, 0] > (1.0 - q) * (1.0 + ROUNDING)


def summaries(
    addresses,
    components,
    weights,
    tables,
    firsts,
    counts,
    groups,
    capacity,
    change,
    limits,
    levels,
    y,
    coverage,
    entropy,
    moments,
    quantiles,
    scores,
    intervals,
):
    """Moments (n, 6), quantiles (n, L), CRPS (n, Q) and shortest intervals (n, 4, of which two are used).

    Moments are mean, variance, mode, entropy, and the variance within and between `groups` of components, if there are
    such. `change` (2, knots) is a map of cdfs, `limits` (n,) where counts are cut off; both may be empty. Rows whose
    components have more counts than `capacity` get a mean of NaN.
    """
    rows, size = weights.shape
    is_exact = change.shape[1] > 0 or len(limits) > 0
    place, grouped = np.zeros((size, 4)), np.zeros((len(groups), 3))
    arena, mass, below, above = np.empty(2 * capacity), np.empty(1 << 10), np.empty(1 << 10), np.empty(1 << 10)
    for i in range(rows):
        limit = limits[i] if len(limits) > 0 else inf
        used, first, last, has_table = 0, inf, -1.0, False
        for k in range(size):
            w = weights[i, k]
            place[k, 1] = 0.0
            if w <= 0.0:
                continue
            if used + capacity > len(arena):
                arena = longer(arena, used, used + capacity)
            if addresses[k] < 0:
                has_table, table = True, -addresses[k] - 1
                n, start, total, at = counts[table, i], firsts[table, i], 1.0, used
                if used + n > len(arena):
                    arena = longer(arena, used, used + n)
                for j in range(n):
                    arena[used + j] = tables[table, i, j]
            else:
                given = components.ctypes.data + 40 * (i * size + k)
                n = call(addresses[k], WALK, given, arena.ctypes.data + 8 * used, capacity)
                if n < 0:
                    last = inf
                    break
                start, at, total = arena[used], used + int(arena[used + 1]), arena[used + 2]
            place[k, 0], place[k, 1], place[k, 2], place[k, 3] = start, n, at, w / total
            used = at + n
            first, last = min(first, start), max(last, start + n - 1.0)
        if last == inf or (last - first > max(capacity, LONGEST) and not is_exact and not has_table):
            moments[i, 0] = np.nan
            continue
        n = int(last - first) + 1
        if n > len(mass):
            mass, below, above = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
        for j in range(n):
            mass[j] = 0.0
        if len(groups) > 0:
            for g in range(len(groups)):
                grouped[g, 0] = grouped[g, 1] = grouped[g, 2] = 0.0
        mean = 0.0
        for k in range(size):
            shift, at, share, count = int(place[k, 0] - first), int(place[k, 2]), place[k, 3], int(place[k, 1])
            if count == 0:
                continue
            s0, s1, s2, gap = 0.0, 0.0, 0.0, -float(count // 2)
            for j in range(count):
                w = share * arena[at + j]
                mass[shift + j] += w
                s0 += w
                s1 += w * gap
                s2 += w * gap * gap
                gap += 1.0
            if len(groups) > 0:
                own = shift + count // 2 + s1 / s0
                add_group(grouped, groups[k], s0, own, s2 / s0 - (s1 / s0) ** 2)
                mean += s0 * own
        if len(groups) > 0:
            finish_groups(grouped, mean, moments, i)
        if change.shape[1] > 0 and n <= LONGEST:
            changed(mass, n, change)
        if limit < last:
            n = cut_off(mass, n, first, limit)
        totals(mass, below, above, n)
        described(mass, n, first, entropy, moments, i)
        for j in range(levels.shape[1]):
            quantiles[i, j] = first + place_of(below, above, n, levels[i, j])
        for j in range(y.shape[1]):
            scores[i, j] = crps(below, above, n, first, y[i, j], limit)
        if coverage > 0.0:
            shortest(below, mass, n, first, coverage, intervals, i)


def add_group(grouped, g, weight, mean, variance):
    """A component more in a group: its weight, mean, and weight times variance, by Chan's formula."""
    before, total = grouped[g, 0], grouped[g, 0] + weight
    gap = mean - grouped[g, 1]
    grouped[g, 0] = total
    grouped[g, 1] += gap * weight / total
    grouped[g, 2] += weight * variance + gap * gap * before * weight / total


def finish_groups(grouped, mean, moments, i):
    """The variance within and between groups."""
    within, between = 0.0, 0.0
    for g in range(len(grouped)):
        if grouped[g, 0] > 0.0:
            within += grouped[g, 2]
            between += grouped[g, 0] * (grouped[g, 1] - mean) ** 2
    moments[i, 4], moments[i, 5] = within, between


def longer(array, used, size):
    """A longer array that starts with what is used of another one."""
    made = np.empty(2 * size)
    for j in range(used):
        made[j] = array[j]
    return made


def long_summaries(
    addresses, components, weights, groups, levels, y, coverage, entropy, moments, quantiles, scores, intervals
):
    """As `summaries`, for rows of any number of counts, without tables and changes."""
    known, grouped = np.zeros((len(addresses), 8)), np.zeros((len(groups), 3))
    for i in range(len(weights)):
        by_panels(
            addresses,
            components[i],
            weights[i],
            known,
            levels[i],
            y[i],
            coverage,
            entropy,
            moments[i],
            quantiles[i],
            scores[i],
            intervals[i],
        )
        if len(groups) > 0:
            for g in range(len(groups)):
                grouped[g, 0] = grouped[g, 1] = grouped[g, 2] = 0.0
            for k in range(len(groups)):
                if weights[i, k] > 0.0:
                    add_group(grouped, groups[k], weights[i, k], known[k, 1], known[k, 2])
            finish_groups(grouped, moments[i, 0], moments, i)


def changed(mass, n, change):
    """Probabilities of a cdf G(F), with a piecewise-linear map G: the slopes of G times the parts of each mass."""
    piece, upto, knots = 0, 0.0, change.shape[1]
    slope = (change[1, 1] - change[1, 0]) / (change[0, 1] - change[0, 0])
    for j in range(n):
        rest, found = mass[j], 0.0
        while piece < knots - 2 and upto + rest > change[0, piece + 1]:
            part = max(change[0, piece + 1] - upto, 0.0)
            found += slope * part
            rest -= part
            upto = change[0, piece + 1]
            piece += 1
            slope = (change[1, piece + 1] - change[1, piece]) / (change[0, piece + 1] - change[0, piece])
        upto += rest
        mass[j] = found + slope * rest


def cut_off(mass, n, first, limit):
    """All mass from the limit on is at the limit; the number of counts that are left."""
    at = 0 if limit <= first else int(limit - first)
    total = 0.0
    for j in range(n - 1, at - 1, -1):
        total += mass[j]
    mass[at] = total
    return at + 1


def totals(mass, below, above, n):
    """P(Z <= z) and P(Z > z)."""
    total = 0.0
    for j in range(n):
        total += mass[j]
        below[j] = total
    total = 0.0
    for j in range(n - 1, -1, -1):
        above[j] = total
        total += mass[j]


def described(mass, n, first, entropy, results, i):
    """Mean, variance, mode and entropy."""
    best, at = -1.0, 0
    for j in range(n):
        if mass[j] > best * (1.0 + TIE):
            best, at = mass[j], j
    total, shift, square, spread = 0.0, 0.0, 0.0, 0.0
    for j in range(n):
        gap = float(j - at)
        total += mass[j]
        shift += mass[j] * gap
        square += mass[j] * gap * gap
    shift /= total
    results[i, 0], results[i, 1] = first + at + shift, max(square / total - shift * shift, 0.0)
    results[i, 2] = first + at
    if entropy:
        others = 0.0
        for j in range(n):
            if j != at and mass[j] > 0.0:
                others += mass[j]
                spread -= mass[j] * log(mass[j])
        results[i, 3] = spread - (1.0 - others) * log1p(-others) if others < 0.5 else spread - best * log(best)


def place_of(below, above, n, q):
    """The first place whose cdf is at least q."""
    low, high = 0, n - 1
    if q <= 0.5:
        level = q * (1.0 - SLACK)
        while low < high:
            middle = (low + high) // 2
            if below[middle] >= level:
                high = middle
            else:
                low = middle + 1
        return low
    level = (1.0 - q) * (1.0 + SLACK)
    while low < high:
        middle = (low + high) // 2
        if above[middle] <= level:
            high = middle
        else:
            low = middle + 1
    return low


def crps(below, above, n, first, y, limit):
    """Sum of (F(z) - 1[z >= y])^2 over the counts below the limit."""
    at = min(max(int(min(max(y - first, -1.0), 4e18)), 0), n)
    total = 0.0
    for j in range(at):
        total += below[j] * below[j]
    for j in range(at, n):
        total += above[j] * above[j]
    return total + max(min(y, limit) - first - n, 0.0) + max(first - y, 0.0)


def shortest(below, mass, n, first, coverage, results, i):
    """First and last count of the shortest range that holds `coverage`; of several the first."""
    best, last = n, 0
    wanted = coverage * (1.0 - SLACK)
    results[i, 0], results[i, 1] = first, first + n - 1.0
    for j in range(n):
        last = max(last, j)
        while last < n - 1 and below[last] - below[j] + mass[j] < wanted:
            last += 1
        if below[last] - below[j] + mass[j] < wanted:
            break
        if last - j < best:
            best, results[i, 0], results[i, 1] = last - j, first + j, first + last
