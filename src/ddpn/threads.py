"""How many threads torch uses: small operations are faster with one, whatever else the machine does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch's operations on the CPU in one thread, and restore the user's setting afterwards."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
