"""Requests and answers as pydantic models, from which FastAPI checks bodies and writes the OpenAPI document."""

from collections.abc import Sequence
from difflib import get_close_matches
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from ddpn.serving.problems import TAG

#: Outputs per row; those of the first tuple are the default.
DEFAULT_OUTPUTS = ("mean", "median", "mode", "lower", "upper", "aleatoric", "epistemic", "stddev", "ood_pvalue", "ood")
OUTPUTS = (*DEFAULT_OUTPUTS, "ood_reasons", "distribution", "members")
#: The most quantiles, and the largest count of `pmf`, per request.
MOST_QUANTILES, MOST_COUNTS = 99, 1000
#: The longest name of a column that answers repeat.
_LONGEST = 60


class Described(BaseModel):
    """A model whose errors are sentences: each field must be what its description says.

    Errors have the type "value" (the sentence is about the value at their place) or "fields" (it is about the object
    that the field is missing from, or should not have).
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    #: What the object itself must be, and what its fields are called.
    is_called: ClassVar[str] = 'an object such as {"rows": [{...}]}'
    field_word: ClassVar[str] = "field"

    @model_validator(mode="wrap")
    @classmethod
    def _describe(cls, given: Any, validated: Any) -> Any:
        try:
            return validated(given)
        except ValidationError as error:
            first: dict[Any, InitErrorDetails] = {}
            for each in error.errors(include_url=False):
                known = each["type"] in ("value", "fields")
                first.setdefault(each["loc"] if known else each["loc"][:1], cls._sentence(each))
            raise ValidationError.from_exception_data(cls.__name__, list(first.values())) from None

    @classmethod
    def _sentence(cls, error: Any) -> InitErrorDetails:
        kind, place, found = error["type"], error["loc"], error["input"]
        if kind in ("value", "fields"):
            words = error["msg"]
        elif not place:
            kind, words = "value", f"must be {cls.is_called}, got {shown(found)}."
        elif kind == "missing":
            kind, words = "fields", f"has no {cls.field_word} {place[0]!r}.{cls._remedy(place[0])}"
        elif kind == "extra_forbidden":
            name, place = str(place[0])[:_LONGEST], (str(place[0])[:_LONGEST],)
            near = get_close_matches(name, cls._fields(), 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
            kind, words = "fields", f"has an unknown {cls.field_word} {name!r}. {hint}"
        else:
            kind, place = "value", place[:1]
            words = f"must be {cls._fields()[place[0]]}, got {shown(found)}."
        return InitErrorDetails(type=PydanticCustomError(kind, "{words}", {"words": words}), loc=place, input=found)

    @classmethod
    def _fields(cls) -> dict[str, str]:
        """The description of each field, by its name in JSON."""
        return {field.alias or name: field.description or "" for name, field in cls.model_fields.items()}

    @classmethod
    def _remedy(cls, name: str) -> str:
        return " Send null if the value is missing." if "null" in cls._fields()[name] else ""


class Row(Described):
    """A row of a request; `ServedModel.Row` has a field per column, with the column's name as its alias."""

    is_called: ClassVar[str] = "an object with a value per column"
    field_word: ClassVar[str] = "column"


