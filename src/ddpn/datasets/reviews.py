"""Texts: reviews with one to five stars, and the verses of the King James Bible."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from pathlib import Path
from typing import IO, Any

import numpy as np

from ddpn.datasets.dataset import Dataset
from ddpn.datasets.source import data_folder
from ddpn.datasets.split import SEED, split
from ddpn.datasets.table import Table
from ddpn.errors import InputError

#: The address in the paper. Its publisher lists that file as ratings alone; the texts are in `AMAZON_TEXTS` beside it.
AMAZON_RATINGS = (
    "https://datarepo.eng.ucsd.edu/mcauley_group/data/amazon_v2/categoryFilesSmall/Patio_Lawn_and_Garden.csv"
)
AMAZON_TEXTS = AMAZON_RATINGS.replace(".csv", "_5.json.gz")
_PATIO = "Patio_Lawn_and_Garden"
#: Places of the paper's file, the first that is there taken. Its size and sha256 are not known: a user puts it there.
AMAZON_FILES = tuple(f"reviews/{_PATIO}{end}" for end in ("_5.json.gz", "_5.json", ".csv.gz", ".csv"))
WOMENS_CLOTHING = "reviews/womens_clothing.csv.gz"
BIBLE = "bible/kjv_verses.txt.gz"
PARTS = (0.7, 0.1, 0.2)

_TEXT = ("Review Text", "reviewText", "review_text", "text", "review")
_TITLE = ("Title", "summary", "title")
_RATING = ("Rating", "overall", "rating")
_ENDINGS = (".csv", ".json", ".jsonl")
_MARKUP = re.compile(r"<[^>]+>")


def reviews(
    folder: Path | None = None,
    *,
    path: Path | None = None,
    without_markup: bool | None = None,
    seed: int = SEED,
    may_download: bool = True,
) -> Dataset:
    """Stars of a review (1 to 5) from its words: the columns "title" ("" where there is none) and "text".

    `path` is a file of yours: csv with a header or a json object a line, either one also with .gz behind, with the
    columns of the women's clothing reviews (Title, Review Text, Rating), of Amazon's json (summary, reviewText,
    overall) or title, text (or review_text, or review) and rating. Without it: the paper's Amazon reviews of "Patio,
    Lawn and Garden" where their file lies in the folder `reviews`, and else women's clothing. None of them can be
    downloaded and checked, `may_download` or not: put Patio_Lawn_and_Garden_5.json.gz there yourself.

    Rows without text are left out, and with `without_markup` those with HTML tags in it, as the paper has it (None: for
    its file alone); `note` counts them. The rows that stay are numbered in the file's order and split 70/10/20.
    """
    home = data_folder() if folder is None else Path(folder)
    paper = _paper(home) if path is None else None
    found = Path(path) if path is not None else paper or _stand_in(home)
    drop = paper is not None if without_markup is None else without_markup
    titles, texts, stars, note = _read(found, drop)
    licence, citation = _terms(found)
    return Dataset(
        name="reviews",
        X=Table({"title": np.array(titles, dtype=object), "text": np.array(texts, dtype=object)}),
        y=np.array(stars, dtype=np.int64),
        split=split(len(stars), seed, PARTS),
        licence=licence,
        citation=citation,
        note=note,
    )


def bible(folder: Path | None = None) -> list[str]:
    """The verses of the King James Bible, in their order: text that no review looks like (Debian's bible-kjv-text)."""
    path = (data_folder() if folder is None else Path(folder)) / BIBLE
    if not path.is_file():
        raise InputError(
            f"{path.name} must lie in {path.parent}, got no such file. Put the verses there, one a line (Debian's "
            f"bible-kjv-text prints them; public domain), or set DDPN_DATA to the folder above it."
        )
    with _opened(path) as file:
        verses = [line.strip() for line in file if line.strip()]
    if not verses:
        raise InputError(f"{path} must hold verses, one a line, got none. Put them there.")
    return verses


def joined(table: Table | Any, names: Sequence[str] = ("title", "text"), sep: str = " ") -> list[str]:
    """Texts of several columns of a table or a frame as one a row, empty and missing ones left out.

    >>> joined(Table({"title": np.array(["Nice", ""]), "text": np.array(["It fits.", "Too small."])}))
    ['Nice It fits.', 'Too small.']
    """
    columns = [_texts(name, table[name]) for name in ([names] if isinstance(names, str) else names)]
    return [sep.join(part for part in row if part) for row in zip(*columns, strict=True)]


def _texts(name: str, column: Iterable[Any]) -> list[str]:
    """The column with "" where a frame has None or NaN."""
    texts = ["" if _is_missing(text) else text for text in column]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f'column {name} must hold text, got {text!r:.40} in row {row}. Use "" where there is none.'
            )
    return texts


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _paper(folder: Path) -> Path | None:
    return next((folder / name for name in AMAZON_FILES if (folder / name).is_file()), None)


