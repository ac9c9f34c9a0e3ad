"""What is wrong with a request: one sentence per problem, with the row and the column where there are some."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ddpn.runtime.errors import InputError


class Problem(NamedTuple):
    """A sentence; `row` is the position in `rows` from 0, `column` a name."""

    message: str
    row: int | None = None
    column: str | None = None


class RequestError(InputError):
    """A request that cannot be answered, with the HTTP status of the answer.

    Parameters
    ----------
    problems : sequence of Problem or str
        What is wrong; a string for a problem of the whole request.
    after : str
        A sentence that follows the first problem.
    status : int
        The HTTP status.
    headers : dict, optional
        Headers of the answer, such as Retry-After.
    """

    def __init__(
        self,
        problems: Sequence[Problem] | str,
        after: str = "",
        status: int = 422,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.problems = [Problem(problems)] if isinstance(problems, str) else list(problems)
        self.status, self.headers = status, headers or {}
        super().__init__(self.problems[0].message + after)

    def document(self) -> dict[str, Any]:
        """For JSON: a message, and every problem with its row and column."""
        details = [
            {name: value for name, value in problem._asdict().items() if value is not None} for problem in self.problems
        ]
        return {"message": str(self), "problems": details}
