"""What `ddpn fit` and `CountRegressor` fit by default, in this order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpn.members import MEMBERS
from ddpn.members.constant import Constant
from ddpn.members.large_networks import LargeNetworks
from ddpn.members.member import Member, NotApplicableError
from ddpn.members.network_options import SMALL_ROWS, NetworkOptions, auto_batch_size
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Candidate
from ddpn.networks.heads import Head
from ddpn.networks.training import RowStream
from ddpn.runtime.errors import ConfigError
from ddpn.sample import Sample
from ddpn.tables.splits import FOLDS

NETWORKS, LARGE_NETWORKS = "networks", "large_networks"
#: Members of the portfolio that take seconds.
_CHEAP = ("trees", "glm")
#: Steps of the networks: for few rows, and for more.
_STEPS = 500, 2000
#: Widths and steps of the large networks: for few rows, and for more, where a short training chooses. A narrow first
#: layer keeps a few sums of all inputs. It finds thresholds in such sums, as in length of stay, and blurs what depends
#: on single inputs, as in bikes.
_LARGE_FEW, _LARGE_MANY = (((128, 128), 2000),), (((32, 128, 128, 64), 10_000), ((128, 128, 128, 64), 4000))
#: The share of all epochs without a better score after which a network has stopped.
_PATIENCE = 0.15
#: A weaker weight decay than the default is better on some tables and worse on others: networks have one, large
#: networks the other.
_WEAK_DECAY = 0.3


def default_candidates(
    head: Head,
    options: NetworkOptions,
    others: Mapping[str, Member],
    train: Sample,
    is_crossed: bool,
    run: Mapping[str, Any],
) -> list[Candidate]:
    """What `CountRegressor` fits by default.

    Parameters
    ----------
    head : Head
        The likelihood of the networks.
    options : NetworkOptions
        Those that a user gave are kept; the others follow the number of rows.
    others : mapping of str to Member
        Further members to try, by name.
    train : Sample
        Training rows.
    is_crossed : bool
        Whether members are cross-fitted.
    run : mapping
        Arguments of `Networks`: `runtime`, `checkpoint`, `verbose` and `stream`.
    """
    rows, default = len(train), NetworkOptions()
    few = rows <= SMALL_ROWS
    if is_crossed:
        # Two networks leave out each row, so that what all of them gain by being mixed is known.
        options, rows = replace(options, members=2), max(1, rows * (FOLDS - 1) // FOLDS)
    own = {name for name in ("hidden", "numeric", "epochs") if getattr(options, name) != getattr(default, name)}
    small = _with_steps(options, rows, _STEPS[not few])
    if not few and options.weight_decay == default.weight_decay:
        small = replace(small, weight_decay=_WEAK_DECAY)
    large, *further = (_large(options, rows, few, *each) for each in (_LARGE_FEW if few else _LARGE_MANY))
    has_large = not own and head.is_count
    states: list[dict[str, Any]] = [dict(run), dict(run)]
    # The longest training continues where it was interrupted; the others take seconds.
    states[0 if has_large else 1]["checkpoint"] = None
    candidates = [Candidate("constant", lambda: Constant.like(head), baseline=True)]
    names = [*(_CHEAP if head.is_count else ()), *(name for name in others if name not in _CHEAP)]
    candidates += [Candidate(name, _maker(name, head, run.get("stream"))) for name in names if _applies(name, head)]
    candidates.append(Candidate(NETWORKS, lambda: Networks(head, small, **states[0])))
    if has_large:
        make_large = lambda: LargeNetworks(head, large, others=further, **states[1])  # noqa: E731
        candidates.append(Candidate(LARGE_NETWORKS, make_large, expensive=True))
    return candidates


def chosen_candidates(
    candidates: Sequence[Candidate], names: Sequence[str], head: Head, run: Mapping[str, Any]
) -> list[Candidate]:
    """The candidates of these names, in the given order; those that are not among the default ones are made.

    Parameters
    ----------
    candidates : sequence of Candidate
        What is fitted by default.
    names : sequence of str
        Names in `ddpn.members.MEMBERS`.
    head : Head
        The likelihood of the networks.
    run : mapping
        Arguments of `Networks`.
    """
    known, found = {candidate.name: candidate for candidate in candidates}, []
    for name in names:
        if name not in known and (name in (NETWORKS, LARGE_NETWORKS) or not _applies(name, head)):
            raise ConfigError(
                f"The member {name!r} cannot be fitted with this likelihood and these options of networks."
            )
        made = known.get(name) or Candidate(name, _maker(name, head, run.get("stream")))
        found.append(replace(made, baseline=False, expensive=False))
    return found


def _large(options: NetworkOptions, rows: int, few: bool, widths: tuple[int, ...], steps: int) -> NetworkOptions:
    found = replace(_with_steps(options, rows, steps), numeric="steps", hidden=widths)
    if few and options.weight_decay == NetworkOptions().weight_decay:
        found = replace(found, weight_decay=_WEAK_DECAY)
    return found


def _with_steps(options: NetworkOptions, rows: int, steps: int) -> NetworkOptions:
    """The options with about so many steps, unless the number of epochs is given."""
    if options.epochs != "auto":
        return options
    size = auto_batch_size(rows) if options.batch_size == "auto" else int(options.batch_size)
    epochs = int(np.clip(steps * size // rows, 5, 300))
    patience = max(3, round(_PATIENCE * epochs)) if options.patience is None else options.patience
    return replace(options, batch_size=size, epochs=epochs, patience=patience)


def _maker(name: str, head: Head, stream: RowStream | None = None) -> Callable[[], Member]:
    def make() -> Member:
        member = MEMBERS[name].like(head)
        member.is_rough, member.stream = True, stream
        return member

    return make


def _applies(name: str, head: Head) -> bool:
    try:
        MEMBERS[name].like(head)
    except NotApplicableError:
        return False
    return True
