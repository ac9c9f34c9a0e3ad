"""Which of many columns change the predictions at all."""

import numpy as np

from ddpn.analysis.explanations.inputs import Inputs

#: Columns that are explained where none are named. Of more, those that change predictions most are taken.
MAX_COLUMNS = 40
#: Rows that are shuffled to find them: fewer where there are very many columns.
_ROWS, _MIN_ROWS, _WORK = 200, 20, 40_000


def screened(inputs: Inputs, positions: list[int], most: int, rng: np.random.Generator, of: str = "both") -> list[int]:
    """The positions of the columns whose shuffling changes mean and spread (or the "mean") most, in their order."""
    if len(positions) <= most:
        return positions
    size = int(np.clip(_WORK // len(positions), _MIN_ROWS, _ROWS))
    few = inputs.rows(inputs.draw(size, rng))
    rows, both = np.arange(len(few)), of == "both"
    now = few.moments(rows, variance=both).quantities(few.log)[: 1 + both, :, 0]
    moved = {}
    for position in positions:
        then = few.moments(rows, {position: rng.permutation(len(few))}, variance=both)
        moved[position] = float(np.abs(then.quantities(few.log)[: 1 + both, :, 0] - now).mean(1).sum())
    return sorted(sorted(moved, key=lambda position: -moved[position])[:most])
