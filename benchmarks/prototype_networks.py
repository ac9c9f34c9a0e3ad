"""Networks that were tried and not adopted: periodic embeddings of numbers, and members that share weights.

`benchmarks/network_encodings.py` compares them with what the library has.
"""

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones import MLP
from ddpn.distributions import Mixture
from ddpn.heads import make_head
from ddpn.members.network_options import NetworkOptions, auto_batch_size
from ddpn.members.networks import Networks
from ddpn.model import CountModel
from ddpn.sample import Sample

#: Steps of the stacked networks, and those by which the time of a step is measured.
STEPS, _TIMED = 1000, 40


class PeriodicMLP(nn.Module):
    """Sines and cosines of each input at learned frequencies, a rectified layer per input, and a perceptron.

    The embedding "PLR" of Gorishniy et al. (2022), beside the input itself. Shape: (B, F) or (B, M, F) -> (B, M, H).
    """

    def __init__(self, n_in: int, hidden: Sequence[int], members: int, sigma: float, k: int = 16, d: int = 8) -> None:
        super().__init__()
        self.sigma, self.k, self.d, self.members = sigma, k, d, members
        self.frequency_bias = nn.Parameter(torch.zeros(members, n_in, k))  # named a bias: it does not decay
        self.weight = nn.Parameter(torch.zeros(members, n_in, 2 * k, d))
        self.bias = nn.Parameter(torch.zeros(members, n_in, d))
        self.rest = MLP(n_in=n_in * (d + 1), hidden=hidden, members=members)
        self.output_dim = self.rest.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        with torch.no_grad():
            for m, stream in enumerate(streams):
                self.frequency_bias[m] = self.sigma * torch.randn(self.frequency_bias.shape[1:], generator=stream)
                bound = 1.0 / math.sqrt(2 * self.k)
                for part in (self.weight, self.bias):
                    part[m] = bound * (2.0 * torch.rand(part.shape[1:], generator=stream) - 1.0)
        self.rest.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).expand(-1, self.members, -1) if x.dim() == 2 else x
        angle = 2.0 * math.pi * x.unsqueeze(3) * self.frequency_bias
        waves = torch.cat([angle.sin(), angle.cos()], dim=3)
        own = torch.relu(torch.einsum("bmfk,mfkd->bmfd", waves, self.weight) + self.bias)
        return self.rest(torch.cat([x, own.flatten(2)], dim=2))


class PeriodicNetworks(Networks):
    """Networks with a `PeriodicMLP`."""

    sigma = 0.1

    def _build(self, n_in: int, members: int) -> CountModel:
        return CountModel(PeriodicMLP(n_in, self.options.widths, members, self.sigma), self.head, members)


class SharedLinear(nn.Module):
    """One weight matrix for M members, with scales of inputs and outputs and a bias per member (BatchEnsemble)."""

    def __init__(self, n_in: int, n_out: int, members: int, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        self.weight = nn.Parameter(torch.zeros(n_in, n_out))
        self.r, self.s = (nn.Parameter(torch.ones(members, n)) for n in (n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(members, n_out))

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        bound = 1.0 / math.sqrt(self.weight.shape[0])
        with torch.no_grad():
            self.weight.copy_(bound * (2.0 * torch.rand(self.weight.shape, generator=streams[0]) - 1.0))
            for m, stream in enumerate(streams):
                self.bias[m] = bound * (2.0 * torch.rand(self.bias.shape[1], generator=stream) - 1.0)
                if self.is_first:  # members differ by random signs of the inputs
                    self.r[m] = torch.randint(0, 2, self.r.shape[1:], generator=stream) * 2.0 - 1.0

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.r) @ self.weight * self.s + self.bias


class SharedMLP(nn.Module):
    """Perceptrons that share their weights as in TabM (Gorishniy et al., 2025). Shape: (B, F) -> (B, M, H)."""

    def __init__(self, n_in: int, hidden: Sequence[int], members: int) -> None:
        super().__init__()
        widths = [n_in, *hidden]
        self.layers = nn.ModuleList(SharedLinear(a, b, members, j == 0) for j, (a, b) in enumerate(pairwise(widths)))
        self.output_dim, self.members = widths[-1], members

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        for layer in self.layers:
            layer.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) if x.dim() == 2 else x
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def sharing(train: Sample, known: Sample, test: Sample, name: str, seed: int) -> dict[str, float]:
    """Scores of networks by name, such as "shared 16 64-64", after the time of `STEPS` steps of five stacked ones."""
    kind, members, hidden = name.split()
    member = Networks(make_head("mixed"), NetworkOptions(members=5, hidden=(64, 64), numeric="piecewise"))
    member.unit, member.n_rows = 1.0, len(train)
    rows = member._encode("piecewise", train, known, None)
    tested = member._tensors(test, rows.encoder.transform(test.X))
    started = time.process_time()
    stacked = _step_time(_built("stacked", 5, (64, 64), rows, seed), rows, seed)
    model = _built(kind, int(members), tuple(map(int, hidden.split("-"))), rows, seed)
    own = stacked if name == "stacked 5 64-64" else _step_time(model, rows, seed)
    model = _built(kind, int(members), tuple(map(int, hidden.split("-"))), rows, seed)
    steps = int(STEPS * stacked / own)
    _trained(model, rows, steps, seed)
    scores = _scores(model, tested)
    return scores | {"steps": float(steps), "seconds": time.process_time() - started}


