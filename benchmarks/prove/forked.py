"""A process that has imported everything and forks one process per command: commands then start at once.

    python -m benchmarks.prove.forked

Reads a JSON line per job: the folder, the words of the command, a file for what it prints and, optionally, the number
of the file operation before which the process kills itself. Answers with two lines: the id of the process, and its exit
status with the number of file operations.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

#: Operations of Python that change files.
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def watch(folder: str, last: int | None, count: Path) -> None:
    """Count the operations that change files in a folder; kill this process before the last one."""
    done = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        changes = event in _CHANGES or (event == "open" and bool((args[2] or 0) & _WRITING))
        if not changes or not str(args[0]).startswith(folder) or str(args[0]) == str(count):
            return
        done += 1
        count.write_text(str(done))
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def work(job: dict[str, Any], count: Path) -> None:
    """Run one command of `ddpn` in this process, and end it."""
    os.setsid()
    os.chdir(job["folder"])
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(log, number)
    sys.argv = ["ddpn", *job["words"]]
    watch(job["folder"], job.get("last"), count)
    code: Any = 1
    try:
        from ddpn.cli import app

        app()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    import ddpn.cli.program
    import ddpn.export
    import ddpn.workflow.fitting
    import ddpn.workflow.streaming  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        count = Path(f"{job['log']}.count")
        count.write_text("0")
        process = os.fork()
        if not process:
            work(job, count)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), int(count.read_text() or 0)]), flush=True)


if __name__ == "__main__":
    main()
