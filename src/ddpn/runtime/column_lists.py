"""Parse lists of column names as users type them, such as "age, ward". A name may itself contain commas."""

from collections.abc import Iterable, Sequence

from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.validation import check_column


def split_words(text: str) -> list[str]:
    """Split text at commas, strip spaces, and drop empty words.

    >>> split_words("age, ward,")
    ['age', 'ward']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def resolve_names(
    values: Iterable[str], columns: Sequence[str], role: str, error: type[DDPNError] = InputError
) -> tuple[str, ...]:
    """Resolve a typed list of names to columns of a table.

    A value that is the name of a column is kept. Other values are split at commas into names of columns.

    Parameters
    ----------
    values : iterable of str
        The typed texts. If the option was given several times, there are several.
    columns : sequence of str
        The columns of the table.
    role : str
        The name of the argument that holds the list, for messages.
    error : type
        The error to raise if a column does not exist.

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
