"""Requests and answers as pydantic models, from which FastAPI checks bodies and writes the OpenAPI document."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from typing_extensions import TypedDict

#: Outputs per row; those of the first tuple are the default.
DEFAULT_OUTPUTS = ("mean", "median", "mode", "lower", "upper", "aleatoric", "epistemic", "stddev", "ood_pvalue", "ood")
OUTPUTS = (*DEFAULT_OUTPUTS, "ood_reasons", "distribution", "members")
#: The most quantiles, and the largest count of `pmf`, per request.
MOST_QUANTILES, MOST_COUNTS = 99, 1000


class Described(BaseModel):
    """A model whose fields must each be what their description says; see `ddpn.serving.problems`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    #: What the object itself must be, and what its fields are called.
    is_called: ClassVar[str] = 'an object such as {"rows": [{...}]}'
    field_word: ClassVar[str] = "field"

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """The description of each field, by its name in JSON."""
        return {field.alias or name: field.description or "" for name, field in cls.model_fields.items()}


class Row(Described):
    """A row of a request; `ServedModel.Row` has a field per column, with the column's name as its alias."""

    is_called: ClassVar[str] = "an object with a value per column"
    field_word: ClassVar[str] = "column"


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


def request_model(base: type[Described], name: str, row: type[Row], most: int) -> Any:
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
    """
    words = f"a list of 1 to {most:,} rows, each an object with a value per column"
    rows: Any = (list[row], Field(min_length=1, max_length=most, description=words))  # type: ignore[valid-type]
    return create_model(f"{base.__name__.removesuffix('Options')}_{name}", __base__=base, rows=rows)


def row_of(request: type[BaseModel]) -> type[Row]:
    """The model of the rows of a model of requests."""
    return get_args(request.model_fields["rows"].annotation)[0]


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


class AboutModel(TypedDict):
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