def _built(kind: str, members: int, hidden: tuple[int, ...], rows: Any, seed: int) -> CountModel:
    n_in = rows.train.X.shape[1]
    make = MLP if kind == "stacked" else SharedMLP
    model = CountModel(make(n_in=n_in, hidden=hidden, members=members), make_head("mixed"), members)
    sample = rows.train.map(torch.Tensor.double)
    model.reset([1000 * seed + m for m in range(members)], model.head.start(sample.y, None, None))
    return model


def _step_time(model: CountModel, rows: Any, seed: int) -> float:
    _trained(model, rows, 5, seed)
    started = time.process_time()
    _trained(model, rows, _TIMED, seed)
    return (time.process_time() - started) / _TIMED


def _trained(model: CountModel, rows: Any, steps: int, seed: int) -> None:
    """AdamW with the library's defaults, and the averaged weights of the epoch that is best on validation rows."""
    options, rng = NetworkOptions(), torch.Generator().manual_seed(seed)
    named = list(model.named_parameters())
    decayed = [p for name, p in named if name.endswith("weight")]
    others = [p for name, p in named if not name.endswith("weight")]
    groups = [{"params": decayed, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, fused=True)
    average = [p.detach().clone() for _, p in named]
    n, batch = len(rows.train), auto_batch_size(len(rows.train))
    best, kept, step = math.inf, [p.clone() for p in average], 0
    evaluates = steps >= STEPS // 4
    while step < steps:
        for index in torch.randperm(n, generator=rng)[: n // batch * batch].view(-1, batch):
            warm = min(1.0, (step + 1) / max(1.0, options.warmup * steps))
            for group in optimizer.param_groups:
                group["lr"] = options.lr * warm * 0.5 * (1.0 + math.cos(math.pi * step / steps))
            raw = model.raw(rows.train.X[index])
            loss = model.head.loss(raw, rows.train.y[index].unsqueeze(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for _, p in named], options.clip)
            optimizer.step()
            step += 1
            with torch.no_grad():
                keep = min((1.0 + step) / (10.0 + step), options.ema)
                torch._foreach_lerp_(average, [p.detach() for _, p in named], 1.0 - keep)
            if step >= steps:
                break
        if evaluates:
            now = [p.detach().clone() for _, p in named]
            _load(named, average)
            with torch.no_grad():
                score = -_mixture(model, rows.validation).log_prob(rows.validation.y.double()).mean().item()
            best, kept = (score, [p.clone() for p in average]) if score < best else (best, kept)
            _load(named, now)
    if evaluates:
        _load(named, kept)


@torch.no_grad()
def _load(named: list[tuple[str, nn.Parameter]], values: list[Tensor]) -> None:
    for (_, parameter), value in zip(named, values, strict=True):
        parameter.copy_(value)


@torch.no_grad()
def _scores(model: CountModel, rows: Sample) -> dict[str, float]:
    dist, y = _mixture(model, rows), rows.y.double()
    return {"crps": dist.crps(y).mean().item(), "nll": -dist.log_prob(y).mean().item()}


def _mixture(model: CountModel, rows: Sample) -> Mixture:
    return Mixture(model.head(model.raw(rows.X).double()))
