"""Test reviews of the paper and of clothing, on made-up rows, and on real ones where there are any."""

import csv
import gzip
import json

import numpy as np
import pytest

from ddpn.paper.datasets import texts as text
from ddpn.runtime.errors import InputError

PAPER, CLOTHING = text.SOURCE.files
ROWS = [
    ("Nice", "It fits, and\nit is blue.", 5),
    ("", "Too small 😀", 1),
    ("No words", "  ", 4),
    ("Torn", "Has a <br/> in it", 2),
    *(("", f"number {i}", 1 + i % 5) for i in range(26)),
]


def write_gzip(folder, name, content):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data))
    return folder


def format_clothing(rows):
    lines = [("id", "Title", "Review Text", "Rating"), *((i, *row) for i, row in enumerate(rows))]
    quoted = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in line) for line in lines]
    return "\n".join(quoted) + "\n"


def format_patio(rows):
    """Format reviews of patio: empty fields are not in json at all."""
    names = ("summary", "reviewText", "overall")
    records = [{k: v for k, v in zip(names, row, strict=True) if v != ""} for row in rows]
    return "".join(json.dumps(record) + "\n" for record in records)


def test_reviews_of_clothing_are_read_with_their_split(tmp_path):
    write_gzip(tmp_path, CLOTHING, format_clothing(ROWS))
    data = text.reviews()
    kept = [row for row in ROWS if row[1].strip()]
    assert data.X.columns == ["title", "text"]
    assert data.X.rows() == [row[:2] for row in kept]
    assert data.y.tolist() == [row[2] for row in kept]
    assert data.note == "1 rows without text left out"
    assert data.license == "CC0"
    # The rows that have text, numbered from 0: 70, 10 and 20 of 100.
    np.testing.assert_array_equal(np.concatenate(list(data.split)), np.random.default_rng(1998).permutation(29))
    assert [len(part) for part in data.split] == [20, 3, 6]


def test_the_papers_file_comes_first_without_markup_and_with_rows_that_have_no_text(tmp_path):
    write_gzip(write_gzip(tmp_path, CLOTHING, format_clothing(ROWS[:1])), PAPER, format_patio(ROWS))
    data = text.reviews()
    kept = [row for row in ROWS if "<" not in row[1]]
    assert data.X.rows() == [row[:2] for row in kept]
    assert data.y.tolist() == [row[2] for row in kept]
    assert data.note == "1 rows with HTML left out, 29 of the 793,966 reviews of the paper's data"
    assert "McAuley" in data.citation


def test_half_a_surrogate_and_null_are_no_text(tmp_path):
    lines = ['{"reviewText": "so \\ud83d", "overall": 5}', '{"summary": null, "reviewText": null, "overall": 4.0}']
    write_gzip(tmp_path, PAPER, "\n".join(lines))
    data = text.reviews()
    assert (data.X.rows(), data.y.tolist()) == ([("", "so ?"), ("", "")], [5, 4])


def test_a_missing_file_says_how_to_get_it(tmp_path):
    words = r"^File not found: .*Patio_Lawn_and_Garden_5\.json\.gz or .*Download https://datarepo.*_5\.json\.gz"
    with pytest.raises(InputError, match=words):
        text.reviews()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (CLOTHING, "", "Title, Review Text, Rating, got: "),
        (CLOTHING, "Review Text,score\nx,1\n", "Title, Review Text, Rating, got: "),
        (CLOTHING, "café".encode("latin-1"), "Title, Review Text, Rating, got: "),
        (CLOTHING, format_clothing([("", "x", 1), ("", "y", 4.5)]), r"integers from 1 to 5, got '4\.5' at row 2"),
        (CLOTHING, format_clothing([("", " ", 1)]), "rows with text, got none in 1"),
        (PAPER, format_patio([("", "x", 0)]), "integers from 1 to 5, got 0 at row 1"),
        (PAPER, format_patio([("", "x", 5), ("", "x", "")]), "integers from 1 to 5, got None at row 2"),
        (PAPER, '[{"reviewText": "x"}]\n', r"one JSON object per line, got '\[\{.* at row 1"),
        (PAPER, format_patio([("", "x", 5)]) + '{"te', "one JSON object per line, got '{\"te' at row 2"),
        (PAPER, "é".encode("latin-1"), "complete file in UTF-8"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, name, content, sentence):
    write_gzip(tmp_path, name, content)
    with pytest.raises(InputError, match=sentence):
        text.reviews()


def test_a_file_that_ends_too_soon_is_refused(tmp_path):
    for name, content in ((CLOTHING, format_clothing(ROWS)), (PAPER, format_patio(ROWS))):
        path = write_gzip(tmp_path, name, content) / name
        path.write_bytes(path.read_bytes()[:-12])
        with pytest.raises(InputError, match=f"{path.name} must be a "):
            text.reviews()


def test_verses_are_read_from_either_file(tmp_path):
    with pytest.raises(InputError, match=r"^File not found: .*eng-eng-kjv\.txt or .*\. Run `ddpn data get bible`, or"):
        text.bible()
    ebible, debian = text.VERSES.files
    write_gzip(tmp_path, debian, "In the beginning\nAnd the earth\n\n")
    assert text.bible() == ["In the beginning", "And the earth"]
    # A verse per line; those that a translation lacks are empty.
    (tmp_path / ebible).write_text("In the beginning God\n\n\nAnd the earth was\nThere dwelt a man in Babylon\n")
    assert text.bible() == ["In the beginning God", "And the earth was", "There dwelt a man in Babylon"]
    verses = text.verses()
    assert (len(verses), verses.sample) == (3, True)
    assert verses.note == "3 of the 36,694 verses of the paper's data"


@pytest.mark.parametrize(("rows", "note"), [(36_694, ""), (36_695, "36,695 instead of the 36,694 verses of the")])
def test_as_many_verses_as_in_the_paper_need_no_note(tmp_path, rows, note):
    path = tmp_path / text.VERSES.files[0]
    path.parent.mkdir()
    path.write_text("x\n" * rows)
    assert text.verses().note.startswith(note)
    assert (text.verses().note == "") == (note == "")


def test_the_real_reviews_are_read_whole(use_real_data):
    folder = use_real_data(CLOTHING)
    data = text.reviews()
    with gzip.open(folder / CLOTHING, "rt", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = [header.index(name) for name in ("Title", "Review Text", "Rating")]
    raw = [row for row in ([row[i] for i in columns] for row in rows) if row[1] != ""]
    assert data.X.shape == (22_641, 2)
    assert data.note == "845 rows without text left out"
    assert data.X.rows() == [(title, review) for title, review, _ in raw]
    assert data.y.tolist() == [int(rating) for _, _, rating in raw]
    assert [len(part) for part in data.split] == [15_848, 2_264, 4_529]
