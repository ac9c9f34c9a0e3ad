"""The leaderboard as a table, for Python, reports and the command line. This module does not import torch."""

import math
from collections.abc import Sequence

from ddpn.runtime.display import TextTable
from ddpn.storage.contents import JsonObject


def tabulate_scores(entries: Sequence[JsonObject], coverage: float, caption: str = "") -> TextTable:
    """Return a table of the scores of all candidates. If there are several, the smallest CRPS is bold.

    `entries` are `Leaderboard.entries`. They may have been read back from JSON, in which case infinite scores are None.
    `coverage` is the nominal coverage of the intervals, shown in the headings. `caption` is the caption of the table.
    """
    share = f"{coverage:.0%}"
    headings = ("", "weight", "CRPS", "NLL", "MAE", f"{share} coverage", "expected", f"{share} width", "fit, s")
    rows = []
    for entry in entries:
        weight = "" if entry["weight"] is None else f"{entry['weight']:.0%}" if entry["weight"] else "-"
        crps, nll, mae, width = (
            math.inf if entry[key] is None else entry[key] for key in ("crps", "nll", "mae", "width")
        )
        seconds = "" if entry["seconds"] is None else f"{entry['seconds']:.1f}"
        covered, expected = (f"{entry[key]:.1%}" for key in ("coverage", "expected"))
        rows.append((entry["label"], weight, crps, nll, mae, covered, expected, width, seconds))
    return TextTable(headings, rows, bold={(0, 2)} if len(rows) > 1 else set(), caption=caption)
