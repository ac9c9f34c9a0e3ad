"""Hostile ONNX files, tables and requests: read, or refused in one sentence."""

import gzip
import io
import json
import warnings
from pathlib import Path
from typing import Any

import polars as pl
from benchmarks.prove.fuzz_models import fuzzing, verdict
from benchmarks.prove.hostile import STRANGE, changed_document, damaged, dumped
from benchmarks.prove.proof import COLUMNS, Place, Result, ddpn, environment, table
from benchmarks.prove.sandbox import Watch, sandboxed
from hypothesis import given
from hypothesis import strategies as st


def onnx_files(watch: Watch, file: str, cases: int, number: int) -> None:
    """What `ddpn show` does with a file that ends with .onnx."""
    import onnx

    from ddpn.cli.export import show_onnx
    from ddpn.export.description import ENTRY

    content, target = Path(file).read_bytes(), watch.folder / "hostile.onnx"
    model = onnx.load_model_from_string(content)
    about = json.loads(next(entry.value for entry in model.metadata_props if entry.key == ENTRY))
    show_onnx(Path(file), False)
    watch.limit()

    @fuzzing(number, cases)
    @given(data=st.data())
    def run(data: Any) -> None:
        if data.draw(st.booleans()):
            target.write_bytes(data.draw(damaged(content)))
        else:
            small = onnx.ModelProto()
            onnx.helper.set_model_props(small, {ENTRY: dumped(data.draw(changed_document(about))).decode()})
            target.write_bytes(small.SerializeToString())
        as_json = data.draw(st.booleans())
        watch.case("ONNX file", lambda: show_onnx(target, as_json))

    run()


def table_files(watch: Watch, cases: int, number: int) -> None:
    """Files of every ending, damaged or of another type than their ending says."""
    from ddpn.tables.reading import read

    frame = table(40)
    frame = frame.with_columns(pl.Series("when", ["2024-02-03"] * 40), pl.Series("text", ['a "b", c\n;'] * 40))
    contents = written(frame)
    for name, content in contents.items():
        (watch.folder / f"t.{name}").write_bytes(content)
        read(str(watch.folder / f"t.{name}"))
    watch.limit()

    @fuzzing(number, cases)
    @given(data=st.data())
    def run(data: Any) -> None:
        ending = data.draw(st.sampled_from(sorted(contents)))
        kind = ending if data.draw(st.integers(0, 4)) else data.draw(st.sampled_from(sorted(contents)))
        target = watch.folder / f"hostile.{ending}"
        target.write_bytes(data.draw(damaged(contents[kind])))
        watch.case(f"table {ending}", lambda: read(str(target)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()


def written(frame: pl.DataFrame) -> dict[str, bytes]:
    """A table in the formats that can be read."""
    found = {"csv": frame.write_csv().encode(), "tsv": frame.write_csv(separator="\t").encode()}
    found["jsonl"] = frame.write_ndjson().encode()
    found["csv.gz"] = gzip.compress(found["csv"])
    for name, write in (("parquet", frame.write_parquet), ("feather", frame.write_ipc)):
        out = io.BytesIO()
        write(out)
        found[name] = out.getvalue()
    return found


def requests(watch: Watch, model: str, cases: int, number: int) -> None:
    """Bodies of requests, from bytes to rows."""
    from starlette.testclient import TestClient

    from ddpn.serving import create_app
    from ddpn.serving.problems import RequestError

    row = dict(zip(COLUMNS, (50.0, "A"), strict=True))
    good = {"rows": [row], "coverage": 0.8, "quantiles": [0.1], "pmf": 3, "outputs": ["mean", "lower", "distribution"]}
    client = TestClient(create_app({"m": Path(model)}, reload_every=0.0))

    def answered(body: bytes) -> None:
        response = client.post("/predict", content=body, headers={"content-type": "application/json"})
        if response.status_code >= 500:
            raise RuntimeError(f"status {response.status_code}")
        if response.status_code != 200:
            raise RequestError(response.json()["message"], response.status_code)

    @fuzzing(number, cases)
    @given(data=st.data())
    def run(data: Any) -> None:
        how = data.draw(st.sampled_from(["bytes", "document", "cell"]))
        if how == "bytes":
            body = data.draw(damaged(json.dumps(good).encode()))
        elif how == "document":
            body = dumped(data.draw(changed_document(good)))
        else:
            cell = data.draw(STRANGE | st.floats() | st.integers() | st.text())
            body = json.dumps({**good, "rows": [{**row, data.draw(st.sampled_from(COLUMNS)): cell}]}).encode()
        watch.case(f"request {how}", lambda: answered(body))

    with client:
        answered(json.dumps(good).encode())
        watch.limit()
        run()


# Proofs ------------------------------------------------------------------------------------------------------------


def prove_onnx(place: Place) -> Result:
    """The reader of ONNX files."""
    import subprocess

    file = place.folder / "visits.onnx"
    if not file.exists():
        command = ddpn("export", place.model, "-o", file)
        subprocess.run(command, check=True, capture_output=True, env=environment())
    options = {"file": str(file), "cases": place.times(1000, 20), "number": place.seed}
    return verdict(sandboxed("benchmarks.prove.fuzz_readers:onnx_files", **options), "ONNX files")


def prove_tables(place: Place) -> Result:
    """The reader of tables."""
    options = {"cases": place.times(3000, 30), "number": place.seed}
    return verdict(sandboxed("benchmarks.prove.fuzz_readers:table_files", **options), "tables")


def prove_requests(place: Place) -> Result:
    """The parser of requests."""
    options = {"model": str(place.model), "cases": place.times(2000, 30), "number": place.seed}
    return verdict(sandboxed("benchmarks.prove.fuzz_readers:requests", **options), "requests")
