"""Counts of people from annotations of COCO's form and from a CSV; images are empty files, which are not decoded."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from ddpn.paper.datasets import coco
from ddpn.paper.datasets.coco import coco_people
from ddpn.paper.inputs import decode_images
from ddpn.runtime.errors import InputError

#: Image id -> categories of its annotations; "crowd" is a region of people.
SHOWN = {
    9: ["person", "dog", "person"],
    4: ["person"],
    7: ["dog"],
    5: [],
    11: ["person", "person", "crowd"],
    12: ["crowd"],
}


def instances(path, shown=SHOWN):
    """COCO's json, with numbers of categories and annotations as they come there."""
    kinds = {"person": 1, "crowd": 1, "dog": 18}
    annotations = [
        {
            "segmentation": [[1.0, 2.0]],
            "image_id": image,
            "category_id": kinds[kind],
            "iscrowd": int(kind == "crowd"),
            "id": 100 * image + i,
        }
        for image, found in shown.items()
        for i, kind in enumerate(found)
    ]
    content = {
        "info": {"description": "COCO"},
        "images": [{"id": image, "file_name": f"{image:012}.jpg", "width": 640} for image in shown],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def empty_files(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def images(folder, shown=SHOWN):
    return empty_files(folder, [f"{image:012}.jpg" for image in shown])


@pytest.fixture
def home(tmp_path):
    """The folder of a user who unpacked COCO."""
    instances(tmp_path / coco.SOURCE.files[0])
    images(tmp_path / "coco_people" / "train2017")
    return tmp_path


def counts(data):
    return dict(zip((int(os.path.basename(file)[:-4]) for file in data.X["file"]), data.y.tolist(), strict=True))


def test_a_crowd_is_one_as_in_the_paper(home):
    data = coco_people(home)
    assert counts(data) == {4: 1, 9: 2, 11: 3, 12: 1}
    assert data.X["file"].to_list() == [os.path.join("train2017", f"{n:012}.jpg") for n in (4, 9, 11, 12)]
    assert data.root == home / "coco_people"
    assert all((data.root / file).is_file() for file in data.X["file"])
    assert data.sample
    assert data.note == "4 of the 64,115 images of the paper's data"


def test_crowds_left_out(home):
    assert counts(coco_people(home, crowds=False)) == {4: 1, 9: 2, 11: 2}


def test_files_and_images_of_a_user(tmp_path):
    paths = [
        instances(tmp_path / "instances_train2017.json"),
        instances(tmp_path / "instances_val2017.json", {40: ["person"] * 4, 30: ["person"]}),
    ]
    below = images(images(tmp_path / "all" / "train2017").parent / "val2017", [40, 30]).parent
    data = coco_people(annotations=paths, images=below)
    assert counts(data) == {4: 1, 9: 2, 11: 3, 12: 1, 30: 1, 40: 4}
    assert not data.sample
    assert data.note == ""
    flat = images(tmp_path / "flat")
    assert coco_people(annotations=paths[0], images=flat).X["file"][0] == "000000000004.jpg"


def csv_home(tmp_path, rows, names):
    empty_files(tmp_path / "coco_people" / "images", names)
    pd.DataFrame(rows, columns=["image_id", "person_count"]).to_csv(tmp_path / coco.SOURCE.files[-1], index=False)
    return tmp_path


def test_a_csv_of_counts(tmp_path):
    rows = [("0036", 3), ("0049", 1), ("shop.png", 0), *((f"1{i:03}", 2) for i in range(17))]
    names = ["0036.jpg", "0049.jpeg", "shop.png", "notes.txt", *(f"1{i:03}.jpg" for i in range(17))]
    data = coco_people(csv_home(tmp_path, rows, names))
    assert data.X["file"][:3].to_list() == ["0036.jpg", "0049.jpeg", "shop.png"]
    assert data.y[:4].tolist() == [3, 1, 0, 2]
    assert data.root == tmp_path / "coco_people" / "images"
    np.testing.assert_array_equal(np.concatenate(list(data.split)), np.random.default_rng(1998).permutation(20))
    instances(tmp_path / coco.SOURCE.files[0], {36: ["person"]})
    empty_files(data.root, [f"{36:012}.jpg"])
    assert counts(coco_people(tmp_path)) == {36: 1}


def test_an_image_is_found_among_other_files_of_its_name(tmp_path):
    names = ["1.JPG", "1.txt", "1.json", "2.png", "2.xml", "3.jpg", "3.png"]
    data = coco_people(csv_home(tmp_path, [("1", 1), ("2", 2), ("3.jpg", 3)], names))
    assert data.X["file"].to_list() == ["1.JPG", "2.png", "3.jpg"]
    with pytest.raises(InputError, match=r"must be that of one image, got '3' for 3\.jpg and 3\.png\."):
        coco_people(csv_home(tmp_path, [("1", 1), ("3", 3)], []))
    empty_files(tmp_path / "coco_people" / "images", ["4.txt"])
    with pytest.raises(InputError, match=r"not found in .*: 1 of 2, such as 4\."):
        coco_people(csv_home(tmp_path, [("1", 1), ("4", 3)], []))


def test_columns_of_a_csv(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("image_id,note,person_count\na,dark,2\n")
    assert coco_people(annotations=path, images=empty_files(tmp_path / "all", ["a.jpg"])).y.tolist() == [2]
    path.write_text("file,people\na,2\n")
    with pytest.raises(InputError, match=r"columns image_id, person_count, got no image_id, person_count"):
        coco_people(annotations=path, images=tmp_path / "all")
    path.write_text("image_id,person_count\na,1e30\n")
    with pytest.raises(InputError, match=r"person_count must be at most 2\^53, got 1e\+30 at row 1"):
        coco_people(annotations=path, images=tmp_path / "all")


def test_seventy_ten_twenty(tmp_path):
    names = [f"{i:04}" for i in range(101)]
    data = coco_people(csv_home(tmp_path, [(name, 1) for name in names], [f"{name}.jpg" for name in names]))
    assert [len(part) for part in data.split] == [70, 10, 21]


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match=r"^No annotations found: .*coco_people has neither .* Unpack http://images"):
        coco_people(tmp_path)
    gone = [tmp_path / "a.json", instances(tmp_path / "b.json"), tmp_path / "c.json"]
    with pytest.raises(InputError, match=r"^annotations must be .*, got 3 of which .*a\.json.*c\.json.* are missing"):
        coco_people(annotations=gone, images=tmp_path)
    with pytest.raises(InputError, match=r"^Folder of images not found: .*nowhere"):
        coco_people(annotations=gone[1], images=tmp_path / "nowhere")


def test_missing_images_are_counted(home):
    for image in (9, 12):
        (home / "coco_people" / "train2017" / f"{image:012}.jpg").unlink()
    with pytest.raises(InputError, match=r"not found in .*: 2 of 4, such as 000000000009\.jpg"):
        coco_people(home)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "must be one of COCO's instances_.*, got JSONDecodeError"),
        ("[]", "must be one of COCO's instances_.*, got TypeError"),
        ('{"images": [], "annotations": []}', "got KeyError: 'categories'"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "person"}]}',
            "must have annotations of the category person, got none",
        ),
        (
            '{"images": [], "annotations": [{"image_id": 3, "category_id": 1}], "categories": [{"id": 1, "name":'
            ' "person"}]}',
            "must list the image of every annotation, got 1 others: 3",
        ),
        (
            '{"images": [{"id": 3, "file_name": "a"}, {"id": "4", "file_name": "b"}], "annotations": [{"image_id": 3,'
            ' "category_id": 1}, {"image_id": "4", "category_id": 1}], "categories": [{"id": 1, "name": "person"}]}',
            "must be one of COCO's instances_.*, got TypeError: ",
        ),
    ],
)
def test_an_invalid_annotation_file(tmp_path, content, words):
    path = tmp_path / "instances.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        coco_people(annotations=path, images=tmp_path)


def test_an_image_counted_twice(tmp_path):
    path = instances(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"Every image must be counted once, got 000000000004\.jpg 2 times"):
        coco_people(annotations=[path, path], images=images(tmp_path / "all"))


def test_the_real_images(real_data):
    data = coco_people(real_data("coco_people/person_counts.csv"))
    assert data.X.shape == (5_446, 1)
    assert (data.y.min(), data.y.max()) == (1, 15)
    assert data.y.mean() == pytest.approx(4.09, abs=0.005)
    assert [len(part) for part in data.split] == [3_812, 544, 1_090]
    assert data.note == "5,446 of the 64,115 images of the paper's data"
    pytest.importorskip("PIL.Image")
    images = data.images("validation", size=64)
    assert len(images) == 544
    assert images.y.tolist() == data.y[data.split.validation].tolist()
    pixels, _ = decode_images(images.rows(range(16)))
    assert pixels.shape == (16, 3, 64, 64)
    # Photographs: neither dark nor white, and all different.
    assert 20 < pixels.float().mean() < 235
    assert len({image.numpy().tobytes() for image in pixels}) == 16
