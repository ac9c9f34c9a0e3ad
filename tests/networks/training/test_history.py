"""What happened during a training, as plain words and numbers."""

import json

from ddpn.networks.training import History


def history() -> History:
    records = [{"epoch": n, "loss": [1.0 / n], "lr": 0.1, "seconds": 0.5 * n} for n in (1, 2, 3)]
    return History(
        epochs=records, best_epoch=[2], best_score=[0.5], rollbacks=["once"], stopped="early", interrupted=True
    )


def test_it_survives_json():
    assert History(**json.loads(json.dumps(history().as_dict()))) == history()


def test_seconds_add_up():
    assert history().seconds == 3.0


def test_the_plain_form_is_a_copy():
    one = history()
    plain = one.as_dict()
    one.epochs.append({})
    one.best_epoch[0] = 9
    one.rollbacks.clear()
    assert plain == history().as_dict()
