"""Captions of recordings: the edge drafts them from the audio, and asks the cloud only where the strategy says so."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import secrets
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from edgedraft.backends.base import BackendOptions, CaptionTokenizer
from edgedraft.backends.listening import listening, open_caption_tokenizer, open_listening_draft
from edgedraft.caption.calibration_file import calibrated_strategy, known_calibrations
from edgedraft.caption.caption import Caption
from edgedraft.caption.excerpt_captions import ExcerptCaption, RecordingCaption, excerpts_of
from edgedraft.caption.excerpts import Excerpt
from edgedraft.caption.features import extract
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import CaptionRequest
from edgedraft.caption.voice_activity import Check, check
from edgedraft.config import DEFAULT_URL, EdgeConfig, read_environment
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.gate import Nothing
from edgedraft.core.strategy import Strategy
from edgedraft.edge.answer import Piece
from edgedraft.edge.connection import CloudConnection
from edgedraft.edge.drafter import Drafter, DraftOrder
from edgedraft.edge.handshake import Vocabulary
from edgedraft.edge.runtime import RequestPlan, RequestRun
from edgedraft.errors import ContextLengthError, EdgedraftError, InvalidRequestError
from edgedraft.protocol.messages import Welcome
from edgedraft.speech_features import FeatureDtype, SpeechFeatures
from edgedraft.types import SESSION_ID_BYTES, Exactness, ModelInfo, Rule

DEFAULT_DRAFT, DEFAULT_TARGET = "captioner:edge", "captioner:cloud"
LOSSY_NOTE = "The edge committed by itself what it was sure of, and kept what the target ranks high enough."
ALONE_NOTE = "The draft model's own text; no target was asked."


class CaptionStream:
    """A caption that is being written; leaving its block early cancels it.

    async with captioner.stream(recording) as stream:
        async for piece in stream:
            print(piece.text, end="")
    print(stream.caption.account)
    """

    def __init__(self, captioner: AsyncCaptioner, recording: Recording, request: CaptionRequest) -> None:
        self._captioner = captioner
        self._recording = recording
        self._request = request
        self._sent: SpeechFeatures | None = None
        self._run: RequestRun | None = None

    async def __aenter__(self) -> Self:
        self._request, notice = await asyncio.to_thread(self._captioner.settled, self._request)
        self._run, self._sent = await self._captioner.prepare(self._recording, self._request)
        self._run.notices += [notice] if notice else []
        await self._captioner.start(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            self._run.cancel()

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        piece = await self._running.next_piece()
        if piece is None:
            raise StopAsyncIteration
        return piece

    @property
    def caption(self) -> Caption:
        """The whole caption, once the iteration has ended."""
        answer = self._running.answer()
        welcome = self._captioner.welcome
        if self._request.is_exact and welcome is not None and not self._running.session.went_local:
            answer = dataclasses.replace(
                answer, exact=welcome.exactness.exactness, exactness_note=welcome.exactness.depends_on
            )
        notices = [*answer.notices, *self._notices(welcome)]
        return Caption.of(
            dataclasses.replace(answer, notices=tuple(notices)),
            language=self._captioner.language(self._request),
            seconds=self._recording.seconds,
            features=self._sent,
            num_opens=self._running.session.incarnation,
        )

    def _notices(self, welcome: Welcome | None) -> list[str]:
        calibrated_with = self._request.calibrated_with
        if welcome is None or calibrated_with in ("", welcome.model):
            return []
        notice = (
            f"The gate was calibrated with {calibrated_with}, and the cloud serves {welcome.model}: what it has "
            "verified may not be what helps. Run `edgedraft caption calibrate DATASET --url URL`."
        )
        return [notice]

    @property
    def _running(self) -> RequestRun:
        if self._run is None:
            raise EdgedraftError("the caption was not started.", remedy="Use: async with captioner.stream(...).")
        return self._run


class AsyncCaptioner:
    """An edge that captions speech. Use it as an async context manager.

    `url`, `token`: default to EDGEDRAFT_URL and EDGEDRAFT_TOKEN, then to a cloud on this machine. `draft`: the spec of
    a model that listens. `tls_ca`, `config`, `draft_options`: as for `AsyncEdgeClient`.

    The cloud is dialled at the first block that needs a verdict (with 'cloud-only': at the first request). One caption
    uses the draft at a time; others wait for their turn.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        draft: str = DEFAULT_DRAFT,
        token: str | None = None,
        tls_ca: Path | str | None = None,
        config: EdgeConfig | None = None,
        draft_options: BackendOptions | None = None,
    ) -> None:
        environment = read_environment()
        base = config or EdgeConfig(url=environment.url or DEFAULT_URL, token=environment.token)
        self.config = dataclasses.replace(
            base,
            url=url or base.url,
            token=token or base.token,
            tls_ca=base.tls_ca if tls_ca is None else Path(tls_ca),
        )
        self._draft = draft
        self._options = draft_options or BackendOptions()
        self._drafter: Drafter | None = None
        self._tokenizer: CaptionTokenizer | None = None
        self._connection: CloudConnection | None = None
        self._runs: weakref.WeakSet[RequestRun] = weakref.WeakSet()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Load tokenizer and draft. Raises what the registry raises, `UnsupportedError` for models of text."""
        if self._tokenizer is not None:
            return
        tokenizer = await asyncio.to_thread(open_caption_tokenizer, self._draft)
        vocabulary = await asyncio.to_thread(Vocabulary.of, tokenizer)
        drafter = Drafter(functools.partial(open_listening_draft, self._draft, self._options))
        await drafter.open()
        self._drafter = drafter
        self._connection = CloudConnection(self.config, vocabulary)
        self._tokenizer = tokenizer

    async def close(self) -> None:
        """Leave the cloud and free the model. Captions that are being written fail."""
        connection, drafter = self._connection, self._drafter
        self._connection = self._drafter = self._tokenizer = None
        for run in list(self._runs):
            run.break_off(EdgedraftError("the captioner was closed while this caption was written."))
        if connection is not None:
            await connection.close()
        if drafter is not None:
            await drafter.close()

    # -- captions ------------------------------------------------------------------------------------------------------

    async def caption(self, recording: Recording, request: CaptionRequest | None = None) -> Caption:
        """The caption of a recording that fits the model's window, all of which is heard.

        Raises `InvalidRequestError` and its children naming the field, `LinkLostError` and others of the one tree of
        errors where the cloud is needed and fails.
        """
        async with self.stream(recording, request) as stream:
            async for _ in stream:
                pass
        return stream.caption

    async def caption_all(
        self, recording: Recording, request: CaptionRequest | None = None, *, window_s: float | None = None
    ) -> RecordingCaption:
        """The captions of a recording of any length, as `edgedraft caption` makes them.

        It is cut at pauses into excerpts of at most `window_s` (None: what the model takes); long silence at their ends
        is left out, and where there is no speech nothing is sent. Raises what `caption` raises.
        """
        _check_recording(recording)
        found, parts = await asyncio.to_thread(self._cut, recording, window_s)
        excerpts = [
            ExcerptCaption(
                start_s=each.start_s,
                end_s=each.end_s,
                caption=await self.caption(each.recording, request) if each.has_speech else None,
            )
            for each in parts
        ]
        return RecordingCaption(recording=recording, check=found, excerpts=excerpts)

    def _cut(self, recording: Recording, window_s: float | None) -> tuple[Check, list[Excerpt]]:
        found = check(recording)
        return found, excerpts_of(recording, found, self.max_seconds, window_s)

    def stream(self, recording: Recording, request: CaptionRequest | None = None) -> CaptionStream:
        """The same as `caption`, piece by piece; see `CaptionStream`."""
        _check_recording(recording)
        request = CaptionRequest() if request is None else request
        if not isinstance(request, CaptionRequest):
            raise InvalidRequestError(f"request is {type(request).__name__}; legal: CaptionRequest.", field="request")
        return CaptionStream(self, recording, request)

    async def connect(self) -> Welcome:
        """Reach the cloud and compare vocabularies; what the cloud says of itself."""
        _, _, connection = self._opened
        return await connection.welcome()

    @property
    def welcome(self) -> Welcome | None:
        """What the cloud said of itself; None as long as nobody has called it."""
        return None if self._connection is None else self._connection.last_welcome

    @property
    def tokenizer(self) -> CaptionTokenizer:
        tokenizer, _, _ = self._opened
        return tokenizer

    @property
    def draft_info(self) -> ModelInfo:
        _, drafter, _ = self._opened
        return drafter.info

    @property
    def max_seconds(self) -> float:
        """The longest recording that the draft takes at once."""
        _, drafter, _ = self._opened
        return listening(drafter.sequence.backend).max_seconds

    def language(self, request: CaptionRequest) -> str:
        return request.language or self.tokenizer.languages[0]

    def settled(self, request: CaptionRequest) -> tuple[CaptionRequest, str]:
        """The request with language and strategy as they are for this draft, and a notice about that, or "".

        Raises `InvalidRequestError` for a language or a threshold that is none of the draft's.
        """
        language = self.language(request)
        self.tokenizer.caption_prompt(language)
        if isinstance(request.strategy, Strategy):
            return dataclasses.replace(request, language=language), ""
        files, draft = known_calibrations(read_environment().cache_dir), self.draft_info.identity
        found = calibrated_strategy(request.strategy, self.tokenizer, draft, language, files)
        settled = dataclasses.replace(request, language=language, strategy=found.strategy, calibrated_with=found.target)
        return settled, found.notice

    async def prepare(self, recording: Recording, request: CaptionRequest) -> tuple[RequestRun, SpeechFeatures | None]:
        """Decide the rest before a caption is written; the run, and what it may send of the recording.

        `request`: a settled one.
        """
        tokenizer, drafter, connection = self._opened
        draft = listening(drafter.sequence.backend)
        if recording.seconds > draft.max_seconds:
            raise InvalidRequestError(
                f"recording is {recording.seconds:.2f} s long; legal: up to {draft.max_seconds:g} s, which the model "
                "takes at once.",
                field="recording",
                remedy="Use caption_all, which cuts at pauses.",
            )
        started_s = perf_counter()
        strategy = request.settled_strategy
        prompt_ids = tokenizer.caption_prompt(self.language(request))
        heard = sent = None
        if strategy.uses_draft and drafter.info.features is not None:
            heard = await asyncio.to_thread(extract, recording, drafter.info.features, FeatureDtype.FLOAT16)
        if not _is_alone(strategy):
            sent = await asyncio.to_thread(extract, recording, request.features or draft.sends, request.dtype)
        welcome = await connection.welcome() if strategy.gating is None else None
        context_length = drafter.info.context_length if welcome is None else welcome.limits.context_length
        plan = _plan(request, tokenizer, prompt_ids, context_length, heard, sent, welcome, self.config.silence_s)
        run = RequestRun(plan, tokenizer, started_s=started_s)
        self._runs.add(run)
        return run, sent

    async def start(self, run: RequestRun) -> None:
        _, drafter, connection = self._opened
        await run.start(connection, drafter)

    @property
    def _opened(self) -> tuple[CaptionTokenizer, Drafter, CloudConnection]:
        if self._tokenizer is None or self._drafter is None or self._connection is None:
            raise EdgedraftError("the captioner is not open.", remedy="Use: async with AsyncCaptioner(...).")
        return self._tokenizer, self._drafter, self._connection


def _check_recording(recording: object) -> None:
    if not isinstance(recording, Recording):
        raise InvalidRequestError(
            f"recording is {type(recording).__name__}; legal: Recording.",
            field="recording",
            remedy="Use edgedraft.caption.audio.load(PATH), or Recording(waveform=..., source=...).",
        )


def _is_alone(strategy: Strategy) -> bool:
    """Whether nothing can ever leave."""
    return strategy.gating is not None and isinstance(strategy.gating.gate, Nothing)


def _plan(
    request: CaptionRequest,
    tokenizer: CaptionTokenizer,
    prompt_ids: list[int],
    context_length: int,
    heard: SpeechFeatures | None,
    sent: SpeechFeatures | None,
    welcome: Welcome | None,
    silence_s: float,
) -> RequestPlan:
    room = context_length - len(prompt_ids)
    if room < 1:
        raise ContextLengthError(
            f"the prompt has {len(prompt_ids)} tokens; the model's context {context_length}.", field="language"
        )
    strategy, limits = request.settled_strategy, dict[str, Any]()
    if welcome is not None:
        limits = {
            "max_pending_tokens": welcome.limits.max_pending_tokens,
            "assist_lead_tokens": welcome.limits.assist_lead_tokens,
        }
    settings = EdgeSessionSettings(
        session_id=secrets.token_bytes(SESSION_ID_BYTES),
        prompt_ids=prompt_ids,
        max_tokens=min(request.max_tokens, room),
        sampling=request.sampling,
        strategy=strategy,
        eos_ids=frozenset(tokenizer.eos_ids),
        on_link_loss=request.link_loss,
        silence_s=silence_s,
        features=sent,
        **limits,
    )
    order = None
    if strategy.uses_draft:
        order = DraftOrder(
            sampling=request.sampling,
            rule=Rule.RANK,
            num_ids=tokenizer.num_ids,
            num_prompt=len(prompt_ids),
            stop_ids=settings.end_ids,
            reuse=False,
            features=heard,
        )
    exact, note = Exactness.LOSSY, ALONE_NOTE if _is_alone(strategy) else LOSSY_NOTE
    if welcome is not None:
        exact, note = welcome.exactness.exactness, welcome.exactness.depends_on
    return RequestPlan(settings=settings, stop=(), order=order, exact=exact, exactness_note=note, promised=welcome)
