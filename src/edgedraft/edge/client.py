"""The asynchronous client: models of this edge, the connection to one cloud, requests over both."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Self, Unpack

from edgedraft.backends import registry
from edgedraft.backends.base import BackendOptions, DraftBackend, Tokenizer
from edgedraft.config import DEFAULT_URL, EdgeConfig, read_environment
from edgedraft.core.strategy import Strategy
from edgedraft.edge.answer import Answer, Piece
from edgedraft.edge.connection import CloudConnection
from edgedraft.edge.drafter import Drafter
from edgedraft.edge.handshake import Vocabulary
from edgedraft.edge.pilot import Pilot, Pilots
from edgedraft.edge.planning import TextModel, plan_request
from edgedraft.edge.request import Request, RequestOptions
from edgedraft.edge.runtime import RequestRun
from edgedraft.errors import CloudUnreachableError, EdgedraftError, InvalidRequestError
from edgedraft.protocol.messages import Welcome
from edgedraft.schedule.catalogue import edge_only
from edgedraft.tune.tuner_file import TunerKey
from edgedraft.types import ModelInfo, OnLinkLoss

DEFAULT_DRAFT = "demo:draft"
DEFAULT_TOKENIZER = "demo:target"
ALONE_NOTICE = "The cloud could not be reached: this answer is the draft model's own."


class AnswerStream:
    """A request that runs while its block lasts; leaving the block early cancels it, here and in the cloud.

    async with client.stream("Why is the sky blue?") as stream:
        async for piece in stream:
            print(piece.text, end="")
    print(stream.answer.finish_reason)
    """

    def __init__(self, client: AsyncEdgeClient, request: Request) -> None:
        self._client = client
        self._request = request
        self._run: RequestRun | None = None
        self._cancelled = False

    async def __aenter__(self) -> Self:
        self._run = await self._client.prepare(self._request)
        if self._cancelled:
            self._run.cancel()
        await self._client.start(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        piece = await self._running.next_piece()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def cancel(self) -> None:
        """End the request now. The iteration ends, and the answer so far has finish reason 'cancelled'."""
        self._cancelled = True
        if self._run is not None:
            self._run.cancel()

    @property
    def answer(self) -> Answer:
        """The whole answer, once the iteration has ended."""
        return self._running.answer()

    @property
    def _running(self) -> RequestRun:
        if self._run is None:
            raise EdgedraftError("the request was not started.", remedy="Use: async with client.stream(...) as stream.")
        return self._run


class AsyncEdgeClient:
    """An edge. Use it as an async context manager; requests may run at the same time.

    `url`, `token`: default to EDGEDRAFT_URL and EDGEDRAFT_TOKEN, then to a cloud on this machine. `draft`: a model
    spec, an open back end, or None to draft nothing. `tokenizer`: a spec or an open one; default: the draft's own.
    `tls_ca`: certificate authority for wss://. `config`: timeouts and the rest; the arguments before it win.
    `chat_template`: the draft's own, for strategy 'edge-only' (default: what its spec brings).

    Models are loaded on entering and freed on leaving, an open back end included. The cloud is dialled when the first
    request needs it: strategy 'edge-only' never touches the network. One request uses the draft at a time; others that
    want it wait for their turn.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        draft: str | DraftBackend | None = DEFAULT_DRAFT,
        tokenizer: str | Tokenizer | None = None,
        token: str | None = None,
        tls_ca: Path | str | None = None,
        config: EdgeConfig | None = None,
        draft_options: BackendOptions | None = None,
        chat_template: str | None = None,
    ) -> None:
        self.config = _configured(config, url, token, tls_ca)
        self._draft = draft
        self._tokenizer = tokenizer
        self._draft_options = draft_options or BackendOptions()
        self._chat_template = chat_template
        self._drafter: Drafter | None = None
        self._opened: Tokenizer | None = None
        self._connection: CloudConnection | None = None
        self._pilots: Pilots | None = None
        self._runs: weakref.WeakSet[RequestRun] = weakref.WeakSet()

    # -- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load tokenizer and draft. Raises what the registry raises."""
        if self._opened is not None:
            return
        tokenizer = await asyncio.to_thread(_open_tokenizer, self._draft, self._tokenizer)
        vocabulary = await asyncio.to_thread(Vocabulary.of, tokenizer)
        if self._draft is not None:
            drafter = Drafter(functools.partial(_open_draft, self._draft, self._draft_options))
            await drafter.open()
            self._drafter = drafter
        self._connection = CloudConnection(self.config, vocabulary)
        self._pilots = Pilots(read_environment().cache_dir)
        self._opened = tokenizer

    async def close(self) -> None:
        """Leave the cloud and free the models. Requests that still run fail, and the cloud frees their sessions."""
        connection, drafter, pilots = self._connection, self._drafter, self._pilots
        self._connection = self._drafter = self._opened = None  # no request begins from here on
        for run in list(self._runs):
            run.break_off(EdgedraftError("the client was closed while this request ran."))
        if pilots is not None:
            pilots.close()
        if connection is not None:
            await connection.close()
        if drafter is not None:
            await drafter.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Answer:
        """Answer a prompt or `messages=`. Fields and defaults: `edge.request.Request`.

        Raises `InvalidRequestError` naming the field before any work; `CloudUnreachableError`, `AuthError`,
        `VocabularyMismatchError`, `LinkLostError`, `SaturatedError` and others of the one tree of errors.
        Cancelling the task cancels the request.
        """
        async with self.stream(prompt, **options) as stream:
            async for _ in stream:
                pass
        return stream.answer

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> AnswerStream:
        """The same, piece by piece; see `AnswerStream`. Checks the request at once."""
        return AnswerStream(self, Request.of(prompt, options))

    async def connect(self) -> Welcome:
        """Reach the cloud and compare vocabularies, as the first request would; what the cloud says of itself."""
        return await self._link().welcome()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in use, which is also the target's."""
        if self._opened is None:
            raise EdgedraftError("the client is not open.", remedy="Use: async with AsyncEdgeClient(...) as client.")
        return self._opened

    @property
    def draft_info(self) -> ModelInfo | None:
        """The draft model in use; None without one."""
        return None if self._drafter is None else self._drafter.info

    async def prepare(self, request: Request) -> RequestRun:
        """Decide everything about a request before it runs (`AnswerStream` is the way to use it)."""
        started_s = perf_counter()
        tokenizer = self.tokenizer
        strategy = request.chosen_strategy(has_draft=self._drafter is not None)
        strategy, model, notices = await self._text_model(request, strategy)
        pilot = await self._pilot(request, strategy, model, notices)
        plan = plan_request(
            request,
            strategy,
            model,
            tokenizer,
            self.draft_info,
            silence_s=self.config.silence_s,
            notices=notices,
        )
        run = RequestRun(plan, tokenizer, started_s=started_s, pilot=pilot)
        self._runs.add(run)
        return run

    async def start(self, run: RequestRun) -> None:
        """Begin a prepared request, once the draft is free if it uses one."""
        uses_cloud = run.session.strategy.uses_cloud
        await run.start(self._link() if uses_cloud else None, self._drafter)

    async def _text_model(self, request: Request, strategy: Strategy) -> tuple[Strategy, TextModel, list[str]]:
        """Whose text it will be. Without a cloud the draft's, where the request wants that rather than an error."""
        notices: list[str] = []
        if strategy.uses_cloud:
            try:
                return strategy, TextModel.of_cloud(await self.connect()), notices
            except CloudUnreachableError:
                if request.link_loss() is not OnLinkLoss.LOCAL or self.draft_info is None:
                    raise
            strategy, notices = edge_only(), [ALONE_NOTICE]
        template = await asyncio.to_thread(self._own_template)
        tokenizer, info = self.tokenizer, self.draft_info  # which raises where the client was closed meanwhile
        if info is None:
            raise AssertionError("a strategy without cloud has a draft")
        return strategy, TextModel.of_draft(info, tokenizer, template), notices

    async def _pilot(self, request: Request, strategy: Strategy, model: TextModel, notices: list[str]) -> Pilot | None:
        """Who measures and steers the request; None where nothing is drafted for a cloud."""
        if self._pilots is None or self.draft_info is None or model.welcome is None or not strategy.uses_draft:
            return None
        key = TunerKey(draft=self.draft_info.name, target=model.welcome.model, link=self.config.url)
        pilot, news = await self._pilots.pilot(
            key, strategy, request.chosen_objective(), by_name=not isinstance(request.strategy, Strategy)
        )
        notices += news
        return pilot

    def _own_template(self) -> str:
        """The draft's own chat template, or that of the tokenizer in use."""
        if self._chat_template is None:
            specs = [spec for spec in (self._tokenizer, self._draft) if isinstance(spec, str)]
            self._chat_template = registry.chat_template(specs[0]) if specs else ""
        return self._chat_template

    def _link(self) -> CloudConnection:
        if self._connection is None:
            raise EdgedraftError("the client is not open.", remedy="Use: async with AsyncEdgeClient(...) as client.")
        return self._connection


