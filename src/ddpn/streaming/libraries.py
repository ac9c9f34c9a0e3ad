"""The optional libraries of this package: pyarrow, which reads Parquet in pieces, and polars, which holds them."""

from typing import Any

from ddpn.extras import import_extra


def pyarrow_parquet() -> Any:
    """`pyarrow.parquet`, of the extra `files`."""
    return import_extra("pyarrow.parquet", "files")


def pyarrow() -> Any:
    """`pyarrow`, of the same extra."""
    return import_extra("pyarrow", "files")


def polars() -> Any:
    """`polars`, of the extra `files`."""
    return import_extra("polars", "files")
