"""Steps of a fit that Ctrl-C may end without losing what earlier steps made."""

from collections.abc import Callable


class StepRunner:
    """Runs steps one after the other until a `KeyboardInterrupt` ends one of them; later ones are not begun.

    >>> def stop():
    ...     raise KeyboardInterrupt
    >>> runner = StepRunner()
    >>> [runner.run(step) for step in (list, stop, list)]
    [True, False, False]
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def run(self, step: Callable[[], object]) -> bool:
        """Run a step unless an earlier one was stopped; return whether it was completed."""
        if self.is_stopped:
            return False
        try:
            step()
        except KeyboardInterrupt:
            self.is_stopped = True
        return not self.is_stopped
