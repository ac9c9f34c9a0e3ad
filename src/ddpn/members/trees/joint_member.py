"""The joint trees member: every raw output of a likelihood is a sum of boosted trees."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.members.member import Member, exposure_unit, in_units, json_to_bytes, row_scale
from ddpn.members.trees.boosting import Booster, Settings, boosters_to_files
from ddpn.members.trees.choice import choose, crossed
from ddpn.members.trees.index import Index, index_of, with_index
from ddpn.members.trees.mean import leaves_for, rate_for
from ddpn.members.trees.member import restored
from ddpn.members.trees.table import TreeRows, TreeTable, folds_of, rates, used_rows, with_columns
from ddpn.networks.heads import Head, make_head
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread, tree_threads_for
from ddpn.sample import Sample

_FACTS = "trees.json"


class Seed(NamedTuple):
    """What one seed learned: constants, the boosters of each fold, and the index of each fold."""

    start: np.ndarray
    boosters: list[list[Booster | None]]
    indices: list[Index | None]

    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """Raw outputs. Shape: (rows, P)."""
        from ddpn.members.trees.joint import raw_outputs

        return raw_outputs(self.start, self.boosters, [with_index(matrix, index) for index in self.indices])

    @property
    def flat(self) -> list[Booster]:
        """All boosters in a fixed order."""
        folds = zip(self.boosters, self.indices, strict=True)
        each = [(*fold, *(() if index is None else index.groups)) for fold, index in folds]
        return [booster for fold in each for booster in fold if booster is not None]


class JointTrees(Member):
    """Boosted trees for all raw outputs of a likelihood, such as log mu and log gamma of a Double Poisson.

    Five folds are boosted in step: locations first, then all outputs, with the dispersion learned around out-of-fold
    locations. Rounds are chosen by the out-of-fold likelihood. Bounded and censored counts enter the likelihood.

    Parameters
    ----------
    head : Head, optional
        The likelihood. Default: "double_poisson".
    leaves : sequence of int, optional
        Numbers of leaves to choose from by Poisson boosting. Default: by the number of rows.
    rate : float, optional
        Learning rate. Default: 0.05 below 5,000 rows, else 0.1.
    rounds : int
        Rounds of boosting at most.
    monotone : mapping of str to int, optional
        Columns of numbers in which the location must not fall (1) or must not rise (-1).
    seeds : int
        Repetitions with other folds, which are mixed equally.
    index, crosses : bool
        Whether to try the additive index, and crosses of columns, see `Trees`.
    """

    label = "jointly boosted trees"
    table: TreeTable
    seeds_: list[Seed]
    unit: float

    def __init__(
        self,
        head: Head | None = None,
        *,
        leaves: Sequence[int] | None = None,
        rate: float | None = None,
        rounds: int = 1500,
        monotone: Mapping[str, int] | None = None,
        seeds: int = 1,
        index: bool = True,
        crosses: bool = True,
    ) -> None:
        self.head = make_head("double_poisson") if head is None else head
        self.leaves, self.rate, self.rounds = leaves, rate, rounds
        self.monotone, self.seeds, self.index, self.crosses = dict(monotone or {}), seeds, index, crosses

    @classmethod
    def like(cls, head: Head) -> Self:
        return cls(head) if head.exposure_is_total else cls()

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        from ddpn.members.trees.joint import JointFit

        used = used_rows(train, least=2)
        self.unit = exposure_unit(used, self.head)
        used = in_units(used, self.unit)
        self.table = TreeTable()
        matrix, (rate, weight) = self.table.fit(used.X), rates(used)
        directions = self.table.directions(self.monotone)
        rows = TreeRows(matrix, self.table.is_category, directions, rate, weight / weight.mean(), [])
        leaves = leaves_for(len(used), self.leaves)
        self.seeds_, self.used_leaves = [], []
        with tree_threads_for(matrix.size):
            for number in range(self.seeds):
                folds = with_columns(folds_of(used.y, seed + number, used.group), rows.matrix, rate, weight)
                settings = Settings(rate=rate_for(len(used), self.rate), rounds=self.rounds, seed=seed + number * 1000)
                rows, tries_crosses = rows._replace(folds=folds), self.crosses and not number
                chosen = choose(rows, settings, leaves, self.index, crosses=tries_crosses)
                if chosen.crosses:
                    self.table.crosses, rows = chosen.crosses, crossed(rows, chosen.crosses)
                joint = JointFit(self.head, chosen.fit.rows, used, settings._replace(leaves=chosen.leaves)).run()
                self.seeds_.append(Seed(joint.start, joint.boosters, chosen.fold_indices()))
                self.used_leaves.append(chosen.leaves)
        return self

    def raw(self, X: Any) -> np.ndarray:
        """Raw outputs of every seed. Shape: (rows, seeds, P)."""
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            return np.stack([each.raw(matrix) for each in self.seeds_], axis=1)

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        raw = torch.from_numpy(self.raw(X))
        scale = row_scale(exposure, self.unit, len(raw))
        with single_thread():
            return self.head(raw, None if scale is None else scale.unsqueeze(1))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        flat = [booster for each in self.seeds_ for booster in each.flat]
        facts = {
            **self.table.as_dict(),
            "head": {"name": self.head.name, "options": self.head.options},
            "unit": self.unit,
            "leaves": self.used_leaves,
            "starts": [each.start.tolist() for each in self.seeds_],
            "boosted": [booster is not None for booster in self.seeds_[0].boosters[0]],
            "index": [[0 if index is None else len(index.groups) for index in each.indices] for each in self.seeds_],
            "chosen": [None if each.chosen is None else each.chosen.tolist() for each in flat],
        }
        return {**boosters_to_files(flat), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known = json.loads(files[_FACTS])
        member = cls(make_head(known["head"]["name"], **known["head"]["options"]))
        member.table = TreeTable.from_dict(known)
        member.unit, member.used_leaves = known["unit"], known["leaves"]
        boosted, folds = known["boosted"], [fold for each in known["index"] for fold in each]
        if len(boosted) != member.head.n_raw or any(len(start) != member.head.n_raw for start in known["starts"]):
            raise InputError(f"{_FACTS} must have one entry per raw output of {member.head.name}.")
        extra = []
        for groups in folds:
            extra += [Index.width(groups)] * sum(boosted) + [0] * groups
        flat = iter(restored(files, known, member.table.width, extra))
        member.seeds_ = []
        for start, folds in zip(known["starts"], known["index"], strict=True):
            boosters: list[list[Booster | None]] = []
            indices: list[Index | None] = []
            for groups in folds:
                boosters.append([next(flat) if is_boosted else None for is_boosted in boosted])
                indices.append(index_of(flat, groups))
            member.seeds_.append(Seed(np.array(start), boosters, indices))
        return member

    def facts(self) -> dict[str, Any]:
        return {
            "likelihood": self.head.name,
            "head_options": self.head.options,
            "seeds": len(self.seeds_),
            "leaves": self.used_leaves,
            "trees": sum(booster.rounds for each in self.seeds_ for booster in each.flat),
            "additive index": [each.indices[0] is not None for each in self.seeds_],
            "crossed columns": self.table.crossed_names,
        }
