"""Run the proofs under faults, and write a table of results.

    python -m benchmarks.prove                     all of it; `make prove`
    python -m benchmarks.prove --only kill-fit     one of them
    python -m benchmarks.prove --share 0.1         a tenth of the trials

Results are stored as they come: a run that was stopped continues where it was, as long as the source, the seed and the
share of trials are the same. `--fresh` begins again.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.prove import page
from benchmarks.prove.catalogue import PROOFS
from benchmarks.prove.proof import ROOT, Place, Result

from ddpn.storage.files import write_text


def source() -> str:
    """A digest of the package: results of other code are not continued."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def stored(path: Path, about: dict[str, Any], fresh: bool) -> dict[str, Any]:
    """The results so far."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    same = all(known.get("about", {}).get(name) == about[name] for name in ("source", "seed", "share"))
    return known if same and not fresh else {"about": about, "proofs": {}}


def proved(proof: Any, place: Place) -> dict[str, Any]:
    """Run one proof; an error in it is a proof that failed."""
    start = time.monotonic()
    try:
        result = proof.run(place)
    except Exception as error:  # whatever goes wrong belongs into the table
        result = Result(False, "not finished", f"{type(error).__name__}: {error}")
    return {**result._asdict(), "seconds": time.monotonic() - start}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[proof.name for proof in PROOFS], help="this proof only")
    parser.add_argument("--share", type=float, default=1.0, help="the part of all trials")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="do not continue an earlier run")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "reliability.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "reliability.md")
    return parser


def main() -> None:
    args = arguments().parse_args()
    about: dict[str, Any] = {"source": source(), "seed": args.seed, "share": args.share}
    cores = len(os.sched_getaffinity(0))
    about["machine"] = f"{cores} cores ({platform.machine()}), Python {platform.python_version()}"
    results = stored(args.out, about, args.fresh)
    wanted = [proof for proof in PROOFS if not args.only or proof.name in args.only]
    folder = Path(tempfile.mkdtemp(prefix="ddpn-prove-"))
    try:
        for number, proof in enumerate(wanted, 1):
            if proof.name in results["proofs"] and not args.only:
                continue
            print(f"[{number}/{len(wanted)}] {proof.name}: {proof.claim}", flush=True)
            place = Place(folder, args.share, args.seed, lambda words: print(f"    {words}", flush=True))
            found = results["proofs"][proof.name] = proved(proof, place)
            held = {True: "held", False: "DID NOT HOLD", None: "not tried"}[found["held"]]
            print(f"    {held}, {found['tried']}, {found['seconds']:.0f} s: {found['found'][:300]}", flush=True)
            results["about"] |= {"load": os.getloadavg()[0], "date": datetime.now(UTC).date().isoformat()}
            write_text(args.out, json.dumps(results, indent=1) + "\n")
            page.write(args.page, results, PROOFS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    held = [each["held"] for each in results["proofs"].values()]
    print(f"{held.count(True)} of {len(PROOFS)} proofs held, {held.count(False)} did not. See {args.page}.")
    sys.exit(False in held)


if __name__ == "__main__":
    main()
