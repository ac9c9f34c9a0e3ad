"""The OpenAPI document of a server, with the columns of its models."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ddpn.serving.model import ServedModel
from ddpn.serving.options import MOST_COUNTS, MOST_QUANTILES, OUTPUTS, Limits
from ddpn.serving.served_columns import row_schema

_NUMBERS = ("mean", "aleatoric", "epistemic", "stddev", "ood_pvalue")
_COUNTS = ("median", "mode", "lower", "upper")
_PROBLEMS = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "message": {"type": "string"},
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["message"],
                "properties": {
                    "message": {"type": "string"},
                    "row": {"type": "integer", "description": "Position in rows, from 0."},
                    "column": {"type": "string"},
                },
            },
        },
    },
}
_REFUSALS = {
    "401": "The bearer token is missing or wrong.",
    "404": "The model is unknown.",
    "405": "The path has another method.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body does not say that it is JSON.",
    "422": "The request or a row is invalid; the answer names rows and columns.",
    "429": "Too many requests are waiting.",
    "503": "The answer took too long, or the server is stopping.",
}


def document(models: Sequence[ServedModel], limits: Limits) -> dict[str, Any]:
    """The document, for OpenAPI 3.1.

    Parameters
    ----------
    models : sequence of ServedModel
        The models, the default first.
    limits : Limits
        Those of the server.
    """
    default, paths = models[0], {}
    paths["/predict"] = {"post": _predict(default, models, limits)}
    paths["/explain"] = {"post": _explain(default, models, limits)}
    for model in models:
        at = f"/models/{model.name}"
        paths[at] = {"get": _read(f"The card of {model.name}", "Card")}
        paths[f"{at}/predict"] = {"post": _predict(model, [model], limits)}
        paths[f"{at}/explain"] = {"post": _explain(model, [model], limits)}
    for path, words in {"/model": "The card of the default model", "/models": "All models"}.items():
        paths[path] = {"get": _read(words, "Card" if path == "/model" else "Models")}
    for path, words in {"/livez": "Whether the process answers", "/readyz": "Whether it predicts"}.items():
        paths[path] = {"get": _read(words, "Status")}
    paths["/metrics"] = {
        "get": {"summary": "Metrics for Prometheus", "responses": {"200": _text(), **_refused("401", "503")}}
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Count predictions by ddpn", "version": version("ddpn"), "description": _about(models)},
        "paths": paths,
        "components": {"schemas": _schemas(models), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _about(models: Sequence[ServedModel]) -> str:
    known = (
        f"{model.name} (predicts {model.folder.roles.target or 'counts'}, version {model.version})" for model in models
    )
    return f"Models: {', '.join(known)}. Rows are objects with a value per column; null is a missing value."


def _row(model: ServedModel) -> str:
    return f"Row_{model.name}"


def _schemas(models: Sequence[ServedModel]) -> dict[str, Any]:
    anything = {"type": "object"}
    return {
        "Problems": _PROBLEMS,
        "Card": {"type": "object", "required": ["name", "version", "columns", "example"]},
        "Models": {
            "type": "object",
            "required": ["models"],
            "properties": {"models": {"type": "array", "items": anything}},
        },
        "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}},
        "Predictions": _predictions(),
        "Explanations": {
            "type": "object",
            "required": ["model", "version", "quantity", "rows"],
            "properties": {
                "rows": {"type": "array", "items": anything},
                "curves": {"type": "array", "items": anything},
            },
        },
        **{_row(model): {**row_schema(model.columns), "example": model.example} for model in models},
    }


def _predictions() -> dict[str, Any]:
    numbers = {name: {"type": "number"} for name in _NUMBERS}
    counts = {name: {"type": "integer", "minimum": 0} for name in _COUNTS}
    lists = {
        "ood": {"type": "boolean"},
        "ood_reasons": {"type": "array", "items": {"type": "string"}},
        "pmf": {"type": "array", "items": {"type": "number", "minimum": 0}},
        "distribution": {"type": "object"},
        "members": {"type": "array", "items": {"type": "object"}},
    }
    row = {"type": "object", "properties": {**numbers, **counts, **lists}}
    about = {"model": {"type": "string"}, "version": {"type": "string"}, "coverage": {"type": "number"}}
    return {
        "type": "object",
        "required": [*about, "predictions"],
        "properties": {**about, "predictions": {"type": "array", "items": row}},
    }


def _predict(model: ServedModel, models: Sequence[ServedModel], limits: Limits) -> dict[str, Any]:
    level = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    fields = {
        "outputs": {
            "type": "array", "items": {"enum": list(OUTPUTS)}, "minItems": 1, "maxItems": 100,
            "description": "What to predict; default: all but the last three.",
        },
        "coverage": {**level, "default": 0.9, "description": "Coverage of the interval from lower to upper."},
        "quantiles": {"type": "array", "items": level, "maxItems": MOST_QUANTILES, "description": "q0.1 for 0.1."},
        "pmf": {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_COUNTS, "description": "P(0) to P(pmf)."},
    }  # fmt: skip
    return _post(f"Predict rows with {model.name}", model, models, limits.max_rows, fields, "Predictions")


def _explain(model: ServedModel, models: Sequence[ServedModel], limits: Limits) -> dict[str, Any]:
    fields = {
        "of": {"enum": ["mean", "spread"], "default": "mean"},
        "curves": {"type": "boolean", "description": "Predict the first row with other values of each column, too."},
    }
    return _post(f"Explain rows by {model.name}", model, models, limits.explain_rows, fields, "Explanations")


def _post(
    summary: str, model: ServedModel, models: Sequence[ServedModel], most: int, fields: dict[str, Any], answer: str
) -> dict[str, Any]:
    def body(of: ServedModel, is_named: bool) -> dict[str, Any]:
        rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{_row(of)}"}, "minItems": 1, "maxItems": most}
        required = ["rows", *(["model"] if is_named else [])]
        properties = {"rows": rows, "model": {"const": of.name}, **fields}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    bodies = [body(model, False), *(body(other, True) for other in models[1:])]
    schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
    example = {"rows": [model.example]}
    content = {"application/json": {"schema": schema, "example": example}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": _answer(answer), **_refused(*_REFUSALS)},
    }


def _read(summary: str, schema: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _answer(schema), **_refused("401", "404", "405", "503")}}


def _answer(schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": "The answer.", "content": content}


def _text() -> dict[str, Any]:
    return {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}


def _refused(*statuses: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problems"}}}
    return {status: {"description": _REFUSALS[status], "content": content} for status in statuses}
