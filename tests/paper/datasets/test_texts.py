"""Reviews in every form of file, on made-up rows, and on the real ones where they are."""

import csv
import gzip
import json

import numpy as np
import pytest

from ddpn.paper.datasets import texts as text
from ddpn.runtime.errors import InputError

ROWS = [
    {"title": "Nice", "text": "It fits, and\nit is blue.", "rating": 5},
    {"title": "", "text": "Too small 😀", "rating": 1},
    {"title": "No words", "text": "  ", "rating": 4},
    {"title": "Torn", "text": "Has a <br/> in it", "rating": 2},
    *({"title": "", "text": f"number {i}", "rating": 1 + i % 5} for i in range(26)),
]
NAMES = {
    "clothing": {"title": "Title", "text": "Review Text", "rating": "Rating"},
    "amazon": {"title": "summary", "text": "reviewText", "rating": "overall"},
    "plain": {"title": "title", "text": "text", "rating": "rating"},
    "review": {"title": "title", "text": "review", "rating": "rating"},
    "review_text": {"title": "title", "text": "review_text", "rating": "rating"},
}


def write(path, rows, names="plain"):
    """Rows as csv or json lines, packed or not, by the path's ending; what is empty is not in json at all."""
    named = [{NAMES[names][key]: value for key, value in row.items()} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="", encoding="utf-8") as file:
        if ".csv" in path.name:
            writer = csv.DictWriter(file, ["id", *named[0]])
            writer.writeheader()
            writer.writerows({"id": i, **row} for i, row in enumerate(named))
        else:
            file.writelines(json.dumps({k: v for k, v in row.items() if v != ""}) + "\n" for row in named)
    return path


@pytest.mark.parametrize(
    ("ending", "names"),
    [
        *(("csv", names) for names in NAMES),
        *(("jsonl", names) for names in NAMES),
        *((ending, "plain") for ending in ("json", "csv.gz", "jsonl.gz")),
    ],
)
def test_every_form_gives_the_same_rows(tmp_path, ending, names):
    data = text.reviews(path=write(tmp_path / f"mine.{ending}", ROWS, names))
    kept = [row for row in ROWS if row["text"].strip()]
    assert data.X.columns == ["title", "text"]
    assert data.X["title"].to_list() == [row["title"] for row in kept]
    assert data.X["text"].to_list() == [row["text"] for row in kept]
    assert data.y.tolist() == [row["rating"] for row in kept]
    assert data.note == "1 rows without text left out"
    # The rows that have text, numbered from 0: 70, 10 and 20 of 100.
    np.testing.assert_array_equal(np.concatenate(list(data.split)), np.random.default_rng(1998).permutation(29))
    assert [len(part) for part in data.split] == [20, 3, 6]


def test_the_papers_file_comes_first_and_without_markup(tmp_path):
    write(tmp_path / text.SOURCE.files[-1], ROWS[:1], "clothing")
    assert len(text.reviews(tmp_path).y) == 1
    assert text.reviews(tmp_path).license == "CC0"
    write(tmp_path / "reviews" / "Patio_Lawn_and_Garden_5.json.gz", ROWS, "amazon")
    data = text.reviews(tmp_path)
    assert data.note == "1 rows without text left out, 1 rows with HTML left out"
    assert len(data.y) == 28
    assert "McAuley" in data.citation
    assert len(text.reviews(tmp_path, without_markup=False).y) == 29


def test_a_seed_of_ones_own(tmp_path):
    path = write(tmp_path / "mine.csv", ROWS)
    assert (text.reviews(path=path, seed=3).split.train != text.reviews(path=path).split.train).any()


def test_half_a_surrogate_is_no_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "so \\ud83d", "rating": 5}\n\n{"text": "\\ud83d\\ude00", "rating": 4}\n')
    data = text.reviews(path=path)
    assert data.X["text"].to_list() == ["so ?", "😀"]


