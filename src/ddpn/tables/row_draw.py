"""Draw rows that represent a long table, in the same way for scores, reports and checks.

A table of up to `MAX_ROWS` rows is used whole. From a larger table, `MAX_ROWS` rows are drawn:

- **In proportion to their weights**: all drawn rows get the same weight, such that the sum of weights stays that of all
  rows. A row with a larger weight than this is always drawn and keeps its weight. Rows of weight 0 are never drawn.
- **Spread over the counts**: rows are sorted by their count and drawn at equal distances. So every count, rare events
  included, has the same share of the drawn rows as of the table, up to one row.
- **Spread over the table**: among rows with the same count, rows are drawn from each twentieth of the table in
  proportion to its size, so that no period is left out. Within a twentieth, the order is random, so that no pattern in
  the table can coincide with the equal distances.
- **Rows, not groups**: fewer rows of each group are drawn, rather than all rows of fewer groups, because many groups
  say more about new groups.

The seed is fixed, so the same table gives the same rows. The mean score of the drawn rows varies less than that of
independently drawn rows. So standard errors computed from the drawn rows are never too small
(tests/soundness/test_row_draw.py).
"""

from dataclasses import dataclass

import numpy as np

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import plural
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer
from ddpn.storage.contents import JsonObject

#: The most rows that are scored. The standard error of their mean is 0.7% of the standard deviation of a row.
MAX_ROWS = 20_000
#: The smallest permitted number of rows to draw: fewer rows support neither a verdict nor a diagnosis.
MIN_MAX_ROWS = 50
SEED = 0
#: The number of consecutive parts of the table that are represented in proportion to their rows.
_TABLE_PARTS = 20


@dataclass(frozen=True, eq=False)
class RowDraw:
    """Rows that were drawn from a table, or all of its rows with a weight above 0 if they are few.

    Attributes
    ----------
    positions : array of int, shape (drawn rows,)
        Row positions in the table, in ascending order.
    weight : array of float, shape (drawn rows,), or None
        Weights of the drawn rows, scaled so that they sum to the total weight of the table. None if the table has no
        weights.
    total : int
        The number of rows of the table that have a weight above 0.
    """

    positions: np.ndarray
    weight: np.ndarray | None
    total: int

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, sample: CountRows) -> CountRows:
        """Return the drawn rows of `sample`, with the weights of the draw.

        Parameters
        ----------
        sample : CountRows
            All rows of the table.
        """
        return sample.rows(self.positions).replace(weight=self.weight)


def draw_rows(
    rows: int,
    max_rows: int | None = MAX_ROWS,
    *,
    y: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    seed: int = SEED,
) -> RowDraw:
    """Draw rows of a table in proportion to their weights, spread over the counts and over the table.

    Parameters
    ----------
    rows : int
        The number of rows of the table.
    max_rows : int or None
        The largest number of rows to draw. None uses all rows.
    y : array, shape (rows,), optional
        The counts. Without them, rows are spread over the table only.
    weight : array, shape (rows,), optional
        The weights. Default: equal weights.
    seed : int
        Seed of the draw.

    Examples
    --------
    >>> y = np.repeat([0.0, 7.0], [9_000, 1_000])
    >>> draw = draw_rows(10_000, 100, y=y, weight=np.full(10_000, 2.0))
    >>> len(draw), int((y[draw.positions] == 7).sum()), float(draw.weight.sum())
    (100, 10, 20000.0)
    """
    used = np.arange(rows) if weight is None else np.flatnonzero(weight > 0)
    used_weight = None if weight is None else weight[used]
    if max_rows is None or len(used) <= max_rows:
        return RowDraw(used, used_weight, len(used))
    size = np.ones(len(used)) if used_weight is None else used_weight
    is_certain, step = _find_certain_rows(size, max_rows)
    others = np.flatnonzero(~is_certain)
    rng = np.random.default_rng(seed)
    keys = [rng.random(len(others)), used[others] * _TABLE_PARTS // rows, *([] if y is None else [y[used[others]]])]
    ordered = others[np.lexsort(keys)]
    points = step * (rng.random() + np.arange(max_rows - int(is_certain.sum())))
    drawn = np.searchsorted(np.cumsum(size[ordered]), points, side="right")
    is_drawn = is_certain.copy()
    is_drawn[ordered[np.minimum(drawn, len(ordered) - 1)]] = True
    return RowDraw(
        used[is_drawn], None if used_weight is None else np.where(is_certain, used_weight, step)[is_drawn], len(used)
    )


def _find_certain_rows(weight: np.ndarray, n_draws: int) -> tuple[np.ndarray, float]:
    """Find the rows whose weight is so large that they are always drawn, if `n_draws` rows are drawn.

    Return a mask of these rows, and the weight that every other drawn row gets.
    """
    is_certain = np.zeros(len(weight), dtype=bool)
    while True:
        step = float(weight[~is_certain].sum()) / (n_draws - int(is_certain.sum()))
        is_too_heavy = ~is_certain & (weight >= step)
        if not is_too_heavy.any() or int((is_certain | is_too_heavy).sum()) >= n_draws:
            return is_certain, step
        is_certain |= is_too_heavy


def draw_sample(sample: CountRows, max_rows: int | None = MAX_ROWS, seed: int = SEED) -> RowDraw:
    """Draw rows of `sample` in proportion to their weights, spread over their counts. See `draw_rows`.

    Parameters
    ----------
    sample : CountRows
        All rows.
    max_rows, seed
        As for `draw_rows`.
    """
    return draw_rows(len(sample), max_rows, y=sample.y, weight=sample.weight, seed=seed)


def describe_draw(start: str, rows: int, total: int) -> str:
    """Describe in a sentence that `rows` of `total` rows were drawn at random; return "" if all rows are used.

    The sentence begins with `start`.

    >>> describe_draw("Scores are of", 20_000, 100_000)
    'Scores are of 20,000 of 100,000 rows, drawn at random (seed 0).'
    >>> describe_draw("Scores are of", 500, 500)
    ''
    """
    return f"{start} {format_drawn_rows(rows, total)}." if rows < total else ""


def format_drawn_rows(rows: int, total: int, noun: str = "row") -> str:
    """Format the number of drawn rows and the number of all rows as a phrase.

    >>> format_drawn_rows(20_000, 100_000, "test row"), format_drawn_rows(500, 500)
    ('20,000 of 100,000 test rows, drawn at random (seed 0)', '500 rows')
    """
    return f"{rows:,} of {total:,} {noun}s, drawn at random (seed {SEED})" if rows < total else plural(rows, noun)


def draw_to_json(rows: int, total: int) -> JsonObject:
    """Return the number of drawn rows, the number of all rows and the seed as a dict for JSON.

    The seed is None if all rows are used.

    >>> draw_to_json(20_000, 100_000)
    {'rows': 20000, 'of': 100000, 'seed': 0}
    """
    return {"rows": rows, "of": total, "seed": SEED if rows < total else None}


def check_max_rows(value: object) -> int | None:
    """Validate the largest number of rows to draw, and return it. None means all rows.

    Other values raise a `ConfigError`.
    """
    return None if value is None else check_integer("max_rows", value, MIN_MAX_ROWS)


def parse_max_rows(text: str) -> int | None:
    """Parse the largest number of rows to draw from text; "all" gives None.

    >>> parse_max_rows("50000"), parse_max_rows("all")
    (50000, None)
    """
    if text == "all":
        return None
    if not text.isdecimal():
        must = f'be an integer of at least {MIN_MAX_ROWS}, or "all"'
        raise ConfigError(argument="max_rows", must=must, got=repr(text))
    return check_max_rows(int(text))
