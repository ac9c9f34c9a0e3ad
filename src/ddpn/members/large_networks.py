"""Networks that are trained for long, of the widths that a short training prefers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Encoded, Networks, Trained
from ddpn.networks.heads import Head
from ddpn.networks.training import Streamed, TrainingConfig
from ddpn.sample import Sample

#: The short training: steps, and networks of each kind.
_STEPS, _MEMBERS = 1000, 2


class _Trial(Networks):
    label = "trial networks"


class LargeNetworks(Networks):
    """Networks that are trained longer than the default ones, for what these cannot learn in their time.

    Parameters
    ----------
    head, options
        As for `Networks`.
    others : sequence of NetworkOptions
        Further options, such as other widths of layers. Of these and `options`, those are used with which two networks
        have the lower validation score after a short training. Where time is limited, without validation rows and for
        a stream of rows, `options` are used.
    **run
        Further arguments of `Networks`.
    """

    label = "large networks"

    def __init__(
        self,
        head: Head | None = None,
        options: NetworkOptions = NetworkOptions(),  # noqa: B008
        *,
        others: Sequence[NetworkOptions] = (),
        **run: Any,
    ) -> None:
        super().__init__(head, options, **run)
        self.others = tuple(others)

    def _train(self, rows: Encoded, sample: Sample, config: TrainingConfig) -> Trained:
        if self.others and rows.validation is not None and self.clock is None and not isinstance(rows.train, Streamed):
            self.options = self._best(rows, sample, config)
            columns = np.shape(sample.X)[1]
            config = self.options.config(self.n_rows, config.seeds, self.head.validation_score, columns)
        return super()._train(rows, sample, config)

    def _best(self, rows: Encoded, sample: Sample, config: TrainingConfig) -> NetworkOptions:
        """The options with the lowest mean validation score of a few networks after some steps."""
        known, scores = [options.with_widths(self.n_rows) for options in (self.options, *self.others)], []
        epochs = max(1, round(_STEPS * config.batch_size / self.n_rows))
        for options in known:
            trial = _Trial(self.head, options, runtime=self.runtime, verbose=self.verbose)
            trial.unit = self.unit
            short = replace(config, epochs=epochs, patience=None, seeds=config.seeds[:_MEMBERS])
            history = trial._train(rows, sample, short).history
            if history.interrupted:
                raise KeyboardInterrupt
            scores.append(float(np.mean(history.best_score)))
        return known[int(np.argmin(np.nan_to_num(scores, nan=np.inf)))]