def shown(value: Any) -> str:
    """A value for a message: its type, and the value itself where that is short."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, dict | bytes):
        return "an object" if isinstance(value, dict) else "bytes"
    words = str(value).lower() if isinstance(value, bool) else repr(value)
    words = words if len(words) <= 40 else words[:37] + "..."
    return f"text {words}" if isinstance(value, str) else words


def integer(least: int, most: int) -> Any:
    """The type of integers in a range, which JSON may have as 3.0."""

    def read(value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Annotated[int, Field(ge=least, le=most), BeforeValidator(read)]


_Level = Annotated[float, Field(gt=0.0, lt=1.0)]


class Wanted(NamedTuple):
    """What to predict per row: names of `OUTPUTS`, the coverage of intervals, quantiles, probabilities up to `pmf`."""

    outputs: tuple[str, ...] = DEFAULT_OUTPUTS
    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    pmf: int | None = None


class PredictOptions(Described):
    """What a request to predict has besides its rows."""

    outputs: list[Literal[OUTPUTS]] | None = Field(  # type: ignore[valid-type]
        None,
        min_length=1,
        max_length=100,
        title="What to predict; default: all but the last three",
        description=f"a list of some of {', '.join(OUTPUTS)}",
    )
    coverage: _Level = Field(0.9, title="Of the interval from lower to upper", description="a number between 0 and 1")
    quantiles: list[_Level] = Field(
        [], max_length=MOST_QUANTILES, description=f"a list of at most {MOST_QUANTILES} numbers between 0 and 1"
    )
    pmf: integer(0, MOST_COUNTS) | None = Field(  # type: ignore[valid-type]
        None, title="Adds the probabilities of 0 up to this", description=f"an integer from 0 to {MOST_COUNTS}"
    )

    @property
    def wanted(self) -> Wanted:
        """What to predict, as one key."""
        outputs = DEFAULT_OUTPUTS if self.outputs is None else tuple(dict.fromkeys(self.outputs))
        return Wanted(outputs, self.coverage, tuple(self.quantiles), self.pmf)


class ExplainOptions(Described):
    """What a request to explain has besides its rows."""

    of: Literal["mean", "spread"] = Field("mean", description="mean or spread")
    curves: bool = Field(
        False, title="Predict the first row with other values of each column, too", description="true or false"
    )


def request_model(base: type[Described], name: str, row: type[Row], most: int, needs_name: bool = False) -> Any:
    """The model of requests to one served model.

    Parameters
    ----------
    base : type
        `PredictOptions` or `ExplainOptions`.
    name : str
        The name of the served model.
    row : type
        Its rows.
    most : int
        The most rows.
    needs_name : bool
        Whether a request must name the served model.
    """
    words = f"a list of 1 to {most:,} rows, each an object with a value per column"
    fields: dict[str, Any] = {
        "rows": (list[row], Field(min_length=1, max_length=most, description=words)),  # type: ignore[valid-type]
        "model": (Literal[name], Field(... if needs_name else name, description=f"the name {name!r}")),
    }
    title = f"{base.__name__.removesuffix('Options')}_{name}{'_by_name' if needs_name else ''}"
    return create_model(title, __base__=base, **fields)


def any_request(models: Sequence[tuple[str, Any]]) -> Any:
    """A request to one of several served models by its field `model`, to the first by default.

    Parameters
    ----------
    models : sequence of tuple
        Name and model of requests, of each served model.
    """
    if len(models) == 1:
        return models[0][1]
    names, default = [name for name, _ in models], models[0][0]

    def tag(given: Any) -> str | None:
        name = given.get("model", default) if isinstance(given, dict) else default
        return f"{TAG}{name}" if name in names else None

    words = f"model must be one of {', '.join(names)}."
    choice = Discriminator(tag, custom_error_type="model", custom_error_message=words)
    return Annotated[reduce(or_, (Annotated[each, Tag(f"{TAG}{name}")] for name, each in models)), choice]


# Answers ---------------------------------------------------------------------------------------------------------


class Prediction(TypedDict, total=False):
    """The outputs of a row; quantiles are q0.1 and so on."""

    mean: float
    median: int
    mode: int
    lower: int
    upper: int
    aleatoric: float
    epistemic: float
    stddev: float
    ood_pvalue: float
    ood: bool
    ood_reasons: list[str]
    pmf: list[float]
    distribution: dict[str, Any]
    members: list[dict[str, Any]]


class Predictions(TypedDict):
    """Predictions of rows, in the order of the rows."""

    model: str
    version: str
    coverage: float
    predictions: list[Prediction]


class Explanations(TypedDict):
    """What each column adds to the predictions of rows."""

    model: str
    version: str
    quantity: str
    rows: list[dict[str, Any]]


class ModelCard(TypedDict):
    """What a model is, what it was fitted to, its scores, calibration and limits, and its columns."""

    name: str
    version: str
    columns: list[dict[str, Any]]
    example: dict[str, Any]


class ProblemDetails(TypedDict, total=False):
    """A sentence; `row` is the position in `rows` from 0."""

    message: str
    row: int
    column: str


class Problems(TypedDict):
    """Why a request is refused."""

    message: str
    problems: list[ProblemDetails]
