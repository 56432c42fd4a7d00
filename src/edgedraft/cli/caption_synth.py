"""`edgedraft caption synth`: speech that is spoken here, with reference captions, to calibrate and to measure with."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from edgedraft.cli import options
from edgedraft.cli.render import err_console, out_console, print_json
from edgedraft.errors import InvalidRequestError

DEFAULT_NUM = 20


class Split(enum.StrEnum):
    """Speakers and sentences of the three have nothing in common. The shipped models have heard those of train."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where the clips go, a dataset of its own; made if need be.")
]
SplitName = Annotated[
    Split, typer.Option("--split", help="Whose voices and sentences; train is what models learnt from.")
]
Num = Annotated[int, typer.Option("--num", metavar="N", min=1, help="Clips a language.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same clips.")]


def synth(
    out: Out, split: SplitName = Split.DEV, num: Num = DEFAULT_NUM, seed: Seed = 0, as_json: options.Json = False
) -> None:
    """Make a dataset of synthetic speech: wav files and captions.jsonl, with how each voice was made to sound.

    Needs the package espeakng_loader, which brings the synthesiser.
    """
    from edgedraft.caption.synthetic import make_clips

    if not as_json:
        err_console().print(f"speaking {num} clips a language ...")
    try:
        listing = make_clips(out, split.value, num, seed)
    except OSError as error:
        raise InvalidRequestError(
            f"out '{out}' cannot be written: {error.strerror}.", field="out", remedy="Name another directory."
        ) from None
    if as_json:
        print_json({"captions": str(listing), "split": split.value, "num_per_language": num, "seed": seed})
    else:
        out_console().print(f"{listing}")


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft caption synth --out dev --split dev --num 50",
            "edgedraft caption synth --out test --split test --num 300 --seed 1",
        )
    )(synth)
