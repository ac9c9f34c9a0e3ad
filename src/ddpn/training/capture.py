"""Training steps as one CUDA graph: small networks spend their time in launching kernels, and a graph launches once."""

import warnings
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from ddpn.backbones.fine_tuning import Frozen
from ddpn.backbones.members import Members
from ddpn.training.batches import MemoryBatches, pick

if TYPE_CHECKING:
    from ddpn.training.loop import Training

#: Steps before the capture, as CUDA graphs ask for, so that libraries have set themselves up.
_WARM_UP = 3


class CapturedSteps:
    """A step of a training on rows in the memory of one GPU, captured once and replayed."""

    def __init__(self, training: "Training", batches: MemoryBatches) -> None:
        self._training, self._batches = training, batches
        device, members = training.runtime.device, training.config.members
        config, steps = training.config, training.steps
        # One more for each step of the warm-up, which may begin at the last.
        lrs = [config.lr_at(i, steps) for i in range(steps)] + [0.0] * (_WARM_UP + 1)
        self._lrs = torch.tensor(lrs, device=device)
        self._index = torch.zeros(members, batches.batch, dtype=torch.long, device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._total = torch.zeros(members, device=device)
        self._healthy = torch.ones(members, dtype=torch.bool, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @classmethod
    def of(cls, training: "Training") -> Self | None:
        """None where a training does not run on one GPU, or has foreign networks: a graph may not hold what they do.

        Those of `Members` whose `capturable` is true say of themselves that it may: same shapes, same kernels, no look
        at a value and no chance in any step.
        """
        alone, on_gpu = training.runtime.share.world == 1, training.runtime.device.type == "cuda"
        foreign = any(_is_foreign(module) for module in training.model.modules())
        return cls(training, training.batches) if on_gpu and alone and not foreign else None  # type: ignore[arg-type]

    def _once(self) -> None:
        training = self._training
        torch.index_select(self._lrs, 0, self._step, out=training.updates.lr.view(1))
        self._total += training.train_step(pick(self._batches.sample, self._index))
        self._healthy &= training.updates.healthy
        self._step += 1

    def is_ready(self) -> bool:
        """Capture, where that is still to be done; where it fails a warning says why, and steps go one by one."""
        if self._graph is None:
            self._training.model.train()
            stream = torch.cuda.current_stream() if torch.cuda.is_available() else None
            try:
                self._graph = self._capture()
            except RuntimeError as error:
                if stream is not None:
                    torch.cuda.set_stream(stream)
                why = str(error).strip().splitlines()[0]
                warnings.warn(f"Steps go one by one, not as a graph: {why}", RuntimeWarning, stacklevel=2)
        return self._graph is not None

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Warm up, capture; however it ends, everything is put back as it was."""
        state = self._training.updates.tensors()
        before = {name: tensor.clone() for name, tensor in state.items()}
        buffers = self._training.buffers.copied()
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
            for name, tensor in state.items():
                tensor.copy_(before[name])
            self._training.buffers.put(buffers)
        return graph

    def epoch(self) -> tuple[Tensor, Tensor]:
        """Every batch of one epoch: the members' total loss, and whether every gradient was finite."""
        assert self._graph is not None
        self._step.fill_(self._training.step)
        self._total.zero_()
        self._healthy.fill_(True)
        orders = self._batches.orders(self._training.streams).to(self._index.device)
        for index in orders.split(self._batches.batch, dim=1):
            self._index.copy_(index)
            self._graph.replay()
        return self._total, self._healthy


def _is_foreign(module: nn.Module) -> bool:
    if isinstance(module, Members):
        return not all(getattr(network, "capturable", False) for network in module)
    return isinstance(module, Frozen)
