"""People on the pictures of MS-COCO."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.datasets.csv_file import other_columns, read_csv
from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.source import data_folder
from ddpn.datasets.split import SEED, split
from ddpn.datasets.table import Table
from ddpn.errors import InputError

FOLDER = "coco_people"
COUNTS = "person_counts.csv"
INSTANCES = ("annotations/instances_train2017.json", "instances_train2017.json")
ANNOTATIONS_URL = "http://images.cocodataset.org/annotations/annotations_trainval2017.zip"
IMAGES_URL = "http://images.cocodataset.org/zips/train2017.zip"
LICENCE = "annotations CC BY 4.0, pictures under their own terms"
PARTS = (0.7, 0.1, 0.2)
#: Pictures in the paper's set: all of train2017 with an annotation of a person, crowds among them.
ALL = 64_115
_CATEGORY = "person"
_COLUMNS = ("image_id", "person_count")
#: Endings by which a picture is found whose name is given without one.
_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".avif", ".jp2", ".ppm"})
#: All that is kept of an annotation file while it is read: outlines are nine tenths of it.
_KEPT = frozenset(
    {"images", "annotations", "categories", "id", "file_name", "image_id", "category_id", "iscrowd", "name"}
)


def coco_people(
    folder: Path | None = None,
    *,
    annotations: Path | Sequence[Path] | None = None,
    images: Path | None = None,
    crowds: bool = True,
    seed: int = SEED,
) -> Dataset:
    """How many people are on a picture: the column "file" names it, below the folder `root` of what is returned.

    `annotations` is COCO's `instances_*.json`, one or several, or a csv with the columns image_id (the file's name,
    with or without its ending) and person_count, others left out. Without it they are looked for in the folder
    `coco_people`: annotations/instances_train2017.json, then person_counts.csv. `images` is the folder of the pictures,
    or the one above train2017 and val2017; without it, coco_people/images, or coco_people.

    A picture's count is the number of its annotations as a person. COCO draws one region round a crowd, beside the
    people that it draws singly: it counts as one, as in the paper, whose 64,115 pictures are all that have such an
    annotation. With `crowds=False` these regions do not count. Pictures without a person are left out (a csv's counts
    are taken as they are). Rows are in the order of the pictures' numbers and split 70/10/20.
    `Pictures.of(data, "train")` reads them.
    """
    home = (data_folder() if folder is None else Path(folder)) / FOLDER
    paths = _found(home) if annotations is None else _listed(annotations)
    root = Path(images) if images is not None else home / "images" if (home / "images").is_dir() else home
    if not root.is_dir():
        raise InputError(f"images must be a folder of pictures, got none at {root}. Unpack {IMAGES_URL} there.")
    rows = [row for path in paths for row in _rows(path, root, crowds)]
    _check_once(rows)
    y = as_counts(np.array([count for _, count in rows], dtype=np.float64), "person_count")
    few = annotations is None and len(y) < ALL
    return Dataset(
        name="coco_people",
        X=Table({"file": np.array([file for file, _ in rows], dtype=object)}),
        y=y,
        split=split(len(y), seed, PARTS),
        licence=LICENCE,
        citation="Lin, T.-Y. et al. (2014). Microsoft COCO: common objects in context. ECCV.",
        note=f"{len(y):,} of the {ALL:,} pictures of the paper's set" if few else "",
        sample=few,
        root=root,
    )


def _found(home: Path) -> list[Path]:
    for name in (*INSTANCES, COUNTS):
        if (home / name).is_file():
            return [home / name]
    raise InputError(
        f"annotations must lie in {home}, got neither {INSTANCES[0]} nor {COUNTS}. Unpack {ANNOTATIONS_URL} and "
        f"{IMAGES_URL} there, set DDPN_DATA to the folder above it, or give annotations and images."
    )


def _listed(annotations: Path | Sequence[Path]) -> list[Path]:
    paths = [Path(annotations)] if isinstance(annotations, str | os.PathLike) else [Path(path) for path in annotations]
    missing = [path for path in paths if not path.is_file()]
    if missing or not paths:
        first = f", the first {missing[0]}" if missing else ""
        raise InputError(
            f"annotations must be files, got {len(missing)} missing of {len(paths)}{first}. Unpack {ANNOTATIONS_URL}."
        )
    return paths


def _rows(path: Path, root: Path, crowds: bool) -> list[tuple[str, float]]:
    """Files below root and their counts, in the order of the pictures' numbers, or of a csv."""
    if path.suffix == ".csv":
        others = other_columns(path, _COLUMNS)
        table = read_csv(path, numbers=("person_count",), texts=("image_id",), ignored=others)
        return _placed(path, root, list(table["image_id"]), table["person_count"].tolist())
    counted = sorted(_counted(path, crowds))
    return _placed(path, root, [file for _, file, _ in counted], [float(count) for _, _, count in counted])


