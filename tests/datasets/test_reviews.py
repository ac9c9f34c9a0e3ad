"""Reviews in every form of file, on made-up rows, and on the real ones where they are."""

import csv
import gzip
import json

import numpy as np
import pandas as pd
import pytest

from ddpn.datasets import reviews as text
from ddpn.datasets.table import Table
from ddpn.errors import InputError

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


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "csv.gz", "jsonl.gz"])
def test_every_form_gives_the_same_rows(tmp_path, ending, names):
    data = text.reviews(path=write(tmp_path / f"mine.{ending}", ROWS, names))
    kept = [row for row in ROWS if row["text"].strip()]
    assert data.X.names == data.X.text == ("title", "text")
    assert data.X["title"].tolist() == [row["title"] for row in kept]
    assert data.X["text"].tolist() == [row["text"] for row in kept]
    assert data.y.tolist() == [row["rating"] for row in kept]
    assert data.note == "1 rows without text left out"
    # The rows that have text, numbered from 0: 70, 10 and 20 of 100.
    np.testing.assert_array_equal(np.concatenate(list(data.split)), np.random.default_rng(1998).permutation(29))
    assert [len(part) for part in data.split] == [20, 3, 6]


def test_the_papers_file_comes_first_and_without_markup(tmp_path):
    write(tmp_path / text.WOMENS_CLOTHING, ROWS[:1], "clothing")
    assert len(text.reviews(tmp_path).y) == 1
    assert text.reviews(tmp_path).licence == "CC0"
    write(tmp_path / "reviews" / "Patio_Lawn_and_Garden_5.json.gz", ROWS, "amazon")
    data = text.reviews(tmp_path)
    assert data.note == "1 rows without text left out, 1 rows with HTML left out"
    assert len(data.y) == 28
    assert "McAuley" in data.citation
    assert len(text.reviews(tmp_path, without_markup=False).y) == 29


def test_a_seed_of_ones_own(tmp_path):
    path = write(tmp_path / "mine.csv", ROWS)
    assert (text.reviews(path=path, seed=3).split.train != text.reviews(path=path).split.train).any()


def test_empty_titles_have_a_fingerprint_of_their_own(tmp_path):
    one, other = (
        [{"title": t, "text": "x", "rating": 3} for t in ("", "a")],
        [{"title": t, "text": "x", "rating": 3} for t in ("a", "")],
    )
    found = {text.reviews(path=write(tmp_path / "mine.csv", rows)).fingerprint for rows in (one, other, one)}
    assert len(found) == 2


def test_half_a_surrogate_is_no_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "so \\ud83d", "rating": 5}\n\n{"text": "\\ud83d\\ude00", "rating": 4}\n')
    data = text.reviews(path=path)
    assert data.X["text"].tolist() == ["so ?", "😀"]
    assert len(data.fingerprint) == 64


