"""Test a training on a stream: every row comes, and an interrupted training continues bit for bit."""

import numpy as np
import pytest
import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import StreamedRows, TrainingConfig, fit
from ddpn.networks.training.batches import StreamBatches
from ddpn.rows.count_rows import CountRows

CONFIG = TrainingConfig(epochs=6, batch_size=32, seeds=(1, 2), ema=0.9)


class Stream:
    """Rows in memory, drawn in chunks."""

    identity, max_passes = "rows", 6.0

    def __init__(self, rows: int = 256) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(rows, 2)).astype(np.float32)
        self.y = rng.poisson(np.exp(0.5 + 0.5 * self.x[:, 0])).astype(np.float32)
        self.read = 0

    def __len__(self):
        return len(self.y)

    def chunks(self, rows, seed):
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(len(self))
            for start in range(0, len(self), rows):
                self.read += 1
                yield order[start : start + rows]

    def sample(self, chunk):
        return CountRows(torch.from_numpy(self.x[chunk]), torch.from_numpy(self.y[chunk]))


def stream_rows(source: Stream) -> StreamedRows:
    return StreamedRows(source, source.sample, rows=64, chunks=2)


def run_training(tmp_path=None, stop_after=None):
    """Train, and return the weights and the history."""
    model, source = CountModel(MLP(n_in=2, hidden=(8,), n_networks=2), make_head("poisson"), 2), Stream()
    model.reset(CONFIG.seeds)

    def stop(text):
        if stop_after is not None and text.startswith(f"epoch {stop_after} "):
            raise KeyboardInterrupt

    checkpoint = None if tmp_path is None else tmp_path / "state"
    validation = source.sample(np.arange(64))
    history = fit(model, stream_rows(source), validation, CONFIG, checkpoint=checkpoint, on_epoch=stop)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), history


def test_an_epoch_has_the_next_chunks_and_every_network_its_own_order():
    source = Stream()
    batches = StreamBatches(stream_rows(source), 32, seed=3, load=lambda sample: sample)
    streams = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    assert batches.steps == 4
    seen = []
    for epoch in range(2):
        batches.begin_epoch(epoch)
        seen += list(batches.epoch(streams))
    assert all(batch.X.shape == (32, 2, 2) for batch in seen)
    counts = torch.cat([batch.X for batch in seen])
    rows = {tuple(row) for row in source.x.tolist()}
    for number in range(2):
        assert {tuple(row) for row in counts[:, number].tolist()} == rows
    assert not torch.equal(counts[:, 0], counts[:, 1])


def test_an_interrupted_training_continues_bit_for_bit(tmp_path):
    whole, history = run_training()
    _, stopped = run_training(tmp_path, stop_after=3)
    assert stopped.interrupted
    assert len(stopped.epochs) == 3
    continued, again = run_training(tmp_path)
    assert torch.equal(whole, continued)
    assert [e["loss"] for e in again.epochs] == [e["loss"] for e in history.epochs]


def test_the_checkpoint_of_another_stream_is_refused(tmp_path, monkeypatch):
    run_training(tmp_path, stop_after=2)
    monkeypatch.setattr(Stream, "identity", "other rows")
    with pytest.raises(Exception, match="differs in: training data"):
        run_training(tmp_path)
