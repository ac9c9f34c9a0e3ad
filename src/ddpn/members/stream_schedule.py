"""How a training on a stream of rows is divided: chunks that are encoded at once, and epochs of some chunks."""

import math
from dataclasses import replace
from typing import NamedTuple

from ddpn.networks.training import TrainingConfig

#: Rows that are encoded at once: 2 KB per row for 40 columns of numbers in steps.
CHUNK_ROWS = 16_384
#: Epochs of a stream, which end with a score of the validation rows: about so many, and at most so many chunks long.
_EPOCHS, _MOST_CHUNKS = 40, 16


class Chunks(NamedTuple):
    """Rows per chunk, and chunks per epoch."""

    rows: int
    per_epoch: int


def stream_schedule(config: TrainingConfig, rows: int, most_passes: float) -> tuple[Chunks, TrainingConfig]:
    """The chunks of a training on a stream of so many rows, and its settings with epochs of some chunks each.

    `config.epochs` are passes over the rows, of which there are at most `most_passes`.

    >>> chunks, config = stream_schedule(TrainingConfig(epochs=5, batch_size=256), 20_000_000, 1.0)
    >>> chunks, config.epochs
    (Chunks(rows=16384, per_epoch=16), 77)
    """
    batch = min(config.batch_size, rows)
    size = batch * max(1, min(CHUNK_ROWS, rows) // batch)
    total = max(1, math.ceil(min(config.epochs, most_passes) * rows / size))
    per_epoch = min(_MOST_CHUNKS, max(1, total // _EPOCHS))
    epochs = math.ceil(total / per_epoch)
    patience = config.patience
    if patience is not None:
        patience = max(3, round(patience * epochs / config.epochs))
    return Chunks(size, per_epoch), replace(config, batch_size=batch, epochs=epochs, patience=patience)