def test_no_file(tmp_path):
    words = r"^No reviews found: .*neither Patio_Lawn_and_Garden_5\.json\.gz .*Download https://datarepo.*_5\.json\.gz"
    for may_download in (True, False):
        with pytest.raises(InputError, match=words):
            text.reviews(tmp_path, may_download=may_download)
    with pytest.raises(InputError, match=r"^File not found: .*none\.csv"):
        text.reviews(path=tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.parquet", "", r"path must end in \.csv, .*, got a\.parquet"),
        ("a.csv", "B01,A2W,5.0,137\nB02,A2W,4.0,138\n", "must have a column Review Text, .*, got B01, A2W, 5.0, 137"),
        ("a.csv", "", "must have a column Review Text, .*, got none"),
        ("a.csv", "text,score\nx,1\n", "must have a column Rating, overall, rating, got text, score"),
        ("a.csv", "text,rating\nx,1\ny\n", "integers from 1 to 5, got '' at row 2"),
        ("a.csv", "text,rating\nx,1\ny,2,3\n", "must be a CSV file in UTF-8, got: found more fields"),
        ("a.csv", "text,rating\nx,1\ny,5\nz,4.5\n", r"integers from 1 to 5, got '4\.5' at row 3"),
        ("a.csv", "text,rating\nx,nan\n", "integers from 1 to 5, got 'nan' at row 1"),
        ("a.csv", "text,rating\nx,\n", "integers from 1 to 5, got '' at row 1"),
        ("a.csv", "text,rating\n ,1\n", "must have rows with text in a column .*, got none in 1"),
        ("a.json", '{"text": "x", "rating": 0}\n', "integers from 1 to 5, got 0 at row 1"),
        ("a.json", '{"text": "x", "rating": 5}\n{"text": "x"}\n', "integers from 1 to 5, got None at row 2"),
        ("a.json", '{"body": "x", "rating": 5}\n', "must have rows with text in a column .*, got none in 1"),
        ("a.json", '{"body": "x", "score": 5}\n', "must have a column Rating, overall, rating, got body, score"),
        ("a.json", '[{"text": "x"}]\n', r"must have one JSON object per line, got '\[\{.* at row 1"),
        ("a.json", '{"text": "x", "rating": 5}\n{"te', "must have one JSON object per line, got '{\"te' at row 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=sentence):
        text.reviews(path=tmp_path / name)


def test_a_file_that_ends_too_soon(tmp_path):
    path = write(tmp_path / "a.csv.gz", ROWS)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"a\.csv\.gz must be a CSV file in UTF-8, got"):
        text.reviews(path=path)
    path = write(tmp_path / "a.jsonl.gz", ROWS)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz must be a complete file in UTF-8, got"):
        text.reviews(path=path)


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,rating\ncafé,3\n".encode("latin-1"))
    with pytest.raises(InputError, match="must be a CSV file in UTF-8, got"):
        text.reviews(path=tmp_path / "a.csv")


def test_verses(tmp_path):
    with pytest.raises(InputError, match=r"^File not found: .*kjv_verses\.txt\.gz"):
        text.bible(tmp_path)
    (tmp_path / "bible").mkdir()
    with gzip.open(tmp_path / text.BIBLE, "wt") as file:
        file.write("In the beginning\nAnd the earth\n\n")
    assert text.bible(tmp_path) == ["In the beginning", "And the earth"]


def test_nan_in_json_is_no_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": NaN, "rating": 5}\n{"title": NaN, "text": "nan", "rating": 4}\n')
    data = text.reviews(path=path)
    assert (data.X["title"].to_list(), data.X["text"].to_list(), data.y.tolist()) == ([""], ["nan"], [4])
    assert data.note == "1 rows without text left out"


def test_the_real_reviews(real_data):
    folder = real_data(text.SOURCE.files[-1])
    data = text.reviews(folder)
    with gzip.open(folder / text.SOURCE.files[-1], "rt", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = [header.index(name) for name in ("Title", "Review Text", "Rating")]
    raw = [row for row in ([row[i] for i in columns] for row in rows) if row[1] != ""]
    assert data.X.shape == (22_641, 2)
    assert data.note == "845 rows without text left out"
    assert data.X.rows() == [(title, review) for title, review, _ in raw]
    assert data.y.tolist() == [int(rating) for _, _, rating in raw]
    assert [len(part) for part in data.split] == [15_848, 2_264, 4_529]


def test_the_real_verses(real_data):
    verses = text.bible(real_data(text.BIBLE))
    assert len(verses) == 31_102
    assert verses[0].startswith("In the beginning God created the heaven and the earth")
