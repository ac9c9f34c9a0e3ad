"""Blocks of tables that are checked and predicted one by one: in this process, or in others that are sent the work."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ddpn.tables.tables import Place, Tables
from ddpn.workflow import prediction
from ddpn.workflow.findings import Findings
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.parts import part_content
from ddpn.workflow.prediction_request import Request


class Predicted(NamedTuple):
    """The predictions of a block as a part of the output, and what is unusual about its rows."""

    content: bytes
    rows: int
    columns: list[str]
    findings: dict[str, Any]


class Blocks(Protocol):
    """Where blocks are checked and predicted."""

    def predict(self, places: Sequence[Place], done: Callable[[int], None]) -> Iterator[Predicted]:
        """Check all blocks, with an `InputError` for rows that cannot be read or predicted, then predict them in order.

        `done` is called with numbers of rows.
        """
        ...


class BlocksHere:
    """Blocks in this process, one after the other.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    tables : Tables
        The tables.
    request : Request
        Which columns to predict.
    target : str
        The file that parts are made for.
    """

    def __init__(self, folder: ModelFolder, tables: Tables, request: Request, target: str) -> None:
        self._folder, self._tables, self._request, self._target = folder, tables, request, target
        self._roles = folder.roles

    def predict(self, places: Sequence[Place], done: Callable[[int], None] = lambda rows: None) -> Iterator[Predicted]:
        """Check all blocks, then predict them."""
        for place in places:
            self.check(place)
        for place in places:
            yield self.predict_one(place, done)

    def check(self, place: Place) -> None:
        """Read and check a block."""
        self._tables.check_rows(self._roles, place)

    def predict_one(self, place: Place, done: Callable[[int], None] = lambda rows: None) -> Predicted:
        """Predict a block."""
        findings = Findings(self._folder.model.predictor_, self._request)
        block = self._tables.block(place)
        with self._tables.named(place.table):
            found = prediction.predict_block(
                self._folder, block.frame, self._request, findings, done, block.start, findings.note
            )
        return Predicted(part_content(found, self._target), found.height, found.columns, findings.as_dict())
