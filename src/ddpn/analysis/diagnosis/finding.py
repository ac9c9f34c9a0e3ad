"""`Finding`: the result of a check, with its sentence."""

from dataclasses import dataclass

from ddpn.analysis.diagnosis.significance import LEVEL
from ddpn.storage.contents import JsonObject


@dataclass(frozen=True)
class Finding:
    """The result of one check of a diagnosis: what was measured, whether it is significant, and how to say so.

    Attributes
    ----------
    name, label : str
        The name of the check, and the label of a finding, such as "zero-inflated".
    effect : str
        The size of the effect as text.
    p_value, adjusted : float
        The p-value, and the p-value after Holm's correction for all checks.
    matters : bool
        True if the effect is large enough to report.
    sentence, clean : str
        The sentence that reports a finding, and the sentence if there is none.
    is_explained : bool
        True if another finding explains this one.
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
        """True if the effect is large enough and significant."""
        return self.matters and self.adjusted < LEVEL

    @property
    def outcome(self) -> str:
        """The label of the finding, or the reason why there is none."""
        if self.found:
            return self.label
        return "no finding" if self.adjusted >= LEVEL else "see the others" if self.is_explained else "negligible"

    @property
    def words(self) -> str:
        """The sentence that applies: `sentence` for a finding, else `clean`."""
        return self.sentence if self.found else self.clean

    def to_dict(self) -> JsonObject:
        """Return the finding as a dictionary for JSON."""
        return {
            "check": self.name, "found": self.found, "outcome": self.outcome,
            "effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted, "sentence": self.words,
        }  # fmt: skip
