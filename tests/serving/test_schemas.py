"""Test that generated requests are answered as the OpenAPI document says, and that none causes a server error."""

import copy
import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
#: Few requests to each operation in every run of the tests, and many as a proof.
PROOF = pytest.mark.proof("Fuzz", "generated requests are answered as the OpenAPI document says")
REQUESTS = [3, pytest.param(80, marks=[pytest.mark.slow, PROOF])]


def get_first_model(app):
    """Return the first model of a server."""
    return next(iter(app.app.models.values()))


def load_document(app, mode):
    """Load the document as schemathesis reads it, without long lists of rows."""
    document = copy.deepcopy(app.app.api.openapi())
    schemas = document["components"]["schemas"]
    if mode == GenerationMode.POSITIVE:  # most larger exposures only lead to predictions that are too large
        for name in ("patients", "again"):
            schemas[f"Row_{name}"]["properties"]["days"] |= {"maximum": 1000.0}
    for path in list(document["paths"]):
        if path.startswith("/models/"):
            del document["paths"][path]  # the same as those of the default model
    for name, schema in schemas.items():
        if name.startswith("Predict_"):
            schema["properties"]["rows"]["maxItems"] = 2
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("requests", REQUESTS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_generated_requests_are_answered_as_documented(app, client, mode, requests, record_proof):
    # Without shrinking, which takes minutes where a test fails.
    options = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate], "derandomize": True}
    methods = []
    for result in load_document(app, mode).get_all_operations():
        operation = result.ok()
        if operation.method.upper() == "GET" and mode == GenerationMode.NEGATIVE:
            continue  # it has nothing that could be wrong
        methods.append(operation.method)

        @settings(max_examples=requests, deadline=None, **options)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            check_answer(case, client, mode)

        check()
    assert methods.count("post") == 1
    record_proof(
        f"{requests} requests to each of {len(methods)} operations", f"all {mode.value} ones answered as described"
    )


def check_answer(case, client, mode) -> None:
    is_post = case.method.upper() == "POST"
    content = json.dumps(case.body, default=str) if is_post else None
    headers = {"content-type": "application/json"} if is_post else {}
    response = client.request(case.method, case.formatted_path, content=content, headers=headers)
    answer = schemathesis.Response.from_any(response)
    case.validate_response(answer, checks=CHECKS)
    if mode == GenerationMode.POSITIVE and is_post and response.status_code == 422:
        # A row that fits the document can only be refused because its prediction is too large.
        assert "below 2^52" in response.json()["message"]
    if mode == GenerationMode.NEGATIVE and is_post:
        assert 400 <= response.status_code < 500, content


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def validate_row(kind, row):
    """Return a valid row, or the columns that are wrong."""
    try:
        return kind.model_validate(row), set()
    except ValidationError as error:
        return None, {problem["loc"][0] for problem in error.errors()}


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    cells=st.dictionaries(
        st.sampled_from(["severity", "ward", "zip", "smokes", "age", "admitted", "days", "x"]), values
    )
)
def test_any_row_is_read_or_refused(cells, app, row):
    model = get_first_model(app)
    valid, wrong = validate_row(model.Row, {**row, **cells})
    assert wrong <= set(cells)
    assert valid is None or model.parse_rows([valid]).X.shape == (1, 8)
