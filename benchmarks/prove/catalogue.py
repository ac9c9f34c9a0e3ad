"""All proofs, in the order in which they run."""

from benchmarks.prove import disks, fuzz_api, fuzz_models, fuzz_readers, kills, load, security, servers, soundness
from benchmarks.prove.proof import Proof

_AGAIN = "the same command finishes with the same result; nothing partial, nothing left behind"
_ONE = "read, or refused in one sentence: no crash, no hang, no write outside, memory bounded"
PROOFS = (
    Proof("truths", "Truth", "what was simulated is found again, and noise looks like noise", soundness.prove_truths),
    Proof(
        "attacks",
        "Security",
        "tricks with model folders are refused: no code, no file outside",
        fuzz_models.prove_attacks,
    ),
    Proof("packages", "Security", "no package of constraints.txt has a known vulnerability", security.prove_packages),
    Proof("folders", "Fuzz", f"damaged and hand-made model folders are {_ONE}", fuzz_models.prove_folders),
    Proof("onnx", "Fuzz", f"ONNX files are {_ONE}", fuzz_readers.prove_onnx),
    Proof("tables", "Fuzz", f"tables are {_ONE}", fuzz_readers.prove_tables),
    Proof("requests", "Fuzz", f"bodies of requests are {_ONE}", fuzz_readers.prove_requests),
    Proof("api", "Fuzz", "generated requests are answered as the OpenAPI document says", fuzz_api.prove_api),
    Proof("kill-fit", "Faults", f"kill -9 during `ddpn fit`: {_AGAIN}", kills.kill("fit")),
    Proof("kill-predict", "Faults", f"kill -9 during `ddpn predict`: {_AGAIN}", kills.kill("predict")),
    Proof("kill-export", "Faults", f"kill -9 during `ddpn export`: {_AGAIN}", kills.kill("export")),
    Proof("kill-reload", "Faults", "kill -9 of a server that reloads, or of the writer", servers.prove_reload),
    Proof(
        "replace", "Faults", "a model is replaced while the server loads it: no failed request", servers.prove_replacing
    ),
    Proof("sigterm", "Faults", "SIGTERM while requests wait: they are answered", servers.prove_sigterm),
    Proof("disk", "Faults", "the disk fills up: old results survive, one sentence says why", disks.prove_full_disk),
    Proof("writers", "Faults", "two fits into one folder: one wins whole, one gets an error", disks.prove_two_writers),
    Proof("clock", "Faults", "the clock jumps: budgets and unfinished work are unaffected", disks.prove_clock),
    Proof("load", "Load", "64 connections: no error, flat memory; malformed bodies get 4xx", load.prove_load),
    Proof("bare", "Load", "faster than a bare FastAPI app around the same model", load.prove_bare),
)
