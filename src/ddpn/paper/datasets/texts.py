"""Load texts: product reviews with one to five stars, and the verses of the King James Bible."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.paper.datasets.dataset import LARGE_SHARES, Dataset, Texts, split
from ddpn.paper.datasets.sources import SOURCES
from ddpn.runtime.errors import InputError

SOURCE = SOURCES["reviews"]
VERSES = SOURCES["bible"]
#: The names of the columns with the title, the text and the rating in both files.
_PATIO, _CLOTHING = ("summary", "reviewText", "overall"), ("Title", "Review Text", "Rating")


def reviews() -> Dataset:
    """Load product reviews; the target is the number of stars (1 to 5), and the columns are "title" and "text".

    The folder `reviews` must contain one of two files, neither of which can be downloaded automatically.
    Patio_Lawn_and_Garden_5.json.gz has the paper's Amazon reviews and is preferred; reviews with HTML tags are left
    out. The other file has reviews of women's clothing; reviews without text are left out.

    A missing title becomes "". Rows keep the order of the file and are split 70/10/20. The `note` gives the number of
    reviews that are left out, and compares the number of Amazon reviews with the paper's 793,966.
    """
    path = SOURCE.find_file(
        # The address in the paper leads to a file with ratings only.
        f"Download {SOURCE.url} (the paper names {SOURCE.url.replace('_5.json.gz', '.csv')}, which has no texts) into "
        "that folder."
    )
    if is_paper := path.name == Path(SOURCE.files[0]).name:
        terms = SOURCE.license, SOURCE.citation
    else:
        terms = "CC0", "Brooks, N. (2018). Women's e-commerce clothing reviews. kaggle.com"
    rows = list(enumerate(_json_rows(path) if is_paper else _csv_rows(path), start=1))
    # Like the paper's code, drop texts with tags and keep empty ones.
    reason = "with HTML" if is_paper else "without text"
    kept = [row for row in rows if not (re.search(r"<[^>]+>", row[1][1]) if is_paper else not row[1][1].strip())]
    if not any(texts[1].strip() for _, texts in kept):
        raise InputError(f"{path} must have rows with text, got none in {len(rows)}.")
    left_out = len(rows) - len(kept)
    notes = [f"{left_out:,} rows {reason} left out"] if left_out else []
    notes += [SOURCE.describe_rows(len(kept), "reviews")] if is_paper else []
    note = ", ".join(filter(None, notes))
    import polars  # slow to import

    frame = polars.DataFrame({"title": [texts[0] for _, texts in kept], "text": [texts[1] for _, texts in kept]})
    stars = np.empty(len(kept), dtype=np.int64)
    for index, (row, texts) in enumerate(kept):
        rating = str(texts[2]).strip().removesuffix(".0")
        if rating not in ("1", "2", "3", "4", "5"):
            raise InputError(f"Ratings of {path} must be integers from 1 to 5, got {texts[2]!r} at row {row}.")
        stars[index] = int(rating)
    return Dataset("reviews", frame, stars, split(len(stars), shares=LARGE_SHARES), *terms, note=note)


def bible() -> list[str]:
    """Return the verses of the King James Bible in order, as out-of-distribution texts for a model of reviews."""
    return verses().texts


def verses() -> Texts:
    """Load the verses of the King James Bible with license and citation; the file has one verse per line.

    The paper's file includes the Apocrypha: 36,694 verses instead of 31,102.
    """
    path = VERSES.find_file(f"Run `ddpn data get bible`, or download {VERSES.url} into that folder.")
    texts = [line.strip() for line in _read_lines(path) if line.strip()]
    if not texts:
        raise InputError(f"{path} must hold one verse per line, got none.")
    note = VERSES.describe_rows(len(texts), "verses")
    return Texts(texts, VERSES.license, VERSES.citation, note, sample=len(texts) < VERSES.rows)


def _csv_rows(path: Path) -> Iterable[tuple[Any, ...]]:
    import polars  # slow to import

    try:
        frame = polars.read_csv(path, columns=list(_CLOTHING), infer_schema=False).select(_CLOTHING)
    except (polars.exceptions.PolarsError, OSError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{path} must be a CSV file with the columns {', '.join(_CLOTHING)}, got: {why}.") from error
    return frame.fill_null("").iter_rows()


def _json_rows(path: Path) -> Iterable[tuple[Any, ...]]:
    for row, line in enumerate(_read_lines(path), start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{path} must have one JSON object per line, got {line[:40]!r} at row {row}.")
        # JSON can contain half a surrogate pair, which is not valid in UTF-8.
        title, text = (str(record.get(name) or "").encode(errors="replace").decode() for name in _PATIO[:2])
        yield title, text, record.get(_PATIO[2])


def _read_lines(path: Path) -> Iterable[str]:
    """Yield the lines of a UTF-8 text file, which is decompressed if its name ends in .gz."""
    read = gzip.open if path.suffix == ".gz" else open
    try:
        with read(path, "rt", encoding="utf-8") as file:
            yield from file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a complete file in UTF-8, got: {error}.") from error
