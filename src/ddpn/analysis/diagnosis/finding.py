"""`Finding`: the result of one check of a diagnosis, with a sentence that reports it."""

from dataclasses import dataclass

from ddpn.analysis.diagnosis.significance import LEVEL
from ddpn.storage.contents import JsonObject


@dataclass(frozen=True)
class Finding:
    """Result of one check of a diagnosis: the size of an effect, its p-value, and a sentence about it.

    Attributes
    ----------
    name : str
        The name of the check: "dispersion", "zeros", "ceiling", "heaping" or "tail".
    label : str
        A short name of the effect, such as "zero-inflated".
    effect : str
        The size of the effect as text.
    p_value : float
        The p-value of the check.
    matters : bool
        True if the effect is large enough to report.
    sentence : str
        The sentence to show if the effect is reported.
    clean : str
        The sentence to show otherwise.
    adjusted : float
        The p-value after Holm's correction for the number of checks.
    is_explained : bool
        True if another finding explains this effect, so that it is not reported.
    """

    name: str
    label: str
    effect: str
    p_value: float
    matters: bool
    sentence: str
    clean: str
    adjusted: float = 1.0
    is_explained: bool = False

    @property
    def found(self) -> bool:
        """True if the effect is large enough to report and its adjusted p-value is below 5%."""
        return self.matters and self.adjusted < LEVEL

    @property
    def outcome(self) -> str:
        """The label of the effect or, if it is not reported, the reason.

        The reason is "no finding" if the effect is not significant, "see the others" if another finding explains it,
        and "negligible" if it is too small.
        """
        if self.found:
            return self.label
        return "no finding" if self.adjusted >= LEVEL else "see the others" if self.is_explained else "negligible"

    @property
    def words(self) -> str:
        """The sentence to show to the user: `sentence` if the effect is reported, else `clean`."""
        return self.sentence if self.found else self.clean

    def to_dict(self) -> JsonObject:
        """Return the finding as a dictionary for JSON."""
        return {
            "check": self.name, "found": self.found, "outcome": self.outcome,
            "effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted, "sentence": self.words,
        }  # fmt: skip