def _stand_in(folder: Path) -> Path:
    path = folder / WOMENS_CLOTHING
    if not path.is_file():
        raise InputError(
            f"reviews must lie in {path.parent}, got neither {_PATIO}_5.json.gz nor {path.name}. Download "
            f"{AMAZON_TEXTS} (the paper names {AMAZON_RATINGS}, which has no texts) into that folder, set DDPN_DATA to "
            f"the folder above it, or give the path of your own file."
        )
    return path


def _terms(path: Path) -> tuple[str, str]:
    """Licence and citation of a known file."""
    if path.name.startswith(_PATIO):
        return "none given", (
            "Ni, J., Li, J. and McAuley, J. (2019). Justifying recommendations using distantly-labeled reviews and "
            "fine-grained aspects. EMNLP-IJCNLP."
        )
    if path.name == Path(WOMENS_CLOTHING).name:
        return "CC0", "Brooks, N. (2018). Women's e-commerce clothing reviews. kaggle.com"
    return "that of the file", path.name


def _read(path: Path, without_markup: bool) -> tuple[list[str], list[str], list[int], str]:
    """Titles, texts and stars of the rows that have text, and a sentence on the others. One row is read at a time."""
    titles, texts, stars = [], [], []
    blank = marked = 0
    for row, record in _records(path):
        text = _field(record, _TEXT)
        if not text.strip():
            blank += 1
        elif without_markup and _MARKUP.search(text):
            marked += 1
        else:
            titles.append(_field(record, _TITLE))
            texts.append(text)
            stars.append(_stars(path, row, record))
    if not texts:
        raise InputError(
            f"{path} must hold rows with text in one of {', '.join(_TEXT)}, got none in {blank + marked} rows. "
            f"Name the column of the texts so."
        )
    left = [f"{n:,} rows {which} left out" for n, which in ((blank, "without text"), (marked, "with HTML")) if n]
    return titles, texts, stars, ", ".join(left)


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Rows by column name, counted from 1."""
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending not in _ENDINGS:
        raise InputError(
            f"path must end in {', '.join(_ENDINGS)}, or one of these and .gz, got {path.name}. Rename the file."
        )
    with _opened(path) as file:
        yield from _csv_rows(path, file) if ending == ".csv" else _json_rows(path, file)


def _csv_rows(path: Path, file: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file)
    _check_names(path, reader.fieldnames or (), (_TEXT, _RATING))
    for row, record in enumerate(reader, start=1):
        # What DictReader gives a field too many or too few.
        if None in record or None in record.values():
            raise InputError(
                f"{path} must have {len(reader.fieldnames or ())} fields in every row, got another number in row "
                f"{row}. Mend that row."
            )
        yield row, record


def _json_rows(path: Path, file: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for row, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{path} must have a json object in every line, got {line[:40]!r} in row {row}. Mend it.")
        if row == 1:
            # A row may lack its text, and does in Amazon's file; its rating it may not.
            _check_names(path, record, (_RATING,))
        yield row, record


def _check_names(path: Path, found: Iterable[str], wanted: Sequence[Sequence[str]]) -> None:
    found = list(found)
    for names in wanted:
        if not set(names) & set(found):
            raise InputError(
                f"{path} must have one of the columns {', '.join(names)}, got {', '.join(found) or 'none'}. "
                f"Name the column so, in the first row of a csv."
            )


def _field(record: Mapping[str, Any], names: Sequence[str]) -> str:
    value = next((record[name] for name in names if not _is_missing(record.get(name))), "")
    # Half a surrogate pair, which json can spell, is no text: neither utf-8 nor a tokenizer takes it.
    return str(value).encode(errors="replace").decode()


def _stars(path: Path, row: int, record: Mapping[str, Any]) -> int:
    value = next((record[name] for name in _RATING if name in record), None)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = nan
    if number not in (1, 2, 3, 4, 5):
        raise InputError(f"ratings of {path} must be whole numbers from 1 to 5, got {value!r} in row {row}. Mend it.")
    return int(number)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The file's text, unpacked where it is packed; an error in one sentence where it is damaged."""
    if not path.is_file():
        raise InputError(f"path must be a file, got none at {path}. Look for it.")
    unpacked: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with unpacked(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} must be a whole file of utf-8 text, got damage ({error}). Fetch it again.") from error
