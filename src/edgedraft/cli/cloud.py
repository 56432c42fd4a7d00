"""`edgedraft cloud`: serve a target model to edges."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from edgedraft.backends.base import BackendOptions, TargetBackend
from edgedraft.backends.registry import chat_template, open_target, open_tokenizer
from edgedraft.cli import options
from edgedraft.cli.render import err_console, out_console, print_json
from edgedraft.config import DEFAULT_PORT, CloudConfig, read_environment
from edgedraft.errors import InvalidRequestError
from edgedraft.types import Exactness

ACCESS, LIMITS = "Access", "Limits"
_CONFIG, _BACKEND = CloudConfig(), BackendOptions()


Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="SPEC",
        help=f"Target model: {options.TARGET_FORMS}; for captions of speech {options.CAPTION_TARGET_FORMS}.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to bind.", rich_help_panel=ACCESS)]
Port = Annotated[int, typer.Option("--port", help="Port to bind; 0 takes any free one.", rich_help_panel=ACCESS)]
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        help="Access token that edges must send; may be repeated. Default: EDGEDRAFT_TOKEN.",
        rich_help_panel=ACCESS,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Access tokens, one a line.", rich_help_panel=ACCESS),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM).", rich_help_panel=ACCESS)
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).", rich_help_panel=ACCESS)
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Bind a public address without token and TLS.", rich_help_panel=ACCESS)
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic/--no-deterministic",
        help="Bit-identical text whatever the other sessions do, on one thread; sessions then never share a pass.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="Threads of the engine; default: half of the processors, with --deterministic 1.",
    ),
]
PrefillChunk = Annotated[
    int, typer.Option("--prefill-chunk", metavar="TOKENS", min=1, help="Prompt tokens per target pass.")
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        "--context-length",
        metavar="TOKENS",
        min=1,
        help="Context of a session; default: the model's.",
        rich_help_panel=LIMITS,
    ),
]
MaxSessions = Annotated[
    int, typer.Option("--max-sessions", metavar="N", min=1, help="Sessions held at once.", rich_help_panel=LIMITS)
]
SessionExpiry = Annotated[
    float,
    typer.Option(
        "--session-expiry-s", metavar="SECONDS", help="Life of a session without a link.", rich_help_panel=LIMITS
    ),
]
MaxPending = Annotated[
    int,
    typer.Option(
        "--max-pending-tokens", metavar="N", min=1, help="Unjudged draft tokens per session.", rich_help_panel=LIMITS
    ),
]


def cloud(
    model: Model,
    host: Host = _CONFIG.host,
    port: Port = DEFAULT_PORT,
    token: Tokens = None,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    insecure: Insecure = False,
    deterministic: Deterministic = _BACKEND.deterministic,
    threads: Threads = None,
    prefill_chunk: PrefillChunk = _BACKEND.prefill_chunk_tokens,
    context_length: ContextLength = None,
    max_sessions: MaxSessions = _CONFIG.max_sessions,
    session_expiry_s: SessionExpiry = _CONFIG.session_expiry_s,
    max_pending_tokens: MaxPending = _CONFIG.max_pending_tokens,
    as_json: options.Json = False,
) -> None:
    """Serve a target model to edges, until stopped.

    When it takes connections it prints one line, `listening on URL`; with --json one object a line, the last being
    {"event": "listening", "url": ...}.
    """
    config = CloudConfig(
        host=host,
        port=port,
        token_sha256=_token_digests(token, token_file),
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        max_sessions=max_sessions,
        session_expiry_s=session_expiry_s,
        max_pending_tokens=max_pending_tokens,
    )
    backend = BackendOptions(
        threads=threads,
        context_length=context_length,
        max_sessions=max_sessions,
        deterministic=deterministic,
        prefill_chunk_tokens=prefill_chunk,
    )
    _serve(model, config, backend, as_json=as_json)


def _token_digests(tokens: list[str] | None, token_file: Path | None) -> tuple[str, ...]:
    from edgedraft.cloud.auth import hash_token

    given = list(tokens or ())
    if token_file is not None:
        try:
            given += [line for line in token_file.read_text().splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise InvalidRequestError(
                f"token_file '{token_file}' cannot be read: {reason}.",
                field="token_file",
                remedy="Give a file with one token a line.",
            ) from None
        if not given:
            raise InvalidRequestError(f"token_file '{token_file}' holds no token.", field="token_file")
    from_environment = read_environment().token
    if not given and from_environment:
        given = [from_environment]
    return tuple(hash_token(each) for each in given)


def _serve(model: str, config: CloudConfig, backend: BackendOptions, *, as_json: bool) -> None:
    from edgedraft.cloud.app import create_app
    from edgedraft.cloud.auth import check_bind
    from edgedraft.cloud.serve import serve

    check_bind(config)
    if not as_json:
        err_console().print(f"loading {model} ...")
    target = open_target(model, backend)
    app = None
    try:
        # One that listens to recordings is not chatted with.
        template = "" if target.info.features is not None else chat_template(model)
        app = create_app(config, target, open_tokenizer(model), template, model_name=target.info.name)
        _say_loaded(_description(model, target, config), as_json=as_json)
        serve(config, app, lambda url: _say_listening(url, as_json=as_json))
    finally:
        if app is None or not app.state.worker.alive:
            target.shutdown()


def _description(model: str, target: TargetBackend, config: CloudConfig) -> dict[str, Any]:
    info = target.info
    exactness = Exactness.BITWISE if info.deterministic else Exactness.UP_TO_NUMERICS
    return {
        "model": model,
        "name": info.name,
        "engine": info.engine,
        "quantisation": info.quantisation,
        "context_length": info.context_length,
        "max_sessions": config.max_sessions,
        "exactness": str(exactness),
        "depends_on": info.exactness_note,
        "memory_bytes": _memory_bytes(),
        "authentication": bool(config.token_sha256),
        "tls": config.tls_cert is not None,
    }


def _memory_bytes() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _say_loaded(loaded: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"event": "loaded", **loaded})
        return
    engine = f"{loaded['engine']} {loaded['quantisation']}".strip()
    console = out_console()
    console.print(
        f"serving {loaded['model']} ({engine}), context {loaded['context_length']} tokens, "
        f"up to {loaded['max_sessions']} sessions, memory {loaded['memory_bytes'] / 1e6:.0f} MB"
    )
    console.print(f"exactness: {loaded['exactness']} ({loaded['depends_on']})")
    access = "token" if loaded["authentication"] else "none"
    console.print(f"authentication: {access}; TLS: {'yes' if loaded['tls'] else 'no'}")


def _say_listening(url: str, *, as_json: bool) -> None:
    health_url = url.replace("ws", "http", 1).rsplit("/v1/", 1)[0] + "/health"
    if as_json:
        print_json({"event": "listening", "url": url, "health_url": health_url})
        return
    out_console().print(f"listening on {url}")
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            "edgedraft cloud --model demo:target",
            "edgedraft cloud --model captioner:cloud",
            "edgedraft cloud --model llamacpp:model-q8_0.gguf --deterministic",
            "edgedraft cloud --model llamacpp:model.gguf --threads 4 --max-sessions 16",
            "edgedraft cloud --model llamacpp:model.gguf --host 0.0.0.0 --token-file tokens.txt "
            "--tls-cert cert.pem --tls-key key.pem",
        )
    )(cloud)
