"""Read and write tables: CSV, TSV, Excel, JSON lines, Parquet, Feather, compressed text, and CSV on standard input."""

import glob
import gzip
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from ddpn.runtime.errors import InputError, format_argument
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import join_words
from ddpn.storage.files import check_writable, write_bytes
from ddpn.tables.layout import MAX_ROWS_ABOVE_HEADER, WHOLE_FILE, Layout, refuse_title
from ddpn.tables.text_files import drop_empty_rows, infer_column_types, read_text_table

STDIN = "-"
#: The separator of text files by extension; None means that it is inferred from the header.
TEXT = {".csv": None, ".tsv": "\t"}
#: The polars reader of each binary format, whose columns have types.
BINARY = {".parquet": "read_parquet", ".pq": "read_parquet", ".feather": "read_ipc", ".arrow": "read_ipc"}
#: The polars reader of each JSON format; these files are read and never written.
JSON = {".jsonl": "read_ndjson", ".ndjson": "read_ndjson", ".json": "read_json"}
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
COMPRESSED = (".gz", ".zst")
#: Extensions of the files that are read if a folder is given.
_IN_FOLDERS = (".parquet", ".pq", *TEXT)


def check_layout(layout: Layout, name: str, extension: str) -> None:
    """Raise an `InputError` if files with this extension cannot have the layout.

    Only workbooks have sheets, and only workbooks and text files have rows above the header. `name` is the name of the
    file in the error.
    """
    if layout.sheet is not None and extension not in EXCEL:
        raise InputError(f"{name} is no workbook with sheets. Leave out `sheet`.")
    if layout.skip_rows and extension not in (*EXCEL, *TEXT):
        raise InputError(f"{name} has no rows above its columns. Leave out `skip_rows`.")


def get_extension(path: str, to_write: bool = False) -> str:
    """Return the extension that determines the format of a file: ".csv" for a.csv and for a.csv.gz.

    Unsupported extensions raise an `InputError`. With `to_write`, so do JSON and Excel, because they can only be read.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED and suffixes[-2:-1] and suffixes[-2] in TEXT:
        return suffixes[-2]
    endings = [*TEXT, *BINARY, *([] if to_write else [*JSON, *EXCEL])]
    if suffixes and suffixes[-1] in endings:
        return suffixes[-1]
    readable = f"{', '.join(endings)}, those of text also with {' or '.join(COMPRESSED)}"
    raise InputError(f"Unsupported file type: {path}. Supported: {readable}.")


def is_pattern(source: str) -> bool:
    """Return True if a path has wildcards such as * and no file has exactly this name."""
    return glob.has_magic(source) and not os.path.exists(source)


def find_files(sources: Sequence[str]) -> list[Path]:
    """List the files that paths, folders and patterns such as 'data/*.parquet' stand for.

    The files of a folder or pattern are sorted by name. A folder stands for the Parquet and text files directly inside
    it, without hidden ones.

    >>> find_files(["january.csv", "-"])
    [PosixPath('january.csv'), PosixPath('-')]
    """
    all_paths: list[Path] = []
    for source in sources:
        if os.path.isdir(source):
            files = [path for path in Path(source).iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
            paths = [path for path in files if path.suffix.lower() in _IN_FOLDERS]
        elif is_pattern(source):
            paths = [Path(path) for path in glob.glob(source, recursive=True)]
        else:
            paths = [Path(source)]
        if not paths and os.path.isdir(source):
            raise InputError(f"{source} is a folder without a file that ends in {' or '.join(_IN_FOLDERS)}.")
        if not paths:
            raise InputError(f"No file matches {source}")
        all_paths += sorted(paths)
    return all_paths


@contextmanager
def explain_read_errors(name: str, as_what: str) -> Iterator[None]:
    """Within this context, replace errors of polars and the file system by an `InputError` that names the file.

    The message is "`name` cannot be read `as_what`: ...", where `as_what` is a phrase such as "as a csv file".
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read {as_what}: {reason}.") from None


def read_file(source: str, as_text: Iterable[str] = (), layout: Layout = WHOLE_FILE) -> pl.DataFrame:
    """Read a table from a file into a polars frame.

    A text column is converted to numbers, booleans or dates if all of its cells fit. Otherwise it stays text.

    Parameters
    ----------
    source : str
        A path, or "-" for CSV from standard input.
    as_text : iterable of str
        Columns that always stay text, so that leading zeros are kept.
    layout : Layout
        Where the table begins in the file. Default: in the first row.
    """
    name = "standard input" if source == STDIN else source
    extension = ".csv" if source == STDIN else get_extension(source)
    check_layout(layout, name, extension)
    content = sys.stdin.buffer.read() if source == STDIN else _read_bytes(Path(source))
    with explain_read_errors(name, f"as a {extension[1:]} file"):
        frame = _parse_content(content, extension, set(as_text), name, layout)
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{name} is empty: it has {frame.height} rows and {frame.width} columns.")
    return frame


