"""Where a table begins within a file. Imports no polars."""

from dataclasses import dataclass

from ddpn.runtime.validation import check_integer


@dataclass(frozen=True)
class Layout:
    """Where a table begins within a file.

    Parameters
    ----------
    sheet : str or int, optional
        The sheet of a workbook: its name, or its number from 1. Default: the first, with a warning if there are more.
    skip_rows : int, optional
        Rows of the file above the header. Default: none, and an error if the first row looks like a title.
    """

    sheet: str | int | None = None
    skip_rows: int | None = None

    def __post_init__(self) -> None:
        if self.skip_rows is not None:
            check_integer("skip_rows", self.skip_rows)


#: A table that begins with the first row of a file.
WHOLE_FILE = Layout()
