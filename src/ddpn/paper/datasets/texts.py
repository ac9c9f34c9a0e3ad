"""Texts: reviews with one to five stars, and the verses of the King James Bible."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.paper.datasets.dataset import LARGE_SHARES, SOURCES, Dataset, data_folder, split
from ddpn.runtime.errors import InputError

SOURCE = SOURCES["reviews"]
BIBLE = "bible/kjv_verses.txt.gz"
#: Title, text and rating of a row as they are written in the file, by the name of the column.
_PATIO, _CLOTHING = ("summary", "reviewText", "overall"), ("Title", "Review Text", "Rating")


def reviews() -> Dataset:
    """Stars of a review (1 to 5) from its words: the columns "title" ("" if missing) and "text".

    The data are the paper's file of Amazon reviews of "Patio, Lawn and Garden" where the folder `reviews` has it,
    without rows with HTML tags, else women's clothing. Neither can be downloaded: put Patio_Lawn_and_Garden_5.json.gz
    there yourself. Rows without text are left out; `note` counts them. The remaining rows are numbered in the file's
    order and split 70/10/20.
    """
    path = _find(data_folder())
    if is_paper := path.name == Path(SOURCE.files[0]).name:
        terms = SOURCE.license, SOURCE.citation
    else:
        terms = "CC0", "Brooks, N. (2018). Women's e-commerce clothing reviews. kaggle.com"
    rows = list(enumerate(_json_rows(path) if is_paper else _csv_rows(path), start=1))
    written = [(row, texts) for row, texts in rows if texts[1].strip()]
    kept = [(row, texts) for row, texts in written if not (is_paper and re.search(r"<[^>]+>", texts[1]))]
    if not kept:
        raise InputError(f"{path} must have rows with text, got none in {len(rows)}.")
    left_out = {"without text": len(rows) - len(written), "with HTML": len(written) - len(kept)}
    note = ", ".join(f"{number:,} rows {which} left out" for which, number in left_out.items() if number)
    import polars  # slow to import

    frame = polars.DataFrame({"title": [texts[0] for _, texts in kept], "text": [texts[1] for _, texts in kept]})
    stars = np.empty(len(kept), dtype=np.int64)
    for place, (row, texts) in enumerate(kept):
        rating = str(texts[2]).strip().removesuffix(".0")
        if rating not in ("1", "2", "3", "4", "5"):
            raise InputError(f"Ratings of {path} must be integers from 1 to 5, got {texts[2]!r} at row {row}.")
        stars[place] = int(rating)
    return Dataset("reviews", frame, stars, split(len(stars), shares=LARGE_SHARES), *terms, note=note)


def bible() -> list[str]:
    """The verses of the King James Bible in their order: out-of-distribution text for a model of reviews."""
    path = data_folder() / BIBLE
    if not path.is_file():
        raise InputError(
            f"File not found: {path}. Put the verses there, one per line (Debian's bible-kjv-text prints them; public "
            f"domain), or set DDPN_DATA to the folder above it."
        )
    verses = [line.strip() for line in _lines(path) if line.strip()]
    if not verses:
        raise InputError(f"{path} must hold one verse per line, got none.")
    return verses


def _find(folder: Path) -> Path:
    """The paper's file, or that of women's clothing."""
    if found := next((folder / name for name in SOURCE.files if (folder / name).is_file()), None):
        return found
    paper, clothing = (Path(name).name for name in SOURCE.files)
    # The address in the paper is that of a file which its publisher lists as ratings only.
    raise InputError(
        f"No reviews found: {folder / 'reviews'} has neither {paper} nor {clothing}. Download {SOURCE.url} (the paper "
        f"names {SOURCE.url.replace('_5.json.gz', '.csv')}, which has no texts) into that folder, or set DDPN_DATA to "
        f"the folder above it."
    )


def _csv_rows(path: Path) -> Iterable[tuple[Any, ...]]:
    import polars  # slow to import

    try:
        frame = polars.read_csv(path, columns=list(_CLOTHING), infer_schema=False).select(_CLOTHING)
    except (polars.exceptions.PolarsError, OSError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{path} must be a CSV file with the columns {', '.join(_CLOTHING)}, got: {why}.") from error
    return frame.fill_null("").iter_rows()


def _json_rows(path: Path) -> Iterable[tuple[Any, ...]]:
    for row, line in enumerate(_lines(path), start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{path} must have one JSON object per line, got {line[:40]!r} at row {row}.")
        # JSON can spell half a surrogate pair, which is not valid in UTF-8.
        title, text = (str(record.get(name) or "").encode(errors="replace").decode() for name in _PATIO[:2])
        yield title, text, record.get(_PATIO[2])


def _lines(path: Path) -> Iterable[str]:
    """The lines of a text file with gzip."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a complete file in UTF-8, got: {error}.") from error