def _parse_content(content: bytes, extension: str, as_text: set[str], name: str, layout: Layout) -> pl.DataFrame:
    """Parse the bytes of a file with this extension into a polars frame.

    `as_text` and `layout` are as for `read_file`. `name` is the name of the file in messages.
    """
    if extension in TEXT:
        return read_text_table(content, TEXT[extension], name, as_text, layout)
    if extension in EXCEL:
        return infer_column_types(drop_empty_rows(_read_sheet(content, name, layout), name), as_text)
    if extension == ".json":
        return pl.read_json(content, infer_schema_length=None)
    if extension in JSON:
        return pl.read_ndjson(content, infer_schema_length=None)
    return getattr(pl, BINARY[extension])(content)


def _read_sheet(content: bytes, name: str, layout: Layout) -> pl.DataFrame:
    """Read the sheet of a workbook that `layout` names, by default the first one.

    `content` has the bytes of the file, and `name` is its name in messages.
    """
    engine = import_extra("fastexcel", "files")
    try:
        workbook = engine.read_excel(content)
        sheet = _choose_sheet(workbook.sheet_names, layout.sheet, name)
        if layout.skip_rows is None:
            cells = workbook.load_sheet(
                sheet, header_row=None, skip_rows=0, n_rows=MAX_ROWS_ABOVE_HEADER, dtypes="string"
            )
            refuse_title(cells.to_polars().rows(), name)
        frame = pl.read_excel(
            io.BytesIO(content), sheet_name=sheet, engine="calamine", infer_schema_length=None, drop_empty_rows=False,
            read_options={"header_row": layout.skip_rows or 0},
        )  # fmt: skip
    except engine.FastExcelError as error:
        raise InputError(f"{name} cannot be read as an Excel file: {str(error).splitlines()[0]}.") from None
    return frame.rename(str.strip)


def _choose_sheet(names: Sequence[str], sheet: str | int | None, workbook: str) -> str:
    """Return the name of the sheet to read. By default it is the first, with a warning if there are more.

    `names` are the sheets of the workbook. `sheet` is the user's choice: a name, a number from 1, or None. `workbook`
    is the name of the file in messages.
    """
    if sheet is None:
        if len(names) > 1:
            other = format_argument("sheet", names[1])
            sentence = (
                f"{workbook} has {len(names)} sheets: {join_words(names)}. The first is read; choose with {other}."
            )
            warnings.warn(sentence, UserWarning, stacklevel=2)
        return names[0]
    if sheet in names:
        return str(sheet)
    number = int(sheet) if str(sheet).isdecimal() else 0
    if not 1 <= number <= len(names):
        raise InputError(f"{workbook} has no sheet {sheet!r}. Its sheets are: {join_words(names)}.")
    return names[number - 1]


def _read_bytes(path: Path) -> bytes:
    """Read a whole file; raise an `InputError` if it cannot be read or is empty."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"File not found: {path}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    if not content:
        raise InputError(f"{path} is an empty file.")
    return content


def check_free(path: Path, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if the file `path` cannot be written.

    That is the case if it is the input table `source` itself, or if it exists and `overwrite` is False. Call this
    before any long computation, so that errors come early.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file.")
    if source != STDIN and path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the table {source} itself, which is not overwritten. Choose another name.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Choose another name, or replace it with `overwrite=True`.")
    check_writable(path)


def check_output(target: str, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if predictions cannot be written to the file `target`; "-" is standard output.

    `source` is the input table, which is never overwritten. Other existing files need `overwrite=True`.
    """
    if target == STDIN:
        return
    if get_extension(target, to_write=True) in TEXT and target.lower().endswith(".zst"):
        raise InputError(f"Output cannot be compressed as .zst: {target}. Use .gz or no compression.")
    check_free(Path(target), overwrite, source)


def write_file(frame: pl.DataFrame, target: str) -> None:
    """Write a polars frame to the file `target`, in the format of its extension; "-" writes CSV to standard output."""
    if target == STDIN:
        sys.stdout.write(frame.write_csv())
        return
    content, extension = io.BytesIO(), get_extension(target, to_write=True)
    if extension in TEXT:
        frame.write_csv(content, separator=TEXT[extension] or ",")
    elif BINARY[extension] == "read_parquet":
        frame.write_parquet(content)
    else:
        frame.write_ipc(content)
    plain = content.getvalue()
    write_bytes(Path(target), gzip.compress(plain) if target.lower().endswith(".gz") else plain)
