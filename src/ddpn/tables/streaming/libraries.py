"""The libraries of this package, imported on first use: pyarrow reads Parquet in pieces, polars holds them."""

from importlib import import_module
from typing import Any

from ddpn.runtime.extras import import_extra


def pyarrow_parquet() -> Any:
    """`pyarrow.parquet`, of the extra `files`."""
    return import_extra("pyarrow.parquet", "files")


def pyarrow() -> Any:
    """`pyarrow`, of the same extra."""
    return import_extra("pyarrow", "files")


def polars() -> Any:
    """`polars`."""
    return import_module("polars")
