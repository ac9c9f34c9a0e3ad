"""The number of people in the images of MS-COCO."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, as_counts, read_columns, split
from ddpn.paper.datasets.sources import SOURCES, data_folder
from ddpn.runtime.errors import InputError

SOURCE = SOURCES["coco_people"]
ANNOTATIONS_URL = "http://images.cocodataset.org/annotations/annotations_trainval2017.zip"
#: Images in the paper's data: all of train2017 with an annotation of a person, crowds among them.
ALL = 64_115
#: Endings of image files, which a name in a CSV may leave out.
_ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".avif", ".jp2", ".ppm"}
#: The only keys that are kept while an annotation file is read: outlines are nine tenths of it.
_KEPT = {"images", "annotations", "categories", "id", "file_name", "image_id", "category_id", "iscrowd", "name"}


def coco_people(
    folder: Path | None = None,
    *,
    annotations: Path | Sequence[Path] | None = None,
    images: Path | None = None,
    crowds: bool = True,
    seed: int = SEED,
) -> Dataset:
    """The number of people in an image: the column "file" names it, below the folder `root` of the data set.

    An image's count is the number of its annotations as a person; images without a person are left out (the counts of a
    CSV are taken as they are). Rows are in the order of the images' ids and split 70/10/20.
    `coco_people().images("train")` reads them.

    Parameters
    ----------
    folder : Path, optional
        The folder above `coco_people`. Default: `data_folder()`.
    annotations : Path or sequence of Path, optional
        COCO's `instances_*.json`, one or several, or a CSV with the columns image_id (the file's name, with or without
        its ending) and person_count; others are left out. Default: the first of these in the folder `coco_people`:
        annotations/instances_train2017.json, person_counts.csv.
    images : Path, optional
        The folder of the images, or the one above train2017 and val2017. Default: coco_people/images, or coco_people.
    crowds : bool
        COCO draws one region around a crowd, beside the people that it draws singly: it counts as one, as in the paper,
        whose 64,115 images are all that have such an annotation. False does not count these regions.
    seed : int
        Seed of the split.
    """
    folder = data_folder() if folder is None else Path(folder)
    home = folder / "coco_people"
    paths = [_find(folder)] if annotations is None else _check_files(annotations)
    root = Path(images) if images is not None else home / "images" if (home / "images").is_dir() else home
    if not root.is_dir():
        raise InputError(f"Folder of images not found: {root}. Unpack {SOURCE.url} there.")
    rows = [row for path in paths for row in _rows(path, root, crowds)]
    file, times = Counter(file for file, _ in rows).most_common(1)[0]
    if times > 1:
        raise InputError(f"Every image must be counted once, got {file} {times} times.")
    y = as_counts(np.array([count for _, count in rows], dtype=np.float64), "person_count")
    import polars  # slow to import

    frame = polars.DataFrame({"file": [file for file, _ in rows]})
    parts, is_sample = split(len(y), seed, LARGE_SHARES), annotations is None and len(y) < ALL
    note = f"{len(y):,} of the {ALL:,} images of the paper's data" if is_sample else ""
    terms = SOURCE.license, SOURCE.citation
    return Dataset("coco_people", frame, y, parts, *terms, note=note, sample=is_sample, root=root)


def _find(folder: Path) -> Path:
    """The first annotations that the folder has."""
    if found := next((folder / name for name in SOURCE.files if (folder / name).is_file()), None):
        return found
    instances, *_, counts = (Path(name).relative_to("coco_people") for name in SOURCE.files)
    raise InputError(
        f"No annotations found: {folder / 'coco_people'} has neither {instances} nor {counts}. "
        f"Unpack {ANNOTATIONS_URL} and {SOURCE.url} there, set DDPN_DATA to the folder above it, or "
        f"pass annotations and images."
    )


def _check_files(annotations: Path | Sequence[Path]) -> list[Path]:
    paths = [Path(annotations)] if isinstance(annotations, str | os.PathLike) else [Path(path) for path in annotations]
    missing = [path for path in paths if not path.is_file()]
    if missing or not paths:
        raise InputError(f"annotations must be one file or more, got {len(paths)} of which {missing} are missing.")
    return paths


def _rows(path: Path, root: Path, crowds: bool) -> list[tuple[str, float]]:
    """Files below root and their counts, in the order of the images' ids, or of a CSV."""
    if path.suffix == ".csv":
        table = read_columns(path, numbers=["person_count"], texts=["image_id"])
        names, counts = table["image_id"].to_list(), table["person_count"].to_list()
    else:
        names, counts = _counted(path, crowds)
    return list(zip(_locate(path, root, names), counts, strict=True))


def _counted(path: Path, crowds: bool) -> tuple[list[str], list[float]]:
    """Files and counts of all images with a person."""
    try:
        with path.open("rb") as file:
            kept = json.load(file, object_hook=lambda found: {k: v for k, v in found.items() if k in _KEPT})
        people = [category["id"] for category in kept["categories"] if category["name"] == "person"]
        files = {image["id"]: image["file_name"] for image in kept["images"]}
        single = (each for each in kept["annotations"] if crowds or not each.get("iscrowd"))
        counts = Counter(each["image_id"] for each in single if each["category_id"] in people)
        ids = sorted(counts)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must be one of COCO's instances_*.json with images, annotations and categories, got "
            f"{type(error).__name__}: {error}."
        ) from error
    if not ids:
        raise InputError(f"{path} must have annotations of the category person, got none.")
    if unknown := [image for image in ids if image not in files]:
        raise InputError(f"{path} must list the image of every annotation, got {len(unknown)} others: {unknown[0]}.")
    return [files[image] for image in ids], [float(counts[image]) for image in ids]


def _locate(path: Path, root: Path, names: list[str]) -> list[str]:
    """The file of each name, below root or in the folder of its year there."""
    files: dict[str, list[str]] = {}
    for folder in (path.stem.removeprefix("instances_"), ""):
        files |= _files(root, folder)
    if missing := [name for name in names if name not in files]:
        raise InputError(
            f"Images of {path} not found in {root}: {len(missing):,} of {len(names):,}, such as {missing[0]}. "
            f"Unpack {SOURCE.url} there, or pass their folder as images."
        )
    if several := next((name for name in names if len(files[name]) > 1), None):
        raise InputError(
            f"Every name in {path} must be that of one image, got {several!r} for {' and '.join(files[several])}. "
            f"Write its ending, too."
        )
    return [files[name][0] for name in names]


def _files(root: Path, folder: str) -> dict[str, list[str]]:
    """Files of a folder below root by name; images also by their name without its ending, which several may share."""
    names = sorted(os.listdir(root / folder)) if (root / folder).is_dir() else []
    found: dict[str, list[str]] = {}
    for name in names:
        stem, ending = os.path.splitext(name)
        if ending.lower() in _ENDINGS:
            found.setdefault(stem, []).append(os.path.join(folder, name))
    return found | {name: [os.path.join(folder, name)] for name in names}
