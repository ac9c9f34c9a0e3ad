"""Perceptrons on a few rows, in numpy: of the time that torch takes for one row most is not arithmetic."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.model import CountModel

#: Rows up to which numpy is faster.
MOST_ROWS = 8


class Layers(NamedTuple):
    """Weights (M, F, out) and biases (M, 1, out) of all layers as arrays that share the memory of the parameters."""

    arrays: list[tuple[np.ndarray, np.ndarray]]
    parameters: list[Tensor]
    pointers: list[int]

    @property
    def is_current(self) -> bool:
        """Whether the parameters still have their memory: another device or dtype would replace it."""
        return [parameter.data_ptr() for parameter in self.parameters] == self.pointers


#: The layers of models that have predicted a few rows: not kept in the models, which are copied to other processes.
_KNOWN: WeakKeyDictionary[CountModel, Layers] = WeakKeyDictionary()


def raw_of_few(model: CountModel, x: np.ndarray) -> np.ndarray | None:
    """Raw outputs of all networks on a CPU, as `CountModel.raw` without gradients; None for other networks than these.

    Parameters
    ----------
    model : CountModel
        Perceptrons of rectified linear units in float64.
    x : array
        Inputs. Shape: (rows, F) -> (rows, M, P).
    """
    layers = _KNOWN.get(model)
    if layers is None or not layers.is_current:
        layers = _layers(model)
        if layers is None:
            return None
        _KNOWN[model] = layers
    rows = x.astype(np.float64)[None]
    last = len(layers.arrays) - 1
    for i, (weight, bias) in enumerate(layers.arrays):
        rows = np.matmul(rows, weight)
        rows += bias
        if i < last:
            np.maximum(rows, 0.0, out=rows)
    return np.ascontiguousarray(rows.transpose(1, 0, 2))


def _layers(model: CountModel) -> Layers | None:
    backbone, projection = model.backbone, model.projection
    if type(backbone) is not MLP or backbone.activation != "relu" or not projection.is_plain:
        return None
    pairs = [(layer.weight, layer.bias) for layer in (*backbone.layers, projection)]
    parameters = [parameter for pair in pairs for parameter in pair]
    if any(parameter.dtype != torch.float64 or parameter.device.type != "cpu" for parameter in parameters):
        return None
    arrays = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in pairs]
    return Layers(arrays, parameters, [parameter.data_ptr() for parameter in parameters])
