"""The OpenAPI document: generated requests are answered as it says, and no client can cause an error of the server."""

import copy
import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ddpn.serving.options import Limits, wanted_of
from ddpn.serving.parsing import EXPLAIN_FIELDS, PREDICT_FIELDS, parse
from ddpn.serving.problems import RequestError

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
#: Without shrinking, which takes minutes where a test fails.
QUICK = settings(
    max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


def described(app, mode):
    """The document as schemathesis reads it, without long lists of rows."""
    document = copy.deepcopy(app.service.openapi_document())
    if mode == GenerationMode.POSITIVE:  # most larger exposures only lead to predictions that are too large
        document["components"]["schemas"]["Row_patients"]["properties"]["days"] |= {"maximum": 1000.0}
    for path, known in list(document["paths"].items()):
        if path.startswith("/models/again"):
            del document["paths"][path]  # the same as those of the other model
        for content in known.get("post", {}).get("requestBody", {}).get("content", {}).values():
            for body in content["schema"].get("anyOf", [content["schema"]]):
                body["properties"]["rows"]["maxItems"] = 2
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_generated_requests_are_answered_as_documented(app, client, mode):
    methods = []
    for found in described(app, mode).get_all_operations():
        operation = found.ok()
        if operation.method.upper() == "GET" and mode == GenerationMode.NEGATIVE:
            continue  # it has nothing that could be wrong
        methods.append(operation.method)

        @QUICK
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            answer_is_documented(case, client, mode)

        check()
    assert len(methods) >= 4


def answer_is_documented(case, client, mode) -> None:
    is_post = case.method.upper() == "POST"
    content = json.dumps(case.body, default=str) if is_post else None
    headers = {"content-type": "application/json"} if is_post else {}
    response = client.request(case.method, case.formatted_path, content=content, headers=headers)
    answer = schemathesis.Response.from_any(response)
    case.validate_response(answer, checks=CHECKS)
    if mode == GenerationMode.POSITIVE and is_post and response.status_code == 422:
        # Right by the document, but too large for the model: that is all that such a row can be refused for.
        assert "too large" in response.json()["message"]
    if mode == GenerationMode.NEGATIVE and is_post:
        assert 400 <= response.status_code < 500, content


def refusal_of(call) -> RequestError | None:
    """The error by which a request is refused, if it is."""
    try:
        call()
    except RequestError as error:
        return error
    return None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from([*PREDICT_FIELDS, *EXPLAIN_FIELDS]) | st.text(max_size=5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(document=st.dictionaries(names, values, max_size=5), raw=st.binary(max_size=60), cut=st.integers(0, 200))
def test_any_body_is_parsed_or_refused(document, raw, cut):
    for body in (raw, json.dumps(document).encode(), json.dumps(document).encode()[:cut] + raw):
        error = refusal_of(lambda body=body: wanted_of(parse(body, PREDICT_FIELDS, Limits())))
        assert error is None or error.status == 422
        json.dumps(error and error.document(), allow_nan=False).encode()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    cells=st.dictionaries(
        st.sampled_from(["severity", "ward", "zip", "smokes", "age", "admitted", "days", "x"]), values
    )
)
def test_any_row_is_read_or_refused(cells, app, row):
    model = app.service.catalogue.find()
    error = refusal_of(lambda: model.reader.read([{**row, **cells}]))
    if error is None:
        assert model.reader.inputs([model.reader.read([{**row, **cells}])]).table.shape == (1, 8)
    else:
        assert {problem.column for problem in error.problems} <= set(cells)
