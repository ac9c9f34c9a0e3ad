"""Hypothesis strategies that damage bytes and JSON documents."""

import json
from typing import Any

from hypothesis import strategies as st

#: Values that nobody expects in a JSON file.
_NUMBERS = (True, -1, 0, 2**70, 1e308, -1e308, 0.5, 10**400)
_WORDS = ("", "x", "../../../etc/passwd", "/dev/zero", "\x00", "a" * 5000, "__import__('os').system('id')", "NaN")
STRANGE = st.sampled_from([None, *_NUMBERS, *_WORDS, [], {}, [[]], {"a": 1}, [1, "x", None]])


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """The content with some bytes changed, a part missing, a part repeated, or other content."""
    how = draw(st.sampled_from(["flip", "flip", "cut", "drop", "repeat", "longer", "other", "zeros"]))
    if not content or how == "other":
        return draw(st.binary(max_size=200))
    place = draw(st.integers(0, len(content) - 1))
    size = draw(st.integers(1, 64))
    if how == "flip":
        changed = bytearray(content)
        for offset in range(draw(st.integers(1, 8))):
            changed[(place + offset * 97) % len(content)] ^= draw(st.integers(1, 255))
        return bytes(changed)
    return {
        "cut": content[:place],
        "drop": content[:place] + content[place + size :],
        "repeat": content[: place + size] + content[place:],
        "longer": content + draw(st.binary(min_size=1, max_size=64)),
        "zeros": content[:place] + bytes(size) + content[place + size :],
    }[how]


@st.composite
def changed_document(draw: Any, document: Any) -> Any:
    """A JSON document with one value replaced by a strange one, or one key removed."""
    document = json.loads(json.dumps(document))
    spot = document
    for _ in range(draw(st.integers(0, 5))):
        below = _below(spot)
        if not below:
            break
        key = draw(st.sampled_from(below))
        if not isinstance(spot[key], dict | list) or not spot[key]:
            break
        spot = spot[key]
    below = _below(spot)
    if not below:
        return draw(STRANGE)
    key = draw(st.sampled_from(below))
    if isinstance(spot, dict) and draw(st.booleans()):
        del spot[key]
    else:
        spot[key] = draw(STRANGE)
    return document


def _below(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


def dumped(document: Any) -> bytes:
    """JSON as a stranger may write it, with numbers of any size."""
    return json.dumps(document).encode()
