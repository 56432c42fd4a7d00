"""`edgedraft models`: which model files are here, fetch one, make one smaller."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from edgedraft.backends.model_store import StoredModel, list_models, pull, quantize
from edgedraft.cli import options
from edgedraft.cli.render import err_console, out_console, print_json, print_table, progress_bar, table

Progress = Callable[[int, int], None]

app = typer.Typer(
    help="List, fetch and requantise model files.",
    no_args_is_help=True,
    epilog=options.examples("edgedraft models list", "edgedraft models pull demo:target"),
)


def _shipped_models() -> list[StoredModel]:
    """The captioners that come with the package."""
    from edgedraft.backends.captioner import SHIPPED, CaptionerFamily

    paths = {f"captioner:{role}": CaptionerFamily().path(role) for role in SHIPPED}
    return [StoredModel(spec, path, path.stat().st_size, "float16") for spec, path in paths.items()]


def _row(model: StoredModel) -> tuple[str, str, str, str]:
    size = "-" if model.path is None else f"{model.size_bytes / 1e6:.1f}"
    return model.spec, model.quantisation, size, "made at first use" if model.path is None else str(model.path)


def _as_dict(model: StoredModel, *, is_shipped: bool) -> dict[str, object]:
    return {
        "spec": model.spec,
        "path": None if model.path is None else str(model.path),
        "size_bytes": model.size_bytes,
        "quantisation": model.quantisation,
        "is_shipped": is_shipped,
    }


@contextlib.contextmanager
def _progress(what: str, *, as_json: bool, in_bytes: bool) -> Iterator[Progress]:
    """Shows how far `what` is: a bar on a terminal, one line elsewhere, nothing with --json."""
    if as_json:
        yield lambda done, total: None
        return
    bar = progress_bar(in_bytes=in_bytes)
    if bar.disable:
        err_console().print(f"{what} ...")
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


@app.command("list", epilog=options.examples("edgedraft models list", "edgedraft models list --json"))
def list_command(as_json: options.Json = False) -> None:
    """List the models that are on this machine, by the spec that names each."""
    stored, shipped = list_models(), _shipped_models()
    if as_json:
        told = [_as_dict(model, is_shipped=False) for model in stored]
        print_json({"models": told + [_as_dict(model, is_shipped=True) for model in shipped]})
        return
    rows = [*map(_row, stored), *((*_row(model)[:-1], "shipped with edgedraft") for model in shipped)]
    print_table(table("Models on this machine", ("spec", "quantisation", "MB", "file"), rows))
    if not stored:
        err_console().print("no models of text here; fetch one with: edgedraft models pull hub:ORG/NAME/FILE.gguf")


@app.command(
    "pull",
    epilog=options.examples("edgedraft models pull demo:target", "edgedraft models pull hub:ORG/NAME/FILE.gguf --json"),
)
def pull_command(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="hub:ORG/NAME/FILE.gguf, demo:target or demo:draft.")],
    as_json: options.Json = False,
) -> None:
    """Fetch a model from the hub, or make a demo model, and print where it is."""
    with _progress(f"fetching {spec}", as_json=as_json, in_bytes=spec.startswith("hub:")) as progress:
        path = pull(spec, progress=progress)
    _say_made(spec, path, as_json=as_json)


@app.command(
    "quantize",
    epilog=options.examples(
        "edgedraft models quantize model-f16.gguf model-q8.gguf --type Q8_0",
        "edgedraft models quantize model-f16.gguf model-q4.gguf --type Q4_0 --overwrite",
    ),
)
def quantize_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="GGUF file to read.", show_default=False)],
    destination: Annotated[Path, typer.Argument(metavar="DESTINATION", help="File to write.", show_default=False)],
    quantisation: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Q8_0 and Q4_0 give bit-identical verification.")
    ] = "Q8_0",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DESTINATION where it exists.")] = False,
    as_json: options.Json = False,
) -> None:
    """Requantise a GGUF file: the cheap way to a draft model with the target's own vocabulary."""
    with _progress(f"requantising to {quantisation}", as_json=as_json, in_bytes=False) as progress:
        quantize(source, destination, quantisation, progress=progress, overwrite=overwrite)
    _say_made(f"llamacpp:{destination}", destination, as_json=as_json)


def _say_made(spec: str, path: Path, *, as_json: bool) -> None:
    size_bytes = path.stat().st_size
    if as_json:
        print_json({"spec": spec, "path": str(path), "size_bytes": size_bytes})
    else:
        out_console().print(f"{path} ({size_bytes / 1e6:.1f} MB)")
