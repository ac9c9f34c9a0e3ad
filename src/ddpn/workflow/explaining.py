"""Explain a saved model on a table: what drives it, or the predictions of single rows."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ddpn.analysis.explanations import Contributions, Explanation, Inputs, contributions
from ddpn.analysis.explanations.summary import explanation_of
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.files import write_bytes
from ddpn.tables.reading import polars
from ddpn.tables.writing import check_free, check_output, write
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.prediction import rows_to_score

#: Endings of images.
_IMAGES = (".png", ".svg", ".pdf")


class Explained(NamedTuple):
    """An explanation, and a sentence about the rows it is from."""

    found: Explanation
    note: str


def explain_table(
    folder: ModelFolder, frame: Any, seed: int = 0, progress: Callable[[str], object] | None = None
) -> Explained:
    """Importance and effects; importance needs the target.

    Rows that the model was fitted to are left out where the table has the target.
    """
    roles = folder.roles
    names = {role: name for role, name in (("exposure", roles.exposure), ("upper", roles.upper)) if name}
    if roles.target is None or roles.target not in frame.columns:
        inputs = Inputs(folder.model, roles.features(frame), roles.exposures(frame), roles.uppers(frame), names)
        return Explained(explanation_of(inputs, seed, progress), "Without the target, importance is not measured.")
    sample, note, _ = rows_to_score(folder, frame)
    inputs = Inputs.of_sample(folder.model, sample, names)
    return Explained(explanation_of(inputs, seed, progress), note.replace("scored", "used"))


def explain_rows(folder: ModelFolder, frame: Any, rows: list[int], of: str = "mean", seed: int = 0) -> Contributions:
    """Contributions to the predictions of some rows, numbered from 1, compared with the whole table."""
    roles = folder.roles
    most = frame.height
    if bad := [row for row in rows if not 1 <= row <= most]:
        raise InputError(argument="rows", must=f"be numbers from 1 to {most:,}", got=str(bad[0]))
    table = Inputs(folder.model, roles.features(frame), roles.exposures(frame), roles.uppers(frame))
    return contributions(table.rows(np.array(rows) - 1), table, of, seed=seed)


def parse_rows(text: str) -> list[int]:
    """Row numbers such as "3", "1,5,7" or "1-10".

    >>> parse_rows("2,5-7")
    [2, 5, 6, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ConfigError(argument="rows", must="be numbers such as 3, 1,5,7 or 1-10", got=repr(text))
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def check_explanation_file(path: str, overwrite: bool, source: str) -> None:
    """Raise an error if an explanation cannot be written to `path`; called before the work."""
    if Path(path).suffix.lower() in (*_IMAGES, ".json"):
        check_free(Path(path), overwrite, source)
    else:
        check_output(path, overwrite, source)


def write_explanation(found: Explanation | Contributions, path: str, rows: list[int] | None = None) -> None:
    """Write a table, JSON or an image, by the ending; `rows` are the numbers of explained rows."""
    ending = Path(path).suffix.lower()
    if ending in _IMAGES:
        content = BytesIO()
        found.plot().savefig(content, format=ending[1:], dpi=150)
        write_bytes(Path(path), content.getvalue())
        return
    if ending == ".json":
        write_bytes(Path(path), json.dumps(plain(found, rows), indent=1, ensure_ascii=False).encode())
        return
    table = found.table()
    if rows is not None:
        table["row"] = [rows[row] for row in table["row"]]
    table["value"] = [_text(value) for value in table["value"]]
    write(polars().DataFrame(table), path)


def plain(found: Explanation | Contributions, rows: list[int] | None = None) -> dict[str, Any]:
    """An explanation for JSON."""
    if isinstance(found, Explanation):
        return found.to_dict()
    table = found.to_dict()
    numbers = range(len(found)) if rows is None else rows
    about = {"quantity": found.quantity, "log": found.log, "base": found.base}
    predictions = dict(zip(map(str, numbers), found.prediction.tolist(), strict=True))
    return about | {"prediction": predictions, "table": table | {"row": [numbers[row] for row in table["row"]]}}


def _text(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
