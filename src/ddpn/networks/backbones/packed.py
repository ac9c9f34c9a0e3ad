"""Packed rows of tables, which store inputs that are 0 or 1 as single bits to save memory."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ddpn.networks.backbones.layers import MLP

#: Bytes of a float32. The length of a packed row is a multiple of it, so that bytes can be viewed as float32.
_FLOAT32_BYTES = 4


class InputPacking(nn.Module):
    """Packs float32 rows into bytes: numeric inputs take four bytes each, and inputs that are 0 or 1 take one bit.

    A packed row has the numeric inputs first, then one bit for every input (those of numeric inputs are ignored),
    padded to a multiple of four bytes. `pack` packs rows. Calling the module unpacks packed rows. Shape: (..., bytes)
    -> (..., width).

    Parameters
    ----------
    width : int
        The number of inputs.
    numbers : sequence of int
        The positions of numeric inputs. All other inputs must be 0 or 1.

    Examples
    --------
    >>> packing = InputPacking(3, numbers=[1])
    >>> rows = packing.pack([np.array([[1.0, 0.25, 0.0]], dtype=np.float32)], rows=1)
    >>> rows.dtype, rows.shape, packing(rows)
    (torch.uint8, torch.Size([1, 8]), tensor([[1.0000, 0.2500, 0.0000]]))
    """

    numbers: Tensor
    bits: Tensor

    def __init__(self, width: int, numbers: Sequence[int]) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.long), persistent=False)
        bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        self.register_buffer("bits", torch.from_numpy(bits).float(), persistent=False)
        self._flags = slice(_FLOAT32_BYTES * len(numbers), _FLOAT32_BYTES * len(numbers) + -(-width // 8))

    def extra_repr(self) -> str:
        return f"{self.width}, numbers={self.numbers.tolist()}"

    def pack(self, blocks: Iterable[np.ndarray], rows: int) -> Tensor:
        """Pack blocks of rows into one tensor of bytes, which the module, when it is called, converts back exactly.

        The inputs at the positions `numbers` keep all four bytes of a float32. All others must be 0 or 1 and are stored
        as single bits.

        Parameters
        ----------
        blocks : iterable of arrays, shape (rows of the block, width)
            Inputs in float32.
        rows : int
            The total number of rows in all blocks.

        Returns
        -------
        Tensor of uint8, shape (rows, bytes)
            The docstring of the class describes the bytes of a row.
        """
        packed = np.zeros((rows, self._flags.stop + -self._flags.stop % _FLOAT32_BYTES), dtype=np.uint8)
        numbers, start = self.numbers.numpy(force=True), 0
        for inputs in blocks:
            part = packed[start : start + len(inputs)]
            part[:, : self._flags.start] = np.ascontiguousarray(inputs[:, numbers]).view(np.uint8)
            part[:, self._flags] = np.packbits(inputs != 0.0, axis=1)  # the bits of numbers are never read
            start += len(inputs)
        return torch.from_numpy(packed)

    def forward(self, packed: Tensor) -> Tensor:
        inputs = embedding(packed[..., self._flags].int(), self.bits).flatten(-2)[..., : self.width]
        return inputs.index_copy_(-1, self.numbers, packed[..., : self._flags.start].view(torch.float32))


class UnpackingBackbone(nn.Module):
    """A backbone that unpacks packed rows by `packing` and passes them to another backbone.

    Shape: (B, bytes), or (B, M, bytes) with separate rows for each of M networks -> (B, M, output_dim).
    """

    def __init__(self, backbone: MLP, packing: InputPacking) -> None:
        super().__init__()
        self.packing, self.backbone, self.output_dim = packing, backbone, backbone.output_dim

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights, using one random generator per network."""
        self.backbone.reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return self.backbone(self.packing(x))
        # Transposed, so that the rows of each network are contiguous in memory.
        return self.backbone(self.packing(x.transpose(0, 1)).transpose(0, 1))


def holds_table_rows(x: Tensor) -> bool:
    """Return True if the batch `x` holds rows of a table, rather than texts, images or point clouds.

    The rows may be packed as bytes (`InputPacking`).
    """
    return x.dim() == 2 and (x.is_floating_point() or x.dtype == torch.uint8)
