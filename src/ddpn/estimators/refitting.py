"""Members that are fitted again to all rows, once weights are chosen and intervals calibrated."""

import time

from ddpn.members.member import NotApplicableError
from ddpn.predictor import Predictor
from ddpn.sample import Sample


def refit(predictor: Predictor, sample: Sample, seed: int) -> bool:
    """Fit members that have weight, and that can be fitted again in little time, to training and validation rows.

    Boosted trees learn from a ninth more rows, with the settings that were chosen for them. Weights and the calibration
    of intervals stay.

    Parameters
    ----------
    predictor : Predictor
        A mixture that was fitted to some of the rows.
    sample : Sample
        All rows, which are alike: a random part of them was kept for validation.
    seed : int
        Seed of the fits.

    Returns
    -------
    bool
        Whether Ctrl-C ended it. Members that were not fitted again stay as they are.
    """
    for name, member in predictor.mixed.items():
        started = time.monotonic()
        try:
            found = member.refitted(sample, seed)
        except NotApplicableError:
            continue  # validation rows may have counts that it cannot be fitted to, such as censored ones
        except KeyboardInterrupt:
            return True
        if found is not None:
            predictor.members[name] = found
            predictor.seconds[name] = predictor.seconds.get(name, 0.0) + time.monotonic() - started
    return False
