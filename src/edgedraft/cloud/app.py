"""The cloud as an ASGI application: the WebSocket `/v1/edgedraft`, and `/health`. There is no other route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse

from edgedraft.backends.base import TargetBackend, Tokenizer
from edgedraft.cloud.auth import SUBJECT_KEY, TokenGate, check_tokens
from edgedraft.cloud.connection import Greeting, serve_connection
from edgedraft.cloud.energy import MeteredTarget, choose_meter
from edgedraft.cloud.sessions import SessionTable
from edgedraft.cloud.worker import TargetWorker
from edgedraft.config import CloudConfig
from edgedraft.core.cloud_settings import CloudSessionSettings
from edgedraft.metrics.energy import EnergyReading
from edgedraft.protocol.codec import encode
from edgedraft.protocol.fingerprint import fingerprint
from edgedraft.protocol.messages import PROTOCOL_VERSION, ExactnessStatement, Limits, Listening, Welcome
from edgedraft.types import Exactness, ModelInfo, Rule

WEBSOCKET_PATH = "/v1/edgedraft"
HEALTH_PATH = "/health"
RULES = list(Rule)


def create_app(
    config: CloudConfig, target: TargetBackend, tokenizer: Tokenizer, chat_template: str, *, model_name: str
) -> FastAPI:
    """The application that serves one target. The caller keeps the target and shuts it down after the application.

    Hashes the whole vocabulary (0.1 s for 152,000 ids). `app.state` has `sessions` (`SessionTable`) and `worker`.
    Raises `InvalidRequestError` for bad token digests and `ProtocolError` for a template too long to be sent.
    """
    check_tokens(config.token_sha256)
    table = SessionTable(
        _settings(config, target.info, tokenizer),
        max_sessions=config.max_sessions,
        expiry_s=config.session_expiry_s,
    )
    meter = choose_meter(on_gpu=target.info.on_gpu)
    worker = TargetWorker(MeteredTarget(target, meter), table.on_target, table.on_crash)
    table.worker = worker
    greeting = _greeting(config, target.info, tokenizer, chat_template, model_name)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        await worker.stop()
        meter.close()

    app = FastAPI(title="edgedraft cloud", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TokenGate, token_sha256=config.token_sha256)
    app.state.sessions = table
    app.state.worker = worker

    @app.websocket(WEBSOCKET_PATH)
    async def edgedraft(websocket: WebSocket) -> None:
        await websocket.accept()
        await serve_connection(websocket, websocket.scope[SUBJECT_KEY], greeting, table)

    @app.websocket("/{path:path}")
    async def nothing_here(websocket: WebSocket) -> None:
        """404 rather than the 403 of a refused token, so that an edge with a wrong path is told the right thing."""
        await websocket.send_denial_response(JSONResponse({"detail": "Not Found"}, status_code=404))

    @app.get(HEALTH_PATH)
    async def health() -> JSONResponse:
        return JSONResponse(
            _health(table, worker.ready, target.info, model_name, meter.reading()),
            status_code=200 if worker.ready else 503,
        )

    return app


def _settings(config: CloudConfig, info: ModelInfo, tokenizer: Tokenizer) -> CloudSessionSettings:
    return CloudSessionSettings(
        num_ids=min(info.num_ids, tokenizer.num_ids),
        eos_ids=frozenset(info.eos_ids) | frozenset(tokenizer.eos_ids),
        context_length=info.context_length,
        max_pending_tokens=config.max_pending_tokens,
        assist_lead_tokens=config.assist_lead_tokens,
        features=info.features,
    )


def _exactness(info: ModelInfo) -> ExactnessStatement:
    exactness = Exactness.BITWISE if info.deterministic else Exactness.UP_TO_NUMERICS
    return ExactnessStatement(exactness=exactness, depends_on=info.exactness_note)


def _listening(info: ModelInfo) -> Listening | None:
    spec = info.features
    if spec is None:
        return None
    return Listening(kind=spec.kind, encoder_id=spec.encoder_id, rate_hz=spec.rate_hz, dims=spec.dims)


def _greeting(
    config: CloudConfig, info: ModelInfo, tokenizer: Tokenizer, chat_template: str, model_name: str
) -> Greeting:
    eos_ids = sorted({*info.eos_ids, *tokenizer.eos_ids})
    own = msgspec.structs.replace(fingerprint(tokenizer), eos_ids=eos_ids)
    welcome = Welcome(
        version=PROTOCOL_VERSION,
        server=f"edgedraft/{version('edgedraft')}",
        model=model_name,
        fingerprint=own,
        chat_template=chat_template,
        limits=Limits(
            context_length=info.context_length,
            max_pending_tokens=config.max_pending_tokens,
            assist_lead_tokens=config.assist_lead_tokens,
            rules=RULES,
        ),
        exactness=_exactness(info),
        features=_listening(info),
    )
    return Greeting(welcome=encode(welcome), fingerprint=own, tokenizer=tokenizer)


def _health(
    table: SessionTable, ready: bool, info: ModelInfo, model_name: str, energy: EnergyReading
) -> dict[str, Any]:
    stats, exactness = table.stats(), _exactness(info)
    return {
        "ready": ready,
        "saturated": stats.saturated,
        "model": model_name,
        "versions": {"protocol": PROTOCOL_VERSION, "edgedraft": version("edgedraft"), "engine": info.engine},
        "sessions": {"open": stats.num_sessions, "connected": stats.num_connected, "max": stats.max_sessions},
        "queue": {"waiting": stats.num_waiting},
        "tokens": {"held": stats.num_tokens, "context_length": info.context_length},
        "energy": {
            "energy_j": energy.energy_j,
            "busy_s": energy.busy_s,
            "kind": energy.kind.value,
            "source": energy.source,
        },
        "exactness": {"class": exactness.exactness.value, "depends_on": exactness.depends_on},
    }
