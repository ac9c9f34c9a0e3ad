"""Rows whose counts are too many to add one by one: a mixture on segments, of counts or of Gauss-Legendre panels.

A panel holds the polynomial through the smooth continuation f of the pmf at 16 nodes. Its counts sum to the integral of
g = f - f'' / 24 + 7 f'''' / 5760 over their cells of width 1 (Euler-Maclaurin), so that P(Z <= z) is the integral of g
up to z + 1/2. Where a component is narrow, and close to 0, segments are counts.
"""

from math import exp, inf, log
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from ddpn.distributions.kernels import loops, ranges
from ddpn.distributions.kernels.ranges import facts_of

PREPARED, TERMS, EDGE = loops.PREPARED, loops.TERMS, ranges.EDGE
#: A panel spans at most so many standard deviations: its polynomial then errs by 3e-12 of the pmf.
PANEL = 2.0
#: Components with a smaller standard deviation are summed count by count: g errs by 3e-11 at 16.
NARROW = 16.0
#: Counts of a segment without a panel.
RUN = 64
#: Two probabilities within this share of each other are equal: the smaller count is the mode.
TIE = 1e-15

#: Relative rounding of the masses of segments, which must not move a quantile.
SLACK = 1e-11

SIZE = 16
_X, _W = legendre.leggauss(SIZE)
_FIT = np.linalg.inv(legendre.legvander(_X, SIZE - 1))


def _matrix(change):
    """From values at the nodes to those of the changed polynomial there."""
    columns = [legendre.legval(_X, change(_FIT[:, j])) for j in range(SIZE)]
    return np.ascontiguousarray(np.stack(columns, axis=1))


#: Values at nodes -> second and fourth derivative there, and Legendre coefficients; in [-1, 1].
SECOND = _matrix(lambda c: legendre.legder(c, 2))
FOURTH = _matrix(lambda c: legendre.legder(c, 4))
FIT = np.ascontiguousarray(_FIT)
NODES, WEIGHTS = (_X + 1.0) / 2.0, _W / 2.0


#: A family's kernel at its address: (address, operation, inputs, results, length). `compiling` puts it here.
call: Any = None


def of_row(addresses, components, weights, known, levels, y, entropy, moments, quantiles, scores):
    """Mean, variance, mode, entropy, quantiles and CRPS of one mixture, as in `rows.summaries`."""
    records = np.zeros((len(weights), 16))
    sums, buffer = np.zeros(9), np.zeros(5 * RUN)
    for k in range(len(weights)):
        if weights[k] > 0.0:
            call(addresses[k], PREPARED, components[k].ctypes.data, records[k].ctypes.data, 1)
            facts_of(addresses[k], records[k], components[k, 3], components[k, 4], known[k], sums, buffer)
    segments = np.zeros((segmented(known, weights, np.zeros((0, 5))), 5))
    segmented(known, weights, segments)
    if len(segments) == 0:
        moments[0] = moments[1] = moments[2] = moments[3] = np.nan
        quantiles[:], scores[:] = np.nan, np.nan
        return
    nodes, values = np.zeros((len(segments), RUN)), np.zeros((len(segments), RUN))
    cells = np.zeros((len(segments), RUN))
    for s in range(len(segments)):
        evaluated(addresses, records, weights, known, segments[s], nodes[s], values[s], buffer)
    mass, below, above = np.zeros(len(segments)), np.zeros(len(segments)), np.zeros(len(segments))
    spread = integrated(segments, values, cells, mass, entropy)
    mixed_moments(known, weights, moments)
    moments[2] = mode(addresses, records, weights, known, segments, nodes, values, buffer)
    moments[3] = spread
    for s in range(1, len(mass)):
        below[s] = below[s - 1] + mass[s - 1]
        last = len(mass) - s
        above[last - 1] = above[last] + mass[last]
    for j in range(len(levels)):
        quantiles[j] = quantile(segments, cells, mass, below, above, levels[j])
    for j in range(len(y)):
        scores[j] = crps(segments, cells, mass, below, above, y[j])


def mixed_moments(known, weights, moments):
    """Mean and variance of the mixture."""
    mean, variance, total = 0.0, 0.0, 0.0
    for k in range(len(weights)):
        mean += weights[k] * known[k, 1]
        total += weights[k]
    mean /= total
    for k in range(len(weights)):
        variance += weights[k] * (known[k, 2] + (known[k, 1] - mean) ** 2)
    moments[0], moments[1] = mean, variance / total


