"""Loops over the counts of one distribution, which are compiled for each family.

The names in capitals and the functions `prepared`, `log_mass`, `score`, `shape` and `ratio` are those of a family, see
`ddpn.distributions.family`; `compiling` puts them in their place. Inputs and results are arrays of float64.
"""

from math import exp, inf, log

import numpy as np

#: Whether `log_mass` is a log probability, and whether `ratio` is known. A family says so.
NORMALISED, HAS_RATIO = False, False
#: A sum ends where a term is below this share of it.
NEGLIGIBLE = 1e-18
#: Sums over all counts are made here up to so many terms on either side; longer ones by `ranges`.
LONGEST_WALK = 256
#: Distance of the centre from both ends in standard deviations from which on a sum may take strides, their length in
#: standard deviations (error 1e-13), and the deviation from which on they are worth while.
CLEAR, STRIDE, WIDE = 9.5, 1.5, 4.0
#: The usual length of the results of a walk, and the longest for families without a ratio.
USUAL, LONGEST_EXP = 1 << 15, 1 << 11
#: Numbers before the weights of a walk.
HEADER = 5
#: What a family can be asked for.
LOG_PROB, WALK, PREPARED, TERMS, SCORED_TERMS = range(5)
#: Numbers that `prepared` may return; centre, width and end of the support follow them in a record.
FACTS = 8


def prepared(a, b, c):
    """The numbers that the functions below need, from the parameters of a distribution: a tuple."""
    raise NotImplementedError


def log_mass(y, p):
    """log of the weight at a count, or at a real y >= 16 as its smooth continuation."""
    raise NotImplementedError


def score(y, p):
    """Derivatives of the log weight in the parameters, up to what does not depend on y unless it is normalised."""
    raise NotImplementedError


def shape(p):
    """Rough centre and standard deviation, and the end of the support."""
    raise NotImplementedError


def ratio(y, p):
    """Two numbers, the first over the second being the weight at y + 1 over that at y."""
    raise NotImplementedError


def carray(address, length):
    """An array at an address: numba's function."""
    raise NotImplementedError


def start_of(low, high, centre, p):
    """The count of a range to start from, next to the centre, and its log weight."""
    first = min(max(np.floor(centre), low), high)
    here = log_mass(first, p)
    if first < high:
        there = log_mass(first + 1.0, p)
        if there > here:
            return first + 1.0, there
    return first, here


def log_prob(inputs, results):
    """(y, a, b, c) -> log p(y) and its derivatives in a, b, c; -1 where the sum is too long for this loop."""
    y, p = inputs[0], prepared(inputs[1], inputs[2], inputs[3])
    centre, width, end = shape(p)
    if y > end:
        results[0], results[1], results[2], results[3] = -inf, 0.0, 0.0, 0.0
        return 4
    a, b, c = score(y, p)
    if NORMALISED:
        results[0], results[1], results[2], results[3] = log_mass(y, p), a, b, c
        return 4
    start, reference = start_of(0.0, end, centre, p)
    step = 1.0
    if width >= WIDE and centre > CLEAR * width and centre + CLEAR * width < end:
        step = np.floor(width / STRIDE)
    total, g0, g1, g2 = 0.0, 0.0, 0.0, 0.0
    r0, r1, r2 = score(start, p)  # differences to these are exact where nearly all mass is at the start
    for side in range(2):
        z, before, left = start - side * step, inf, LONGEST_WALK
        while 0.0 <= z <= end:
            w = exp(log_mass(z, p) - reference)
            s0, s1, s2 = score(z, p)
            total += w
            g0 += w * (s0 - r0)
            g1 += w * (s1 - r1)
            g2 += w * (s2 - r2)
            if w < before and w <= NEGLIGIBLE * total:
                break
            left -= 1
            if left == 0:
                return -1
            before = w
            z += step - 2.0 * side * step
    value = log_mass(y, p) - reference - log(step * total)
    results[0], results[1] = min(value, 0.0), a - r0 - g0 / total
    results[2], results[3] = b - r1 - g1 / total, c - r2 - g2 / total
    return 4


def walk(inputs, results, length):
    """(a, b, c, low, high) -> weights of consecutive counts; the number of them, or -1 if they are too many.

    Results: the first count, the place of its weight in the results, the sum of the weights, mean and variance; then
    the weights.
    """
    p, low, high = prepared(inputs[0], inputs[1], inputs[2]), inputs[3], inputs[4]
    centre, _, end = shape(p)
    high = min(high, end)
    if HAS_RATIO:
        start, reference = min(max(np.floor(centre), low), high), 0.0
    else:
        start, reference = start_of(low, high, centre, p)
        if length <= USUAL:
            length = min(length, LONGEST_EXP)  # an exponential per count takes longer than panels
    middle = HEADER + (length - HEADER) // 2
    if start - low < middle - HEADER:
        middle = HEADER + int(start - low)
    i, y, w, gap, total, s1, s2, before = middle, start, 1.0, 0.0, 0.0, 0.0, 0.0, inf
    while True:
        results[i] = w
        total += w
        s1 += w * gap
        s2 += w * gap * gap
        if (w < before and w <= NEGLIGIBLE * total) or y >= high:
            break
        before = w
        i += 1
        if i >= length:
            return -1
        if HAS_RATIO:
            above, under = ratio(y, p)
            w *= above / under
        else:
            w = exp(log_mass(y + 1.0, p) - reference)
        y += 1.0
        gap += 1.0
    last, i, y, w, gap, before = i, middle, start, 1.0, 0.0, inf
    while y > low and (w >= before or w > NEGLIGIBLE * total):
        before = w
        i -= 1
        if i < HEADER:
            return -1
        y -= 1.0
        gap -= 1.0
        if HAS_RATIO:
            above, under = ratio(y, p)
            w *= under / above
        else:
            w = exp(log_mass(y, p) - reference)
        results[i] = w
        total += w
        s1 += w * gap
        s2 += w * gap * gap
    shift = s1 / total
    results[0], results[1], results[2], results[3], results[4] = y, i, total, start + shift, s2 / total - shift * shift
    return last - i + 1


def record(inputs, results):
    """(a, b, c) -> what `prepared` returns, then centre, width and end of the support, and whether it is normalised."""
    p = prepared(inputs[0], inputs[1], inputs[2])
    for i in range(len(p)):
        results[i] = p[i]
    results[FACTS], results[FACTS + 1], results[FACTS + 2] = shape(p)
    results[FACTS + 3] = 1.0 if NORMALISED else 0.0
    return 1


def terms(inputs, results, length, with_score):
    """A record -> log weights, after the positions that the results start with; and the three scores of each."""
    p = (inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6], inputs[7])
    for i in range(length):
        y = results[i]
        results[length + i] = log_mass(y, p)
        if with_score:
            results[2 * length + i], results[3 * length + i], results[4 * length + i] = score(y, p)
    return length


def entry(operation, input_address, result_address, length):
    """The one compiled function of a family."""
    inputs, results = carray(input_address, 16), carray(result_address, 5 * length)
    if operation == LOG_PROB:
        return log_prob(inputs, results)
    if operation == WALK:
        return walk(inputs, results, length)
    if operation == PREPARED:
        return record(inputs, results)
    return terms(inputs, results, length, operation == SCORED_TERMS)
