"""Seed torch for one epoch, so that training draws the same numbers after an interruption."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seed_torch(device: torch.device, key: object) -> Iterator[None]:
    """Seed torch's global generator by a hash of `key`, and restore its state when the `with` block ends.

    Dropout and random changes of images use this generator, or on CUDA that of `device`, which is seeded and restored
    as well. `key` identifies the epoch and the networks by its repr.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # On a CPU, torch.manual_seed would take 1 ms: it formats the call stack for each kind of missing device.
        seed = torch.manual_seed if device.type == "cuda" else torch.default_generator.manual_seed
        seed(zlib.crc32(repr(key).encode()))
        yield
