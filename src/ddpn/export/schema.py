"""What an exported file takes: the raw columns of the table that a model was fitted to, and how each is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddpn.tables.cells import LOOKS_MISSING, missing_numbers
from ddpn.tables.encoding.table import WITH_NUMBERS
from ddpn.tables.kinds import FALSE, TRUE
from ddpn.tables.roles import Roles

#: What an input of each kind holds, for people who call the file.
MEANINGS = {
    "number": "a number; NaN where it is missing",
    "boolean": "1 or 0; NaN where it is missing",
    "date": "seconds since 1970-01-01 00:00 by the clock of the column; NaN where it is missing",
    "category": "text; empty where it is missing",
    "exposure": "a positive number",
    "upper": "the largest possible count, an integer",
    "group": "text; the group within which intervals are calibrated",
}


@dataclass(frozen=True)
class InputColumn:
    """A column of the raw table: its kind (see `MEANINGS`), what it becomes, and which cells count as missing.

    `names` are the columns that the model sees, one except for dates, which have `parts`. `words` stand for a missing
    level, `aliases` are other spellings of levels, and `by_value` says whether text that is the same number is the
    same level. `markers` are numbers that stand for a missing value.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ("",)
    markers: tuple[float, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    by_value: bool = False

    @property
    def element(self) -> str:
        """The kind of value that the file takes: f (float64) or s (text)."""
        return "s" if self.kind in ("category", "group") else "f"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        about = {"name": self.name, "type": "string" if self.element == "s" else "float64", "kind": self.kind}
        return {**about, "meaning": MEANINGS[self.kind]}


def columns_of_roles(roles: Roles, kinds: Sequence[str]) -> list[InputColumn]:
    """The columns of a model that `ddpn fit` fitted; `kinds` are those of its features."""
    found, rest = [], list(kinds)
    markers = tuple(missing_numbers(roles.missing))
    for column in roles.used:
        own, rest = rest[: len(column.inputs)], rest[len(column.inputs) :]
        words: tuple[str, ...] = ("",)
        aliases: tuple[tuple[str, str], ...] = ()
        if column.kind == "category":
            words, aliases = _words(roles.missing, column.level_kind), _aliases(column.level_kind)
        found.append(
            InputColumn(
                column.name,
                column.kind,
                tuple(column.inputs),
                column.parts if column.kind == "date" else (),
                words,
                markers if column.kind in ("number", "category") else (),
                aliases,
                WITH_NUMBERS in own or column.level_kind == "number",
            )
        )
    return found


def columns_of_features(names: Sequence[str], kinds: Sequence[str]) -> list[InputColumn]:
    """The columns of a model that was fitted in Python: those of X."""
    plain = {"number": "number", "flag": "boolean"}
    return [
        InputColumn(name, plain.get(kind, "category"), (name,), by_value=kind == WITH_NUMBERS)
        for name, kind in zip(names, kinds, strict=True)
    ]


def _words(missing: Sequence[str], level_kind: str) -> tuple[str, ...]:
    """Text that stands for a missing level; among numbers also words such as n/a, in the usual letter cases."""
    words = {"", "nan", *(word.strip() for word in missing)}
    if level_kind == "number":
        words |= {form for word in LOOKS_MISSING for form in (word, word.upper(), word.capitalize(), word.title())}
    return tuple(sorted(words))


def _aliases(level_kind: str) -> tuple[tuple[str, str], ...]:
    """Spellings of true and false where these are the levels."""
    if level_kind != "boolean":
        return ()
    named: Mapping[str, Sequence[str]] = {"true": TRUE, "false": FALSE}
    forms = {form: level for level, words in named.items() for word in words for form in _cases(word)}
    return tuple(sorted(forms.items()))


def _cases(word: str) -> set[str]:
    """All combinations of lower and upper case."""
    found = {""}
    for letter in word:
        found = {start + form for start in found for form in (letter.lower(), letter.upper())}
    return found
