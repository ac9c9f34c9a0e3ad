"""A flavour for MLflow: log, load and serve a model with its signature. The only file that imports mlflow.

MLflow's own tools use the logged model as any other: `mlflow.pyfunc.load_model`, `mlflow models serve`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ddpn.errors import ConfigError, InputError
from ddpn.extras import import_extra
from ddpn.predictions.request import Request
from ddpn.workflow.model_folder import ModelFolder, load, roles_of_model
from ddpn.workflow.reading import polars
from ddpn.workflow.roles import Roles

#: The folder of the model inside the one that MLflow writes.
_DATA = "model"
_TYPES = {"number": "double", "boolean": "boolean", "date": "string", "category": "string"}
_COUNTS, _NUMBERS = ("median", "mode", "lower", "upper"), ("mean", "aleatoric", "epistemic", "stddev")
#: What inference may be asked for besides: the coverage of the interval.
_PARAMS = {"coverage": 0.9}


def _mlflow(module: str = "mlflow") -> Any:
    return import_extra(module, "mlflow")


def log_model(model: Any, name: str, *, input_example: Any = None, signature: Any = None, **options: Any) -> Any:
    """Log a fitted model to the active run of MLflow.

    Parameters
    ----------
    model : path or estimator
        The folder of a model of `ddpn fit`, or an estimator that was fitted to a data frame.
    name : str
        The name of the logged model.
    input_example : data frame, optional
        Some rows of the table, kept with the model.
    signature : mlflow.models.ModelSignature, optional
        Default: the columns of the model, and what `ddpn predict` returns.
    **options
        Further arguments of `mlflow.pyfunc.log_model`, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    with _arguments(model, input_example, signature, options) as arguments:
        return _mlflow("mlflow.pyfunc").log_model(name=name, **arguments)


def save_model(
    model: Any, path: str | PathLike[str], *, input_example: Any = None, signature: Any = None, **options: Any
) -> None:
    """Save a fitted model as a folder in MLflow's format.

    Parameters
    ----------
    model, input_example, signature
        As for `log_model`.
    path : path
        The folder to make.
    **options
        Further arguments of `mlflow.pyfunc.save_model`.
    """
    with _arguments(model, input_example, signature, options) as arguments:
        _mlflow("mlflow.pyfunc").save_model(path, **arguments)


def load_model(model_uri: str) -> Any:
    """Load a logged model as the estimator that it was.

    Parameters
    ----------
    model_uri : str
        Where the model is, such as "runs:/RUN/NAME", "models:/NAME/1" or a path.

    Returns
    -------
    CountRegressor or another estimator of ddpn
    """
    path = Path(_mlflow("mlflow.artifacts").download_artifacts(artifact_uri=str(model_uri)))
    return _loaded(path / "data" / _DATA).model


@contextmanager
def _arguments(model: Any, example: Any, signature: Any, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments of MLflow's own functions, with the model in a folder that lasts as long as this."""
    _mlflow()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / _DATA
        if isinstance(model, str | PathLike):
            if not Path(model).is_dir():
                raise InputError(f"Folder not found: {model}")
            folder.symlink_to(Path(model).resolve(), target_is_directory=True)
        elif hasattr(model, "saved_state"):
            model.save(folder)
        else:
            raise ConfigError(f"model must be a folder or a fitted estimator of ddpn, got {type(model).__name__}.")
        yield {
            "loader_module": __name__,
            "data_path": str(folder),
            "signature": signature_of(folder) if signature is None else signature,
            "input_example": example,
            "pip_requirements": [f"ddpn=={version('ddpn')}"],
            **options,
        }


def signature_of(folder: str | PathLike[str]) -> Any:
    """The signature of a model: its columns, the outputs of `ddpn predict`, and the parameter `coverage`.

    Parameters
    ----------
    folder : path
        The folder of a saved model.

    Returns
    -------
    mlflow.models.ModelSignature
    """
    schemas, types = _mlflow("mlflow.types.schema"), _mlflow("mlflow.types")
    roles = _roles(Path(folder))
    columns = [schemas.ColSpec(_TYPES[each.kind], each.name, required=False) for each in roles.used]
    known = {each.name for each in roles.used}
    columns += [schemas.ColSpec("double", name) for name in (roles.exposure, roles.upper) if name and name not in known]
    if roles.groups is not None and roles.groups not in known:
        columns.append(schemas.ColSpec("string", roles.groups))
    outputs = [schemas.ColSpec("double", name) for name in _NUMBERS]
    outputs += [schemas.ColSpec("long", name) for name in _COUNTS]
    params = [schemas.ParamSpec(name, types.DataType.double, value) for name, value in _PARAMS.items()]
    inputs = types.Schema(columns)
    return _mlflow("mlflow.models").ModelSignature(inputs, types.Schema(outputs), schemas.ParamSchema(params))


def _roles(folder: Path) -> Roles:
    """The roles of columns; a model that was saved in Python calls its exposure and its upper bound so."""
    try:
        return roles_of_model(folder)
    except InputError as error:
        if "was fitted with" not in str(error):
            raise
        return roles_of_model(folder, exposure="exposure", upper="upper_bound")


def _loaded(folder: Path) -> ModelFolder:
    roles = _roles(folder)
    return load(folder, mixed_only=True, exposure=roles.exposure, upper=roles.upper)


class Served:
    """A model as MLflow calls it: predicts data frames.

    Parameters
    ----------
    folder : ModelFolder
        The loaded model.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder

    def predict(self, frame: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predict every row, as `ddpn predict` does.

        Parameters
        ----------
        frame : pandas DataFrame
            Rows with the columns of the model; a column of features that it does not have is missing in all rows.
        params : mapping, optional
            `coverage` of the interval from lower to upper.

        Returns
        -------
        pandas DataFrame
            mean, aleatoric, epistemic and stddev, and the counts median, mode, lower and upper.
        """
        from ddpn.workflow.prediction import predict

        wanted = {name: (params or {}).get(name, value) for name, value in _PARAMS.items()}
        absent = {each.name: None for each in self.folder.roles.used if each.name not in frame.columns}
        table = polars().from_pandas(frame.assign(**absent))
        found = predict(self.folder, table, Request(**wanted))
        return found.select(*_NUMBERS, *_COUNTS).to_pandas()


def _load_pyfunc(data_path: str) -> Served:
    """What MLflow calls to load a model."""
    return Served(_loaded(Path(data_path)))