def test_no_file(tmp_path):
    with pytest.raises(
        InputError, match=r"reviews must lie in .*reviews, got neither Patio_Lawn_and_Garden_5\.json\.gz"
    ):
        text.reviews(tmp_path, may_download=False)
    with pytest.raises(
        InputError, match=r"Download https://datarepo\.eng\.ucsd\.edu/.*_5\.json\.gz .*\.csv, which has"
    ):
        text.reviews(tmp_path)
    with pytest.raises(InputError, match="path must be a file, got none at "):
        text.reviews(path=tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.parquet", "", r"path must end in \.csv, \.json, \.jsonl, or one of these and \.gz, got a\.parquet"),
        ("a.csv", "B01,A2W,5.0,137\nB02,A2W,4.0,138\n", "one of the columns Review Text, .*, got B01, A2W, 5.0, 137"),
        ("a.csv", "", "one of the columns Review Text, .*, got none"),
        ("a.csv", "text,score\nx,1\n", "one of the columns Rating, overall, rating, got text, score"),
        ("a.csv", "text,rating\nx,1\ny\n", "must have 2 fields in every row, got another number in row 2"),
        ("a.csv", "text,rating\nx,1\ny,2,3\n", "must have 2 fields in every row, got another number in row 2"),
        ("a.csv", "text,rating\nx,1\ny,5\nz,4.5\n", r"whole numbers from 1 to 5, got '4\.5' in row 3"),
        ("a.csv", "text,rating\nx,nan\n", "whole numbers from 1 to 5, got 'nan' in row 1"),
        ("a.csv", "text,rating\nx,\n", "whole numbers from 1 to 5, got '' in row 1"),
        ("a.csv", "text,rating\n ,1\n", "must hold rows with text in one of .*, got none in 1 rows"),
        ("a.json", '{"text": "x", "rating": 0}\n', "whole numbers from 1 to 5, got 0 in row 1"),
        ("a.json", '{"text": "x", "rating": 5}\n{"text": "x"}\n', "whole numbers from 1 to 5, got None in row 2"),
        ("a.json", '{"body": "x", "rating": 5}\n', "must hold rows with text in one of .*, got none in 1 rows"),
        ("a.json", '{"body": "x", "score": 5}\n', "one of the columns Rating, overall, rating, got body, score"),
        ("a.json", '[{"text": "x"}]\n', r"must have a json object in every line, got '\[\{.* in row 1"),
        ("a.json", '{"text": "x", "rating": 5}\n{"te', "must have a json object in every line, got '{\"te' in row 2"),
        ("a.csv.gz", "text,rating\nx,1\n", "must be a whole file of utf-8 text, got damage"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=sentence):
        text.reviews(path=tmp_path / name)


def test_a_file_that_ends_too_soon(tmp_path):
    path = write(tmp_path / "a.csv.gz", ROWS)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(
        InputError, match=r"a\.csv\.gz must be a whole file of utf-8 text, got damage .* Fetch it again"
    ):
        text.reviews(path=path)


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,rating\ncafé,3\n".encode("latin-1"))
    with pytest.raises(InputError, match="must be a whole file of utf-8 text, got damage"):
        text.reviews(path=tmp_path / "a.csv")


def test_verses(tmp_path):
    with pytest.raises(InputError, match=r"kjv_verses\.txt\.gz must lie in .*bible, got no such file"):
        text.bible(tmp_path)
    (tmp_path / "bible").mkdir()
    with gzip.open(tmp_path / text.BIBLE, "wt") as file:
        file.write("In the beginning\nAnd the earth\n\n")
    assert text.bible(tmp_path) == ["In the beginning", "And the earth"]


def test_columns_are_joined():
    table = Table({"title": np.array(["a", "", "c"], dtype=object), "text": np.array(["x", "y", ""], dtype=object)})
    assert text.joined(table) == ["a x", "y", "c"]
    assert text.joined(table, ("text", "title"), sep=" | ") == ["x | a", "y", "c"]
    assert text.joined(table, "text") == ["x", "y", ""]


def test_missing_texts_are_left_out():
    frame = pd.DataFrame({"title": ["a", np.nan, None], "text": [None, "y", "z"]}, dtype=object)
    assert text.joined(frame) == ["a", "y", "z"]
    with pytest.raises(
        InputError, match=r'^column text must hold text, got 3 in row 1\. Use "" where there is none\.$'
    ):
        text.joined(Table({"text": np.array(["a", 3], dtype=object)}), ["text"])


def test_nan_in_json_is_no_text(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": NaN, "rating": 5}\n{"title": NaN, "text": "nan", "rating": 4}\n')
    data = text.reviews(path=path)
    assert (data.X["title"].tolist(), data.X["text"].tolist(), data.y.tolist()) == ([""], ["nan"], [4])
    assert data.note == "1 rows without text left out"


def test_the_real_reviews(real_data):
    folder = real_data(text.WOMENS_CLOTHING)
    data = text.reviews(folder)
    raw = pd.read_csv(folder / text.WOMENS_CLOTHING, keep_default_na=False)
    raw = raw[raw["Review Text"] != ""]
    assert data.X.shape == (22_641, 2)
    assert data.note == "845 rows without text left out"
    np.testing.assert_array_equal(data.X["text"], raw["Review Text"])
    np.testing.assert_array_equal(data.X["title"], raw["Title"])
    np.testing.assert_array_equal(data.y, raw["Rating"])
    assert [len(part) for part in data.split] == [15_848, 2_264, 4_529]


def test_the_real_verses(real_data):
    verses = text.bible(real_data(text.BIBLE))
    assert len(verses) == 31_102
    assert verses[0].startswith("In the beginning God created the heaven and the earth")
