"""Requests that schemathesis generates from the OpenAPI document: answered as documented, never with a 5xx."""

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.prove.fuzz_models import fuzzing
from benchmarks.prove.proof import Place, Result
from hypothesis import given


def described(app: Any) -> Any:
    """The document as schemathesis reads it, without long lists of rows."""
    import schemathesis

    document = copy.deepcopy(app.app.openapi())
    for name, schema in document["components"]["schemas"].items():
        if name.startswith(("Predict_", "Explain_")):
            schema["properties"]["rows"]["maxItems"] = 2
    return schemathesis.openapi.from_dict(document)


def answered(case: Any, client: Any, seen: Counter[int]) -> None:
    """Send one generated request, and compare the answer with the document."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    is_post = case.method.upper() == "POST"
    content = json.dumps(case.body, default=str) if is_post else None
    headers = {"content-type": "application/json"} if is_post else {}
    response = client.request(case.method, case.formatted_path, content=content, headers=headers)
    seen[response.status_code] += 1
    wanted = [not_a_server_error, checks.status_code_conformance, checks.content_type_conformance]
    wanted.append(checks.response_schema_conformance)
    case.validate_response(schemathesis.Response.from_any(response), checks=wanted)


def generated(model: Path, cases: int, seed: int) -> tuple[Counter[int], list[str]]:
    """Right and wrong requests to every operation: the number of answers by status, and what was wrong."""
    from schemathesis import GenerationMode
    from starlette.testclient import TestClient

    from ddpn.serving import create_app

    app, seen, wrong = create_app({"m": model}, reload_every=0.0), Counter[int](), []
    with TestClient(app, raise_server_exceptions=False) as client:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for found in described(app).get_all_operations():
                operation = found.ok()
                if operation.method.upper() == "GET" and mode == GenerationMode.NEGATIVE:
                    continue  # it has nothing that could be wrong
                own = cases if operation.method.upper() == "POST" else 1

                @fuzzing(seed, own)
                @given(case=operation.as_strategy(generation_mode=mode))
                def run(case: Any) -> None:
                    answered(case, client, seen)

                try:
                    run()
                except Exception as error:  # every kind of failure that schemathesis and hypothesis have
                    wrong.append(f"{operation.method} {operation.path}: {str(error)[:400]}")
    return seen, wrong


def prove_api(place: Place) -> Result:
    """Requests by the document, and against it."""
    seen, wrong = generated(place.model, place.times(80, 3), place.seed)
    statuses = ", ".join(f"{number:,} of status {status}" for status, number in sorted(seen.items()))
    return Result(not wrong, f"{sum(seen.values()):,} requests", wrong[0] if wrong else statuses, {"wrong": wrong})
