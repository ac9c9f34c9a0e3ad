"""The command line: arguments only. What a command needs is imported when it runs, so that --help is there at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddpn.errors import ConfigError, DDPNError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Count regression with Deep Double Poisson Networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Data sets: which there are, and getting them.", no_args_is_help=True)
app.add_typer(data, name="data")

#: As shells have it: misuse, and 128 + SIGINT.
MISUSE, INTERRUPTED = 2, 130


@contextmanager
def _told(how_to_go_on: str) -> Iterator[None]:
    """Errors as one sentence, without a traceback."""
    try:
        yield
    except DDPNError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(MISUSE if isinstance(error, ConfigError) else 1) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {how_to_go_on}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Experiments, or all of them: all.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show all experiments and what they need.")] = False,
    members: Annotated[int | None, typer.Option(help="Members of an ensemble; 5 as in the paper.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the training, 2 members, a folder of its own.")
    ] = False,
    only: Annotated[str, typer.Option(help="Methods to run, with commas between: ddpn,poisson.")] = "",
    out: Annotated[Path, typer.Option(help="The folder of all results.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="The first member's; the others count on from it.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at once; one a core, or one on a GPU.")] = None,
) -> None:
    """Run experiments of the paper and write their tables and figures.

    What is finished is kept and skipped; what was stopped goes on where it was.
    """
    with _told("What is finished is kept: the same command goes on from here."):
        from rich.console import Console

        from ddpn.experiments.reproduce import Options, listing
        from ddpn.experiments.reproduce import reproduce as run

        if show:
            Console().print(listing())
            return
        methods = tuple(name.strip() for name in only.split(",") if name.strip())
        options = Options(out, members, seed, quick, methods, device, jobs)
        if not run(names or [], options, Console()):
            raise typer.Exit(1)


@data.command("list")
def list_() -> None:
    """Show every data set: its rows, where it is from, its licence, and whether it is here, whole or damaged."""
    with _told("Nothing was changed."):
        from rich.console import Console

        Console().print(_holdings())


@data.command()
def get(name: Annotated[str, typer.Argument(help="A data set of `ddpn data list`.")]) -> None:
    """Download a data set unless it is here, or say where to put it."""
    with _told("The same command goes on with the download."):
        from ddpn.data import DATASETS, obtain
        from ddpn.experiments.settings import known

        known("data sets", [name], DATASETS, "ddpn.data")
        typer.echo(obtain(name))


def _holdings() -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from ddpn.data import data_folder, holdings

    table = Table("name", "rows", "where from", "licence", "state", title=f"Data in {data_folder()}")
    for found in holdings():
        rows = "-" if found.rows is None else f"{found.rows:,}" + (" (sample)" if found.sample else "")
        table.add_row(found.name, rows, found.whence, found.licence, escape(found.state))
    return table


def main() -> None:
    """What the program `ddpn` runs."""
    app()


if __name__ == "__main__":
    main()
