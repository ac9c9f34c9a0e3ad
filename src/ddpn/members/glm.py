"""Generalised linear models as members, fitted exactly: raw outputs linear in the columns, or the same for all rows."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.linear import LinearFit, LinearPredictor, fit_linear
from ddpn.members.member import Member, NotApplicableError, Task, make_exposure_tensor, to_tensor
from ddpn.networks.heads import HEADS, Head, make_head
from ddpn.networks.heads.head import WeightedCounts
from ddpn.rows.checks import Labels, RowError, get_row_count
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import join_words
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.tables.columns import Column, ColumnTable
from ddpn.tables.encoding import FeatureEncoder, encoder_from_bytes, encoder_to_bytes
from ddpn.tables.schema import Schema

_FACTS, _ARRAYS, _ENCODER = "glm.json", "glm.safetensors", "encoder.json"


@dataclass
class Design:
    """The columns of a `CountGLM`: a category has one per level but the first in alphabetical order, the reference.

    Parameters
    ----------
    schema : Schema
        The columns of the table.
    levels : dict of str to tuple of str
        The levels of each category, the reference first.

    Examples
    --------
    >>> from ddpn.tables.schema import read_table
    >>> table = read_table([[31.0, "B"], [67.0, "A"]])
    >>> design = Design.from_table(table)
    >>> design.names, design.matrix(table).tolist()
    (['x0', 'x1 = B'], [[31.0, 1.0], [67.0, 0.0]])
    """

    schema: Schema
    levels: dict[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        self._codes = {name: {level: code for code, level in enumerate(levels)} for name, levels in self.levels.items()}

    @classmethod
    def from_table(cls, table: ColumnTable) -> Self:
        """Make the design of complete rows, with the levels that occur in them."""
        levels = {
            column.name: tuple(sorted(column.levels[code] for code in np.unique(column.values).tolist()))
            for column in table
            if column.is_category
        }
        return cls(Schema.from_table(table), levels)

    @property
    def names(self) -> list[str]:
        """The names of the coefficients."""
        return [
            named
            for name in self.schema.names
            for named in ([f"{name} = {level}" for level in self.levels[name][1:]] if name in self.levels else [name])
        ]

    def read(self, X: Any) -> np.ndarray:
        """Build the matrix of a later table; raise an `InputError` for missing values and for unseen levels."""
        table = self.schema.parse(X)
        check_complete(table, table.index, "Fill or drop such rows, or use CountRegressor, which accepts them")
        return self.matrix(table)

    def matrix(self, table: ColumnTable) -> np.ndarray:
        """Build the design matrix; `table` must have no missing values. Shape: (rows, coefficients), float64."""
        parts = [
            _encode_levels(column, self._codes[column.name], table.index)
            if column.is_category
            else column.values.astype(np.float64)[:, None]
            for column in table
        ]
        return np.concatenate(parts, axis=1)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can hold."""
        return {"schema": self.schema.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a design from the result of `as_dict`."""
        return cls(Schema.from_dict(fields["schema"]), read_levels(fields["levels"]))


def read_levels(fields: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Read the levels of categories, by name, from JSON."""
    return {name: tuple(map(str, levels)) for name, levels in fields.items()}


def check_complete(table: ColumnTable, labels: Labels, remedy: str) -> None:
    """Raise an `InputError` that names columns and rows if a value is missing, for which there is no coefficient."""
    missing = {column.name: column.is_missing for column in table}
    missing = {name: mask for name, mask in missing.items() if mask.any()}
    if missing:
        first, mask = next(iter(missing.items()))
        counts = join_words([f"'{name}' ({int(column_mask.sum()):,})" for name, column_mask in missing.items()])
        after = (
            f". Rows with missing values: {table.is_missing().sum():,} of {len(mask):,}; by column: {counts}. {remedy}."
        )
        raise RowError(f"X must have no missing values, got NaN in column '{first}'", mask, after, labels)


def _encode_levels(column: Column, codes: Mapping[str, int], labels: Labels) -> np.ndarray:
    code = column.map_levels(codes, other=-1, missing=-1)
    if (code < 0).any():
        level = column.levels[column.values[code < 0][0]]
        words = f"X must hold levels that fit has seen in column '{column.name}', got {level!r}"
        raise RowError(words, code < 0, ". Recode or drop such rows.", labels)
    return np.eye(len(codes))[code][:, 1:]


class GLM(Member):
    """The exact GLM of a likelihood on standardised numbers, with an indicator per level and for missing values.

    Its raw outputs stay within those of the training rows, so that a row far outside cannot explode a mixture.

    Parameters
    ----------
    head : Head, optional
        The likelihood. Default: "double_poisson".
    """

    label = "GLM"
    complexity = 2
    #: Ridge penalty: with less, a rare level or an outlier ran away on one of five small tables; more helped on none.
    alpha: ClassVar[float] = 1e-3
    #: A line is known from so many rows; more columns would take minutes, and are where a line helps least.
    max_rows: ClassVar[float] = 20_000
    max_columns: ClassVar[float] = 300
    is_clipped: ClassVar[bool] = True

    encoder: FeatureEncoder | None = None
    design: Design | None = None
    linear: LinearPredictor
    low: np.ndarray
    high: np.ndarray
    unit: float
    #: Whether an optimum to some digits is enough.
    _is_rough: bool = False
    #: Heads of the other families of a mixture, which censored counts may be fitted better by.
    _others: tuple[Head, ...] = ()

    def __init__(self, head: Head | None = None) -> None:
        self.head = make_head("double_poisson") if head is None else head

    @classmethod
    def from_task(cls, task: Task) -> Self:
        head = task.head
        if head.glm_likelihood is None:
            raise NotApplicableError(f'likelihood="{head.name}" has no exact GLM')
        # The total of all rows is an option: such a head has a GLM of its own.
        member = cls(head if head.exposure_is_total else make_head(head.glm_likelihood))
        member._is_rough = task.is_rough
        families = getattr(head, "families", ())
        member._others = tuple(make_head(name) for name in dict.fromkeys(families) if name != member.head.name)
        return member

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        train = train.rows(train.has_weight)
        columns = np.shape(train.X)[1]  # as many inputs or more
        if columns <= self.max_columns:
            self.encoder = FeatureEncoder().fit(train.X, train.y, train.weight)
            columns = len(self.encoder.get_feature_names_out())
        if columns > self.max_columns:
            raise NotApplicableError(f"{columns} inputs, more than the {self.max_columns:g} that a GLM is fitted to")
        assert self.encoder is not None
        if len(train) > self.max_rows:
            chosen = np.random.default_rng(seed).choice(len(train), int(self.max_rows), replace=False)
            train = train.rows(np.sort(chosen))
        if not train.y.any():
            raise NotApplicableError("it has no count above 0 to fit")
        self.unit = choose_exposure_unit(train, self.head.exposure_is_total)
        scaled = divide_exposure(train, self.unit)
        inputs = self.encoder.transform(train.X).astype(np.float64)
        self._fit_lines(inputs, scaled)
        raw = self.linear.raw(inputs)
        unbounded = np.full(raw.shape[1], np.inf)
        self.low, self.high = (raw.min(0), raw.max(0)) if self.is_clipped else (-unbounded, unbounded)
        return self

    def _fit_lines(self, inputs: np.ndarray, sample: CountRows) -> None:
        """Fit the line; if counts are censored, choose the family under which the recorded counts are most likely.

        Counts beyond the limit follow from the shape of the family alone, and no score of recorded counts shows it.
        """
        is_censored = sample.limit is not None and bool((sample.y >= sample.limit).any())
        heads = [self.head, *(head for head in self._others if is_censored and head.has_glm)]
        fits = [self._fit_line(head, inputs, sample) for head in heads]
        lines, best = [fit.linear for fit in fits], 0
        if len(heads) > 1:
            rows, weight = sample.replace(X=None).map(torch.from_numpy), sample.weight_or_ones
            with torch.no_grad():
                pairs = zip(heads, lines, strict=True)
                losses = [head.sample_loss(torch.from_numpy(line.raw(inputs)), rows).numpy() for head, line in pairs]
            best = int(np.argmin([weight @ loss for loss in losses]))
        self.head, self.linear = heads[best], lines[best]
        if not fits[best].optimum.converged:
            # The same sentence for all copies of a cross-fitted member, which are then reported once.
            warnings.warn(
                f"The search of the {self.label} did not reach the maximum of its likelihood, so that it may predict "
                "worse than it could. Its weight in the mixture allows for that.",
                UserWarning,
                stacklevel=2,
            )

    def _fit_line(self, head: Head, inputs: np.ndarray, sample: CountRows) -> LinearFit:
        return fit_linear(head, inputs, sample, (True,) * head.n_raw, self.alpha, rough=self._is_rough)

    @classmethod
    def from_design(cls, head: Head, design: Design, linear: LinearPredictor, unit: float) -> Self:
        """Make the member of a `CountGLM`, whose categories are differences from a reference level."""
        member = cls(head)
        member.design, member.linear, member.unit = design, linear, unit
        unbounded = np.full(head.n_raw, np.inf)
        member.low, member.high = -unbounded, unbounded
        return member

    @property
    def schema(self) -> Schema | None:
        if self.design is not None:
            return self.design.schema
        return None if self.encoder is None else self.encoder.schema_

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        if self.design is not None:
            return self.design.levels
        return {} if self.encoder is None else self.encoder.levels

    def raw(self, X: ColumnTable) -> Tensor:
        """Compute raw outputs. Shape: (rows, 1, P)."""
        if self.design is not None:
            inputs = self.design.read(X)
        else:
            assert self.encoder is not None
            inputs = self.encoder.transform(X).astype(np.float64)
        raw = np.clip(self.linear.raw(inputs), self.low, self.high)
        return torch.from_numpy(raw).unsqueeze(1)

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        raw = self.raw(X)
        scale = make_exposure_tensor(exposure, self.unit, len(raw))
        return self.head(raw, None if scale is None else scale.unsqueeze(1))

    def state(self) -> dict[str, bytes]:
        facts: JsonObject = {"head": self.head.name, "options": self.head.options, "unit": self.unit}
        files = {_ARRAYS: arrays_to_bytes(**self.linear._asdict(), low=self.low, high=self.high)}
        if self.design is not None:
            facts["design"] = self.design.as_dict()
        else:
            assert self.encoder is not None
            files[_ENCODER] = encoder_to_bytes(self.encoder)
        return files | {_FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts, arrays = json.loads(files[_FACTS]), arrays_from_bytes(files[_ARRAYS])
        member = cls(make_head(facts["head"], **facts["options"]))
        member.unit, member.low, member.high = facts["unit"], arrays["low"], arrays["high"]
        member.linear = LinearPredictor(*(arrays[name] for name in LinearPredictor._fields))
        if "design" in facts:
            member.design = Design.from_dict(facts["design"])
        else:
            member.encoder = encoder_from_bytes(files[_ENCODER], _ENCODER)
        return member

    def get_facts(self) -> JsonObject:
        return {"likelihood": self.head.name, "coefficients": int(self.linear.slopes.size + self.linear.base.size)}


class PoissonGLM(GLM):
    """A Poisson GLM with log link, the usual baseline; a small ridge penalty keeps coefficients finite for rare levels.

    Parameters
    ----------
    head : Head, optional
        The likelihood, for use with another one. Default: "poisson".
    """

    label = "Poisson GLM"
    complexity = 1
    is_default = False
    alpha = 1e-4
    max_rows, max_columns = float("inf"), 1000
    is_clipped = False

    def __init__(self, head: Head | None = None) -> None:
        super().__init__(make_head("poisson") if head is None else head)

    @classmethod
    def from_task(cls, task: Task) -> Self:
        return cls()


class Constant(Member):
    """One distribution for all rows, fitted by maximum likelihood, of the best-fitting count likelihood.

    An exposure scales its location.

    Parameters
    ----------
    head : Head, optional
        The head of the networks. Where its exposures are totals (`Head.exposure_is_total`), it is the likelihood that
        is fitted; otherwise it is not used.

    Examples
    --------
    >>> y = np.array([0.0, 0.0, 0.0, 9.0, 11.0, 1.0])
    >>> Constant().fit(CountRows(np.zeros((6, 1)), y), None, seed=0).likelihood
    'negative_binomial'
    """

    label = "constant distribution"
    is_baseline = True
    complexity = 0
    likelihood: str
    raw: Tensor
    unit: float

    def __init__(self, head: Head | None = None) -> None:
        self.head = head if head is not None and head.exposure_is_total else None

    @classmethod
    def from_task(cls, task: Task) -> Self:
        return cls(task.head)

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        tried = [cls for cls in HEADS.values() if cls.is_count and cls.is_baseline and not cls.exposure_is_total]
        candidates = [make_head(cls.name) for cls in tried] if self.head is None else [self.head]
        best = np.inf
        self.unit = choose_exposure_unit(train, candidates[0].exposure_is_total)
        rows = divide_exposure(train.replace(X=None), self.unit).map(to_tensor)
        for head in candidates:
            raw = head.sample_start(rows)
            with torch.no_grad():
                loss = float(WeightedCounts(rows).mean_loss(head)(raw))
            if loss < best:
                best, self.likelihood, self.raw = loss, head.name, raw
        return self

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        raw = self.raw.expand(get_row_count(X), 1, -1)
        scale = make_exposure_tensor(exposure, self.unit, len(raw))
        head = make_head(self.likelihood) if self.head is None else self.head
        return head(raw, None if scale is None else scale.unsqueeze(1))

    def state(self) -> dict[str, bytes]:
        options = {} if self.head is None else self.head.options
        facts = {"likelihood": self.likelihood, "options": options, "unit": self.unit, **self.get_facts()}
        return {"constant.json": json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts = json.loads(files["constant.json"])
        member = cls(make_head(facts["likelihood"], **facts["options"]))
        member.likelihood, member.unit = facts["likelihood"], facts["unit"]
        member.raw = to_tensor(np.array(facts["raw outputs"]))
        return member

    def get_facts(self) -> JsonObject:
        return {"likelihood": self.likelihood, "raw outputs": self.raw.tolist()}
