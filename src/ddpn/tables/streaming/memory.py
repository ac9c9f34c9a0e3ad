"""Whether a table fits into the memory that is free."""

import os
from pathlib import Path

from ddpn.tables.streaming.parts import Parts

#: The share of the free memory that a table may take: fits make copies of it.
SHARE = 0.5
_MEMINFO = Path("/proc/meminfo")


def free_memory() -> int | None:
    """Bytes that programs can have without swapping; None where the system does not tell."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fits_memory(parts: Parts, free: int | None = None) -> bool:
    """Whether a table takes at most half of the free memory; true where that is unknown.

    Parameters
    ----------
    parts : Parts
        The table.
    free : int, optional
        Free bytes. Default: those of `free_memory`.
    """
    free = free_memory() if free is None else free
    return free is None or parts.bytes <= SHARE * free
