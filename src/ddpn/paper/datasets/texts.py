"""Texts: reviews with one to five stars, and the verses of the King James Bible."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, split
from ddpn.paper.datasets.sources import SOURCES, data_folder
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed

SOURCE = SOURCES["reviews"]
_PATIO = "Patio_Lawn_and_Garden"
BIBLE = "bible/kjv_verses.txt.gz"

#: Names that each column may have.
_TITLE = ("Title", "summary", "title")
_TEXT = ("Review Text", "reviewText", "review_text", "text", "review")
_RATING = ("Rating", "overall", "rating")
_ENDINGS = (".csv", ".json", ".jsonl")
#: Row number, title, text and rating as they are written in the file.
Record = tuple[int, str, str, Any]


def reviews(
    folder: Path | None = None,
    *,
    path: Path | None = None,
    without_markup: bool | None = None,
    seed: int = SEED,
    may_download: bool = True,
) -> Dataset:
    """Stars of a review (1 to 5) from its words: the columns "title" ("" if missing) and "text".

    The default is the paper's file of Amazon reviews of "Patio, Lawn and Garden" where the folder `reviews` has it,
    else women's clothing. Neither can be downloaded: put Patio_Lawn_and_Garden_5.json.gz there yourself. Rows without
    text are left out; `note` counts them. The remaining rows are numbered in the file's order and split 70/10/20.

    Parameters
    ----------
    folder : Path, optional
        The folder above `reviews`. Default: `data_folder()`.
    path : Path, optional
        A file of your own: CSV with a header or one JSON object per line, plain or with .gz, with the columns of the
        women's clothing reviews (Title, Review Text, Rating), of Amazon's JSON (summary, reviewText, overall) or title,
        text (or review_text, or review) and rating.
    without_markup : bool, optional
        Leave out rows with HTML tags, as in the paper. Default: only for the paper's file.
    seed : int
        Seed of the split.
    may_download : bool
        Has no effect, as these files cannot be downloaded.
    """
    found = _find(data_folder() if folder is None else Path(folder)) if path is None else Path(path)
    if without_markup is None:
        without_markup = path is None and found.name.startswith(_PATIO)
    titles, texts, stars, note = _read(found, without_markup)
    import polars  # slow to import

    frame = polars.DataFrame({"title": titles, "text": texts})
    parts = split(len(stars), seed, LARGE_SHARES)
    return Dataset("reviews", frame, np.array(stars, dtype=np.int64), parts, *_terms(found), note=note)


def bible(folder: Path | None = None) -> list[str]:
    """The verses of the King James Bible in their order: out-of-distribution text for a model of reviews.

    Parameters
    ----------
    folder : Path, optional
        The folder of the file. Default: `data_folder()`.
    """
    path = (data_folder() if folder is None else Path(folder)) / BIBLE
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
    paper, *_, clothing = (Path(name).name for name in SOURCE.files)
    # The address in the paper is that of a file which its publisher lists as ratings only.
    raise InputError(
        f"No reviews found: {folder / 'reviews'} has neither {paper} nor {clothing}. Download {SOURCE.url} (the paper "
        f"names {SOURCE.url.replace('_5.json.gz', '.csv')}, which has no texts) into that folder, set DDPN_DATA to the "
        f"folder above it, or pass the path of your own file."
    )


def _terms(path: Path) -> tuple[str, str]:
    """License and citation of a known file."""
    if path.name.startswith(_PATIO):
        return SOURCE.license, SOURCE.citation
    if path.name == Path(SOURCE.files[-1]).name:
        return "CC0", "Brooks, N. (2018). Women's e-commerce clothing reviews. kaggle.com"
    return "that of the file", path.name


def _read(path: Path, without_markup: bool) -> tuple[list[str], list[str], list[int], str]:
    """Titles, texts and stars of the rows with text, and a sentence on the others."""
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending not in _ENDINGS:
        raise InputError(f"path must end in {', '.join(_ENDINGS)}, or one of these and .gz, got {path.name}.")
    if not path.is_file():
        raise InputError(f"File not found: {path}")
    records = list(_csv_records(path) if ending == ".csv" else _json_records(path))
    written = [record for record in records if record[2].strip()]
    kept = [record for record in written if not (without_markup and re.search(r"<[^>]+>", record[2]))]
    if not kept:
        raise InputError(f"{path} must have rows with text in a column {listed(_TEXT)}, got none in {len(records)}.")
    numbers = {"without text": len(records) - len(written), "with HTML": len(written) - len(kept)}
    note = ", ".join(f"{number:,} rows {which} left out" for which, number in numbers.items() if number)
    _, titles, texts, _ = zip(*kept, strict=True)
    return list(titles), list(texts), [_stars(path, row, rating) for row, _, _, rating in kept], note


def _csv_records(path: Path) -> Iterable[Record]:
    import polars  # slow to import

    try:
        frame = polars.read_csv(path, infer_schema=False)
    except polars.exceptions.NoDataError:
        frame = polars.DataFrame()
    except (polars.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path} must be a CSV file in UTF-8, got: {str(error).splitlines()[0]}.") from error
    title = next((name for name in _TITLE if name in frame.columns), None)
    titles = [""] * frame.height if title is None else frame[title].fill_null("")
    columns = [frame[_name(path, frame.columns, known)].fill_null("") for known in (_TEXT, _RATING)]
    return zip(range(1, frame.height + 1), titles, *columns, strict=True)


def _json_records(path: Path) -> Iterable[Record]:
    for row, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{path} must have one JSON object per line, got {line[:40]!r} at row {row}.")
        if row == 1:
            # A row may lack its text, and does in Amazon's file, but not its rating.
            _name(path, record, _RATING)
        rating = next((record[name] for name in _RATING if name in record), None)
        yield row, _field(record, _TITLE), _field(record, _TEXT), rating


def _name(path: Path, columns: Iterable[str], known: Sequence[str]) -> str:
    """The first of the known names among the columns."""
    found = next((name for name in known if name in columns), None)
    if found is None:
        raise InputError(f"{path} must have a column {listed(known)}, got {listed(list(columns)) or 'none'}.")
    return found


def _field(record: Mapping[str, Any], names: Sequence[str]) -> str:
    # Left out: null, and NaN, which differs from itself.
    value = next((record[name] for name in names if record.get(name) is not None and record[name] == record[name]), "")
    # JSON can spell half a surrogate pair, which is not valid in UTF-8.
    return str(value).encode(errors="replace").decode()


def _stars(path: Path, row: int, rating: Any) -> int:
    stars = str(rating).strip().removesuffix(".0")
    if stars not in ("1", "2", "3", "4", "5"):
        raise InputError(f"Ratings of {path} must be integers from 1 to 5, got {rating!r} at row {row}.")
    return int(stars)


def _lines(path: Path) -> Iterable[str]:
    """The lines of a text file, plain or with gzip."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            yield from file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a complete file in UTF-8, got: {error}.") from error
