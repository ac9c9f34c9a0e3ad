import pytest

from ddpn.networks.training.monitoring import EpochReport, monitored


def test_every_epoch_of_a_fit_is_reported(quick, larger):
    seen: list[EpochReport] = []
    with monitored(seen.append):
        model = quick(epochs=3).fit(*larger)
    assert [(each.epoch, each.epochs) for each in seen] == [(n, 3) for n in (1, 2, 3)]
    assert all("networks" in each.title for each in seen)
    assert [each.scores for each in seen] == [record["score"] for record in model.history_.epochs]
    assert {each.metric for each in seen} == {"nll"}
    quick(epochs=2).fit(*larger)
    assert len(seen) == 3, "outside of the block nothing is reported"


def test_what_it_raises_ends_the_training(quick, larger):
    def stop(report):
        raise RuntimeError(f"at epoch {report.epoch}")

    with pytest.raises(RuntimeError, match="at epoch 1"), monitored(stop):
        quick(epochs=3).fit(*larger)


def test_a_keyboard_interrupt_keeps_the_best_epochs(quick, larger):
    def stop(report):
        if report.epoch == 2:
            raise KeyboardInterrupt

    model = quick(epochs=5)
    with pytest.raises(KeyboardInterrupt), monitored(stop):
        model.fit(*larger)
    assert len(model.history_.epochs) == 2
    assert model.interrupted_
