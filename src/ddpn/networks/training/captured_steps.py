"""Training steps that are captured as a CUDA graph and replayed.

Small networks spend most of their time launching kernels. On a GPU, a captured training step of five small networks is
7 to 14 times as fast as an ordinary one (docs/results/speed.md).
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.layers import Frozen, NetworkList
from ddpn.networks.training.batches import MemoryBatches, TensorRows, gather_rows
from ddpn.networks.training.config import Runtime
from ddpn.networks.training.state import State

#: Steps before the capture of a CUDA graph, in which libraries initialise themselves.
_WARM_UP_STEPS = 3


def can_capture(model: nn.Module, batches: MemoryBatches, runtime: Runtime) -> bool:
    """Return True if training steps of `model` with `batches` can be captured as a CUDA graph.

    This needs a single GPU and the same kernels in every step. Networks in a `NetworkList` must declare that their
    steps can be captured, by an attribute `capturable = True`. Models with `Frozen` layers are not captured. Losses of
    bounded or censored counts cannot be captured, because they transfer values to the CPU.
    """
    if runtime.shard.world_size > 1 or runtime.device.type != "cuda" or not batches.sample.is_unrestricted:
        return False
    looped = [network for module in model.modules() if isinstance(module, NetworkList) for network in module]
    is_frozen = any(isinstance(module, Frozen) for module in model.modules())
    return not is_frozen and all(getattr(network, "capturable", False) for network in looped)


class CapturedSteps:
    """A training step that is captured once as a CUDA graph and then replayed for every batch.

    `step` takes a batch, updates all networks, and returns the loss of each network, of shape (networks,). It updates
    the weights in `state`, the state of the training run. All rows of `batches` must be in the memory of the GPU.
    """

    def __init__(self, step: Callable[[TensorRows], Tensor], state: State, batches: MemoryBatches) -> None:
        self._train_step, self._state, self._batches = step, state, batches
        config, device = state.config, state.flat.values.device
        steps = config.epochs * batches.steps
        # Additional entries for the warm-up steps, which may begin at the last step.
        lrs = [config.lr_at(i, steps) for i in range(steps)] + [0.0] * (_WARM_UP_STEPS + 1)
        self._lrs = torch.tensor(lrs, dtype=torch.float32, device=device)
        self._index = torch.zeros(config.n_networks, batches.batch, dtype=torch.long, device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._total = torch.zeros(config.n_networks, dtype=torch.float32, device=device)
        self._healthy = torch.ones(config.n_networks, dtype=torch.bool, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def _once(self) -> None:
        optimizer = self._state.optimizer
        torch.index_select(self._lrs, 0, self._step, out=optimizer.lr.view(1))
        self._total += self._train_step(gather_rows(self._batches.sample, self._index))
        self._healthy &= optimizer.healthy
        self._step += 1

    def ensure_captured(self) -> bool:
        """Capture the training step as a CUDA graph, unless this is already done; return True on success.

        If the capture fails, warn and return False.
        """
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
        """Run a few steps to warm up, and capture a step as a CUDA graph.

        Weights and buffers are restored afterwards, even if the capture fails.
        """
        tensors = self._state.optimizer.tensors()
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        buffers = self._state.buffers.copy_values()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        try:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP_STEPS):
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
        """Run an epoch: replay the captured step for every batch, which updates the weights of all networks.

        `ensure_captured` must have returned True before. Return the total loss of each network (the sum over all steps
        of the mean loss of the batch), and a mask of the networks whose losses and gradients were finite in all steps.
        Both have shape (networks,).
        """
        assert self._graph is not None
        self._step.fill_(self._state.step)
        self._total.zero_()
        self._healthy.fill_(True)
        for index in self._batches.draw_positions(self._state.generators):
            self._index.copy_(index)
            self._graph.replay()
        return self._total, self._healthy
