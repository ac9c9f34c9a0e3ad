"""Lists of column names as a user types them: commas separate names, and a name may contain commas as well."""

from collections.abc import Iterable, Sequence

from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.validation import check_column


def split_words(text: str) -> list[str]:
    """Split text at commas into words without surrounding spaces; empty words are left out.

    >>> split_words("age, ward,")
    ['age', 'ward']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def resolve_names(
    values: Iterable[str], columns: Sequence[str], role: str, error: type[DDPNError] = InputError
) -> tuple[str, ...]:
    """Return the columns that a list names: a value that is exactly a column is that one, others have commas between.

    Parameters
    ----------
    values : iterable of str
        What was typed, one value for each time that the option was given.
    columns : sequence of str
        The columns of the table.
    role : str
        The argument that has the list, for messages.
    error : type
        Raised for a name that no column has.

    Examples
    --------
    >>> resolve_names(["mentor, articles", "age,ward"], ["age", "mentor, articles", "ward"], "drop")
    ('mentor, articles', 'age', 'ward')
    """
    names: list[str] = []
    for value in values:
        if value in columns:
            names.append(value)
            continue
        words = split_words(value)
        try:
            names += [check_column(word, columns, role, error) for word in words]
        except DDPNError as unknown:
            if len(words) < 2:
                raise
            remedy = (
                f"Commas separate names in {value!r}. Write a name that contains a comma exactly as in the table, and "
                f"give `{role}` once for each such name."
            )
            raise error(f"{unknown} {remedy}") from None
    return tuple(dict.fromkeys(names))