def _configured(config: EdgeConfig | None, url: str | None, token: str | None, tls_ca: Path | str | None) -> EdgeConfig:
    environment = read_environment()
    base = config or EdgeConfig(url=environment.url or DEFAULT_URL, token=environment.token)
    return dataclasses.replace(
        base,
        url=url or base.url,
        token=token or base.token,
        tls_ca=base.tls_ca if tls_ca is None else Path(tls_ca),
    )


def _open_draft(draft: str | DraftBackend, options: BackendOptions) -> DraftBackend:
    return registry.open_draft(draft, options) if isinstance(draft, str) else draft


def _open_tokenizer(draft: str | DraftBackend | None, tokenizer: str | Tokenizer | None) -> Tokenizer:
    """The one asked for, else the draft's own, else the demo pair's where that is installed."""
    if tokenizer is not None:
        return registry.open_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    if isinstance(draft, str) and registry.parse_spec(draft).family != "lookup":
        return registry.open_tokenizer(draft)
    if draft is not None and not isinstance(draft, str):
        raise InvalidRequestError(
            "the draft is an open back end, which brings no tokenizer.",
            field="tokenizer",
            remedy="Give one: tokenizer=SPEC or an open tokenizer.",
        )
    try:
        return registry.open_tokenizer(DEFAULT_TOKENIZER)
    except EdgedraftError as error:
        raise InvalidRequestError(
            f"no tokenizer is named, and that of the demo models is not here: {error.message}",
            field="tokenizer",
            remedy="Name the target's tokenizer: tokenizer=SPEC (--tokenizer), such as llamacpp:PATH.gguf.",
        ) from error
