"""Write the page of all options of a fit, parameters.md, from the code: python docs/parameters.py."""

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from numpydoc.docscrape import NumpyDocString

from ddpn.cli.plan_options import OPTION_TEXTS
from ddpn.estimators import CountRegressor
from ddpn.members.network_options import TRAINING_OPTIONS, NetworkOptions
from ddpn.networks.training import TrainingConfig
from ddpn.workflow.config import FitConfig

PAGE = Path(__file__).parent / "parameters.md"
#: What takes the place of an option in Python, where it is not the argument of `CountRegressor` with the same name.
IN_PYTHON = {
    "target": "`y` of `fit`",
    "exposure": "`exposure` of `fit`",
    "weight": "`sample_weight` of `fit`",
    "upper_column": "`upper` of `fit`",
    "censored": "`censored` of `fit`",
    "drop": "leave the columns out of `X`",
    "use": "keep the columns in `X`",
    "category": 'text in `X`: `X.astype({"zip": str})`',
    "missing": "missing values in `X`",
    "group": "`groups` of `fit`",
    "split_column": "`validation` of `fit`",
    "time": "`validation` of `fit`",
    "test_size": "split `X` and `y` yourself",
    "shares": "`validation` of `fit`",
    "seed": "`random_state`",
    "compare_with": "–",
    "interval_groups": "`groups` of `fit_intervals`",
    "only": '`members=["trees"]`',
    "n_networks": "`n_networks` of `DDPNRegressor`",
    "sheet": "`pandas.read_excel(sheet_name=)`",
    "skip_rows": "`pandas.read_excel(skiprows=)`",
    "components": '`head_options={"components": 3}`',
    "beta": '`head_options={"beta": 0.5}`',
}
#: Options that only a settings file and Python have.
IN_FILES = {
    "head_options": "Options of the likelihood, such as the components of a mixture.",
    "hidden": 'Widths of the hidden layers, such as [64, 64]; "auto" follows the number of rows.',
    "numeric": 'Encoding of numbers: "standard", "piecewise", "steps", or "auto" by the number of rows.',
    "training_options": "How networks are trained: the second table.",
    "shares": "Shares of training, validation and test rows, such as [0.7, 0.1, 0.2].",
}
_TYPES = {str: "text", int: "integer", float: "number", bool: "true or false", dict: "table", tuple: "list"}
_HEAD = """# Parameters

`python docs/parameters.py` writes this page from the code; a test compares the two.

## Options of a fit

Each option has one name. It is a key of a settings file (`ddpn fit --config settings.toml`), and with dashes it is an
option of `ddpn fit`; most are arguments of `CountRegressor`. Options on the command line take precedence over the file.

| key and option | Python | type | default | meaning |
|---|---|---|---|---|
"""
_TRAINING = """
## Options of the training

These are keys of the table `[training_options]` of a settings file, and of `CountRegressor(training_options={...})`.
They concern the networks alone. You rarely need them: [`ddpn tune`](how-to/tune.md) searches for good values.

| key | type | default | meaning |
|---|---|---|---|
"""
_EXAMPLE = """
## A settings file

```toml
# settings.toml
target = "visits"
lower = 0
epochs = 20
mix_with = ["trees", "glm"]

[training_options]
lr = 0.002
```
"""


def describe_type(annotation: Any) -> str:
    """Describe a type in the words of a settings file."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return describe_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return " or ".join(
            dict.fromkeys(describe_type(argument) for argument in get_args(annotation) if argument is not NoneType)
        )
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in get_args(annotation))
    return _TYPES.get(origin or annotation, "list")


def format_option(name: str) -> list[str]:
    """Return the cells of an option of a fit."""
    field, text = FitConfig.model_fields[name], OPTION_TEXTS.get(name)
    meaning, _, default = (text.help if text else IN_FILES[name]).partition(" Default")
    default = default.removeprefix(":").strip().rstrip(".")
    # Two dashes would become one long dash.
    meaning, default = (re.sub(r"--[a-z-]+", r"`\g<0>`", words) for words in (meaning, default))
    arguments = {item.name: item.default for item in fields(CountRegressor)}
    in_python = IN_PYTHON.get(name, f"`{name}`")
    if not default and not field.is_required():
        default = _format_value(field.default if field.default not in (None, ()) else arguments.get(name))
    flag = f"<br>`{text.flag or '--' + name.replace('_', '-')}`" if text else ""
    annotation = next((item for item in field.metadata if get_origin(item)), field.annotation)
    return [f"`{name}`{flag}", in_python, describe_type(annotation), default or "required", meaning]


def format_training_option(name: str) -> list[str]:
    """Return the cells of an option of the training."""
    described = {
        option: " ".join(part.desc)
        for documented in (TrainingConfig, NetworkOptions)
        for part in NumpyDocString(inspect.cleandoc(documented.__doc__ or ""))["Parameters"]
        for option in part.name.split(", ")
        if not part.desc[0].startswith("As in")
    }
    (field,) = (option for option in fields(NetworkOptions) if option.name == name)
    assert field.default is not MISSING
    return [f"`{name}`", describe_type(field.type), _format_value(field.default), described[name]]


def _format_value(value: object) -> str:
    return "none" if value is None or value == () else f"`{value}`" if not isinstance(value, str) else f'`"{value}"`'


def format_page() -> str:
    """Format the page."""
    rows = [format_option(name) for name in (*OPTION_TEXTS, *IN_FILES)]
    training = [format_training_option(name) for name in sorted(TRAINING_OPTIONS)]
    tables = ["".join("| " + " | ".join(row) + " |\n" for row in table) for table in (rows, training)]
    return _HEAD + tables[0] + _EXAMPLE + _TRAINING + tables[1]


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")
