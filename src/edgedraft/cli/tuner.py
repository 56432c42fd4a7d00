"""`edgedraft tuner`: what was learnt of thresholds for each draft, target and link, and how to forget it."""

from __future__ import annotations

import typer

from edgedraft.cli import options
from edgedraft.cli.render import out_console, print_json, print_table, table
from edgedraft.config import read_environment
from edgedraft.edge.tuner_store import TunerStore
from edgedraft.tune.tuner_file import TunerRecord

app = typer.Typer(
    help="Show or reset the thresholds that strategy pipesd has tuned.",
    no_args_is_help=True,
    epilog=options.examples("edgedraft tuner show", "edgedraft tuner reset"),
)


def _store() -> TunerStore:
    return TunerStore(read_environment().cache_dir)


def _as_dict(record: TunerRecord) -> dict[str, object]:
    return {
        "draft": record.key.draft,
        "target": record.key.target,
        "link": record.key.link,
        "token_threshold": record.thresholds.token,
        "sequence_threshold": record.thresholds.sequence,
        "num_trials": record.num_trials,
    }


@app.command(epilog=options.examples("edgedraft tuner show", "edgedraft tuner show --json"))
def show(as_json: options.Json = False) -> None:
    """Show the thresholds that are kept, by draft, target and link."""
    records = _store().all()
    if as_json:
        print_json({"tuned": [_as_dict(record) for record in records]})
    elif records:
        columns = ("draft", "target", "link", "token threshold", "sequence threshold", "trials")
        rows = [
            (
                record.key.draft,
                record.key.target,
                record.key.link,
                f"{record.thresholds.token:.3f}",
                f"{record.thresholds.sequence:.3f}",
                str(record.num_trials),
            )
            for record in records
        ]
        print_table(table("Tuned thresholds", columns, rows))
    else:
        out_console().print("Nothing is kept: strategy pipesd tunes while it decodes, some 320 tokens long.")


@app.command(epilog=options.examples("edgedraft tuner reset", "edgedraft tuner reset --json"))
def reset(as_json: options.Json = False) -> None:
    """Forget all thresholds that are kept; they are tuned anew while decoding."""
    num_forgotten = _store().forget_all()
    if as_json:
        print_json({"num_forgotten": num_forgotten})
    else:
        out_console().print(f"{num_forgotten} forgotten.")