def segmented(known, weights, segments):
    """Left end, length and kind (1 for a panel) of each segment, as many as there is room for; their number."""
    x, last = inf, -1.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            x, last = min(x, known[k, 3] - 0.5), max(last, known[k, 4] + 0.5)
    count = 0
    while x < last:
        reach, next_end, is_panel, is_empty = inf, last, x >= EDGE - 0.5, True
        for k in range(len(weights)):
            if weights[k] <= 0.0:
                continue
            first, end, width = known[k, 3] - 0.5, known[k, 4] + 0.5, known[k, 5]
            if first > x:
                next_end = min(next_end, first)
            elif end > x:
                is_empty = False
                next_end = min(next_end, end)
                if width < NARROW:
                    is_panel = False
                reach = min(reach, np.floor(min(PANEL * width, 3.0 * x)))
        if is_empty:
            x = next_end
            continue
        if not x < 1e300:
            return 0
        room = next_end - x
        if is_panel and room < RUN:
            is_panel = False
        length = min(reach, room) if is_panel else min(float(RUN), room)
        if not is_panel and x < EDGE - 0.5:
            length = min(length, EDGE - 0.5 - x)
        if not x + length > x:
            return 0  # counts that float64 cannot tell apart
        if count < len(segments):
            segments[count, 0], segments[count, 1] = x, length
            segments[count, 2] = 1.0 if is_panel else 0.0
        count += 1
        x += length
    return count


def evaluated(addresses, records, weights, known, segment, nodes, values, buffer):
    """Positions in a segment, and the mixture's pmf there."""
    left, length = segment[0], segment[1]
    n = SIZE if segment[2] > 0.0 else int(length + 0.25)
    segment[3] = n
    for i in range(n):
        nodes[i] = left + length * NODES[i] if segment[2] > 0.0 else left + 0.5 + i
    for k in range(len(weights)):
        if weights[k] > 0.0 and known[k, 3] - 0.5 < left + length and known[k, 4] + 0.5 > left:
            add_mass(addresses[k], records[k], weights[k], known[k], nodes, values, n, buffer)


def add_mass(address, record, weight, known, nodes, values, n, buffer):
    """Add the weighted pmf of a component at positions."""
    for i in range(n):
        buffer[i] = nodes[i]
    call(address, TERMS, record.ctypes.data, buffer.ctypes.data, n)
    for i in range(n):
        if known[3] - 0.5 <= nodes[i] <= known[4] + 0.5:
            values[i] += weight * exp(buffer[n + i] - known[0])


def to_cells(values, length, cells):
    """Masses of cells per width at the nodes of a panel: g from f."""
    second, fourth = 4.0 / (24.0 * length**2), 16.0 * 7.0 / (5760.0 * length**4)
    for i in range(SIZE):
        total = values[i]
        for j in range(SIZE):
            total += (fourth * FOURTH[i, j] - second * SECOND[i, j]) * values[j]
        cells[i] = total


def integrated(segments, values, cells, mass, entropy):
    """The masses of cells, and of each segment; returns the entropy."""
    own, spread = np.zeros(RUN), 0.0
    for s in range(len(segments)):
        n, length, is_panel = int(segments[s, 3]), segments[s, 1], segments[s, 2] > 0.0
        if is_panel:
            to_cells(values[s], length, cells[s])
        for i in range(n):
            if not is_panel:
                cells[s, i] = values[s, i]
            mass[s] += cells[s, i] * (length * WEIGHTS[i] if is_panel else 1.0)
            own[i] = -values[s, i] * log(values[s, i]) if entropy and values[s, i] > 0.0 else 0.0
        if entropy:
            for i in range(n):
                inner = own[i]
                if is_panel:
                    for j in range(SIZE):
                        inner -= 4.0 / (24.0 * length**2) * SECOND[i, j] * own[j]
                spread += inner * (length * WEIGHTS[i] if is_panel else 1.0)
    return spread


def crps(segments, cells, mass, below, above, y):
    """Sum of F(z)^2 over the counts below y and of (1 - F(z))^2 over the others."""
    coefficients, total = np.zeros(SIZE), 0.0
    end = segments[0, 0]
    for s in range(len(segments)):
        left, length, n = segments[s, 0], segments[s, 1], int(segments[s, 3])
        # Counts between segments, where no mass is.
        gap, under = left - end, min(max(y - 0.5 - end, 0.0), left - end)
        total += under * below[s] ** 2 + (gap - under) * (above[s] + mass[s]) ** 2
        end = left + length
        if segments[s, 2] == 0.0:
            inner = 0.0
            for i in range(n):
                inner += cells[s, i]
                rest = above[s] + max(mass[s] - inner, 0.0)
                total += (below[s] + inner) ** 2 if left + 0.5 + i < y else rest**2
            continue
        fitted(cells[s], coefficients)
        cut = min(max(y - 0.5 - left, 0.0), length)
        total += squares(coefficients, cells[s], below[s], length, 0.0, cut)
        total += squares(coefficients, cells[s], -above[s] - mass[s], length, cut, length)
    return total + max(y - 0.5 - end, 0.0) + max(segments[0, 0] + 0.5 - y, 0.0)


