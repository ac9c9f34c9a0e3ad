"""Training steps as one CUDA graph: small networks spend their time launching kernels, and a graph launches once.

A step of five small networks is 7 to 14 times as fast (docs/results/speed.md).
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import Frozen, Members
from ddpn.networks.training.batches import MemoryBatches, pick
from ddpn.networks.training.runtime import Runtime
from ddpn.networks.training.state import State
from ddpn.sample import Sample

#: Steps before the capture, which CUDA graphs require, so that libraries have set themselves up.
_WARM_UP = 3


def can_capture(model: nn.Module, batches: MemoryBatches, runtime: Runtime) -> bool:
    """Whether steps run on one GPU and all networks are known to do the same in every step.

    Networks in `Members` declare it by a true `capturable`: same shapes, same kernels, no values read, nothing random.
    The loss of bounded and censored counts reads values.
    """
    alone, on_gpu = runtime.share.world == 1, runtime.device.type == "cuda"
    return on_gpu and alone and batches.sample.is_plain and not any(map(_is_foreign, model.modules()))


class CapturedSteps:
    """A training step on rows in the memory of one GPU, captured once and replayed.

    `step` takes a batch, updates all members and returns their losses (M,).
    """

    def __init__(self, step: Callable[[Sample], Tensor], state: State, batches: MemoryBatches) -> None:
        self._train_step, self._state, self._batches = step, state, batches
        config, device = state.config, state.flat.values.device
        steps = config.epochs * batches.steps
        # One more for each step of the warm-up, which may begin at the last.
        lrs = [config.lr_at(i, steps) for i in range(steps)] + [0.0] * (_WARM_UP + 1)
        self._lrs = torch.tensor(lrs, dtype=torch.float32, device=device)
        self._index = torch.zeros(config.members, batches.batch, dtype=torch.long, device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._total = torch.zeros(config.members, dtype=torch.float32, device=device)
        self._healthy = torch.ones(config.members, dtype=torch.bool, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def _once(self) -> None:
        optimizer = self._state.optimizer
        torch.index_select(self._lrs, 0, self._step, out=optimizer.lr.view(1))
        self._total += self._train_step(pick(self._batches.sample, self._index))
        self._healthy &= optimizer.healthy
        self._step += 1

    def is_ready(self) -> bool:
        """Capture the step if that is still to be done; if it fails, warn and return False."""
        if self._graph is None:
            self._state.model.train()
            stream = torch.cuda.current_stream() if torch.cuda.is_available() else None
            try:
                self._graph = self._capture()
            except RuntimeError as error:
                if stream is not None:
                    torch.cuda.set_stream(stream)
                why = str(error).strip().splitlines()[0]
                warnings.warn(f"Training steps are not captured as a CUDA graph: {why}", RuntimeWarning, stacklevel=2)
        return self._graph is not None

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Warm up, capture, and restore weights and buffers, however it ends."""
        tensors = self._state.optimizer.tensors()
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        buffers = self._state.buffers.copied()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        try:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    self._once()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                self._once()
        finally:
            for name, tensor in tensors.items():
                tensor.copy_(before[name])
            self._state.buffers.load(buffers)
        return graph

    def epoch(self) -> tuple[Tensor, Tensor]:
        """Replay the step on every batch of one epoch; the members' total losses, and whether all were finite."""
        assert self._graph is not None
        self._step.fill_(self._state.step)
        self._total.zero_()
        self._healthy.fill_(True)
        for index in self._batches.indices(self._state.streams):
            self._index.copy_(index)
            self._graph.replay()
        return self._total, self._healthy


def _is_foreign(module: nn.Module) -> bool:
    if isinstance(module, Members):
        return not all(getattr(network, "capturable", False) for network in module)
    return isinstance(module, Frozen)
