"""`sum_leaves`: predictions of boosted trees, in plain loops that numba compiles."""

import numpy as np

#: The number of rows that pass through a tree together.
_BLOCK_ROWS = 256
#: Larger codes, which no level has, cannot be converted to an integer.
_MAX_CODE = 2.0**31


def sum_leaves(
    matrix, total, roots, columns, thresholds, by_category, missing_left, left, right, leaf_values, set_starts, words
):
    """Add the output of every tree to `total`, which has one number per row of `matrix`. A kernel.

    The other arguments are the fields of `LinkedTrees`.
    """
    for start in range(0, len(matrix), _BLOCK_ROWS):
        for root in roots:
            for row in range(start, min(start + _BLOCK_ROWS, len(matrix))):
                node = root
                while node >= 0:
                    x = matrix[row, columns[node]]
                    if by_category[node]:
                        is_left = has_level(x, np.int64(thresholds[node]), set_starts, words)
                    else:
                        is_left = x <= thresholds[node] or (missing_left[node] and x != x)
                    node = left[node] if is_left else right[node]
                total[row] += leaf_values[~node]


def has_level(code, number, set_starts, words):
    """Return True if the code of a level is in the set of levels with this number, False for NaN. A kernel."""
    if not 0.0 <= code <= _MAX_CODE:
        return False
    level = np.int64(code)
    word = set_starts[number] + (level >> 5)
    return word < set_starts[number + 1] and (words[word] >> (level & 31)) & 1 == 1