def squares(coefficients, cells, offset, length, first, last):
    """Sum over the cells between two places of a panel of the square of `offset` and the mass up to their right ends.

    The integral, and what Euler and Maclaurin add to it at both ends.
    """
    if last <= first:
        return 0.0
    total = 0.0
    for i in range(SIZE):
        t = 2.0 * (first + (last - first) * NODES[i]) / length - 1.0
        total += (last - first) * WEIGHTS[i] * (offset + 0.5 * length * share_upto(coefficients, t)) ** 2
    for side in range(2):
        t = 2.0 * (last if side == 1 else first) / length - 1.0
        inner = offset + 0.5 * length * share_upto(coefficients, t)
        total += (2.0 * side - 1.0) * (0.5 * inner * inner + inner * at(cells, t) / 6.0)
    return total


def at(cells, t):
    """The polynomial of a panel at t in [-1, 1]."""
    before, here, total = 0.0, 1.0, 0.0
    for j in range(SIZE):
        coefficient = 0.0
        for i in range(SIZE):
            coefficient += FIT[j, i] * cells[i]
        total += coefficient * here
        before, here = here, ((2.0 * j + 1.0) * t * here - j * before) / (j + 1.0)
    return total


def fitted(cells, coefficients):
    """Legendre coefficients of a panel."""
    for j in range(SIZE):
        coefficients[j] = 0.0
        for i in range(SIZE):
            coefficients[j] += FIT[j, i] * cells[i]


def share_upto(coefficients, t):
    """The integral of a Legendre series from -1 to t: that of P_j is (P_(j+1) - P_(j-1)) / (2 j + 1)."""
    before, here = 1.0, t
    total = coefficients[0] * (t + 1.0)
    for j in range(1, SIZE):
        after = ((2.0 * j + 1.0) * t * here - j * before) / (j + 1.0)
        total += coefficients[j] * (after - before) / (2.0 * j + 1.0)
        before, here = here, after
    return total


def quantile(segments, cells, mass, below, above, q):
    """The smallest count with P(Z <= z) >= q, up to the rounding of sums."""
    lower = q <= 0.5
    q = q * (1.0 - SLACK) if lower else 1.0 - (1.0 - q) * (1.0 + SLACK)
    s, last = 0, len(segments) - 1
    if lower:
        while s < last and below[s] + mass[s] < q:
            s += 1
    else:
        while s < last and above[s] > 1.0 - q:
            s += 1
    left, length, n = segments[s, 0], segments[s, 1], int(segments[s, 3])
    if segments[s, 2] == 0.0:
        total = 0.0
        for i in range(n):
            total += cells[s, i]
            is_enough = below[s] + total >= q if lower else above[s] + mass[s] - total <= 1.0 - q
            if is_enough:
                return left + 0.5 + i
        return left - 0.5 + n
    coefficients = np.empty(SIZE)
    fitted(cells[s], coefficients)
    low, high = 0.0, length  # the smallest number of cells that is enough
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))
        if not low < middle < high:
            break
        found = 0.5 * length * share_upto(coefficients, 2.0 * middle / length - 1.0)
        is_enough = below[s] + found >= q if lower else above[s] + mass[s] - found <= 1.0 - q
        if is_enough:
            high = middle
        else:
            low = middle
    return left - 0.5 + high


def rises(addresses, records, weights, known, z, nodes, values, buffer):
    """Whether the pmf at z + 1 is above that at z."""
    nodes[0], nodes[1], values[0], values[1] = z, z + 1.0, 0.0, 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0 and known[k, 3] <= z + 1.0 and known[k, 4] >= z:
            add_mass(addresses[k], records[k], weights[k], known[k], nodes, values, 2, buffer)
    return values[1] > values[0] * (1.0 + TIE)


def mode(addresses, records, weights, known, segments, nodes, values, buffer):
    """The most probable count: that of the highest node, refined between its neighbours."""
    best, low, high, before = -1.0, 0.0, 0.0, segments[0, 0] + 0.5
    for s in range(len(segments)):
        n = int(segments[s, 3])
        for i in range(n):
            if values[s, i] > best:
                best, low = values[s, i], before
                if segments[s, 2] == 0.0:
                    low = high = nodes[s, i]
                elif i < n - 1:
                    high = nodes[s, i + 1]
                else:
                    high = segments[s, 0] + 1.5 * segments[s, 1]
            before = nodes[s, i]
    low, high = np.floor(low), np.floor(high)
    pair = np.zeros((2, 2))
    while low < high:
        middle = np.floor(0.5 * (low + high))
        if not low <= middle < high or middle + 1.0 == middle:
            break
        if rises(addresses, records, weights, known, middle, pair[0], pair[1], buffer):
            low = middle + 1.0
        else:
            high = middle
    return low