def _counted(path: Path, crowds: bool) -> Iterator[tuple[int, str, int]]:
    """Number, file and count of every picture with a person."""
    try:
        with path.open("rb") as file:
            content = json.load(file, object_hook=_without_outlines)
        people = [kind["id"] for kind in content["categories"] if kind["name"] == _CATEGORY]
        files = {image["id"]: image["file_name"] for image in content["images"]}
        counts = Counter(
            each["image_id"]
            for each in content["annotations"]
            if each["category_id"] in people and (crowds or not each.get("iscrowd"))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must be COCO's json with images, annotations and categories, got another "
            f"({type(error).__name__}: {error}). Use one of its instances_*.json."
        ) from None
    if not counts:
        raise InputError(f"{path} must have annotations of the category {_CATEGORY}, got none. Use instances_*.json.")
    kinds = sorted({type(image).__name__ for image in counts})
    if len(kinds) > 1:
        raise InputError(
            f"{path} must number its pictures in one way, got ids of {' and '.join(kinds)}. Use integers throughout."
        )
    if strange := sorted(counts.keys() - files.keys()):
        raise InputError(
            f"{path} must list the picture of every annotation, got {len(strange)} that it does not, the first "
            f"{strange[0]}. Unpack {ANNOTATIONS_URL} again."
        )
    return ((image, files[image], count) for image, count in counts.items())


def _without_outlines(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in _KEPT}


def _placed(path: Path, root: Path, names: list[str], counts: list[float]) -> list[tuple[str, float]]:
    """Each name as that of a file that is there, in root or in the folder of its year below."""
    there: dict[str, list[str]] = {}
    for folder in (path.stem.removeprefix("instances_"), ""):
        there |= _pictures(root, folder)
    missing = [name for name in names if name not in there]
    if missing:
        raise InputError(
            f"the pictures of {path} must lie in {root}, got {len(missing):,} missing of {len(names):,}, the first "
            f"{missing[0]}. Unpack {IMAGES_URL} there, or give the folder as images."
        )
    if several := next((name for name in names if len(there[name]) > 1), None):
        raise InputError(
            f"every name in {path} must be that of one picture, got {several!r} for {' and '.join(there[several])}. "
            f"Write its ending too."
        )
    return [(there[name][0], count) for name, count in zip(names, counts, strict=True)]


def _pictures(root: Path, folder: str) -> dict[str, list[str]]:
    """Files of a folder below root by name; pictures also without their ending, which several may share."""
    listed = sorted(os.listdir(root / folder)) if (root / folder).is_dir() else []
    found: dict[str, list[str]] = {}
    for name in listed:
        stem, ending = os.path.splitext(name)
        if ending.lower() in _ENDINGS:
            found.setdefault(stem, []).append(os.path.join(folder, name))
    return found | {name: [os.path.join(folder, name)] for name in listed}


def _check_once(rows: list[tuple[str, float]]) -> None:
    file, times = Counter(file for file, _ in rows).most_common(1)[0]
    if times > 1:
        raise InputError(f"every picture must be counted once, got {file} {times} times. Drop a file of annotations.")
