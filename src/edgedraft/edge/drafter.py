"""The draft model on its own thread: one sequence, lent to one request at a time.

A second request that wants the draft waits for the first to end, in the order of asking: sharing one sequence step by
step would mean feeding a whole prompt at each change of hands.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

from edgedraft.backends.base import DraftBackend, ListeningDraft
from edgedraft.core.events import DraftNext, DraftUnavailable, TokenDrafted
from edgedraft.core.sampling import draft_token
from edgedraft.core.sequence import common_prefix_length
from edgedraft.errors import BackendError, ContextLengthError, EdgedraftError
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import DraftToken, ModelInfo, Rule, SamplingParams

FEED_PIECE_TOKENS = 512
"""Ids given to the model at once, so that a cancelled request lets go of it soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOrder:
    """What stays the same over all draft tokens of a request.

    `num_ids`: the real vocabulary. `num_prompt`: tokens of the prompt; those after it are output (for penalties).
    `stop_ids` end a run of draft tokens. `reuse`: keep what the model holds of an earlier request as far as it is
    equal. It saves a prefill, but may move logits by the engine's rounding; where the target has the last word that
    never shows. `features`: the recording that the draft hears, where it is one that listens.
    """

    sampling: SamplingParams
    rule: Rule
    num_ids: int
    num_prompt: int
    stop_ids: frozenset[int] = frozenset()
    reuse: bool = True
    features: SpeechFeatures | None = None


class DraftSequence:
    """The draft back end and the ids it holds. Used from the worker thread only."""

    def __init__(self, backend: DraftBackend) -> None:
        self.backend = backend
        self._held: list[int] = []
        self._heard: SpeechFeatures | None = None

    def step(self, command: DraftNext, order: DraftOrder, abandoned: Callable[[], bool]) -> DraftToken | None:
        """Draft the token at `command.position`; None where the back end has no proposal.

        Raises `ContextLengthError` where the ids don't fit, `BackendError` where the engine fails.
        """
        started_s = perf_counter()
        try:
            self._listen(order.features)
            self._feed(command.keep_length, command.token_ids, abandoned, reuse=order.reuse)
            if abandoned():
                return None
            prompt, output = self._history(order)
            logits = self.backend.draft()
            token = draft_token(
                logits,
                order.sampling,
                command.position,
                num_ids=min(order.num_ids, len(logits)),
                rule=order.rule,
                prompt_ids=prompt,
                output_ids=output,
                with_second=command.with_second,
            )
        except BaseException:
            self._held.clear()  # what the engine holds now is unknown: the next request starts from nothing
            self._heard = None
            raise
        if token is None:
            return None
        took_s = perf_counter() - started_s
        return dataclasses.replace(token, draft_s=took_s)

    def _listen(self, features: SpeechFeatures | None) -> None:
        """Let the draft hear the recording before the first token of its request."""
        if features is None or features is self._heard:
            return
        if not isinstance(self.backend, ListeningDraft):
            raise BackendError("the draft model takes text only, and a recording is to be heard.")
        self._held.clear()
        self.backend.listen(features)
        self._heard = features

    def _feed(self, keep_length: int, token_ids: Sequence[int], abandoned: Callable[[], bool], *, reuse: bool) -> None:
        """Make the held ids `held[:keep_length] + token_ids`, evaluating only what differs."""
        held = self._held
        if keep_length > len(held):
            raise BackendError(f"the draft holds {len(held)} tokens and cannot keep {keep_length}.")
        if keep_length == 0 and not reuse:
            held.clear()
        if not token_ids and 0 < keep_length < len(held):
            keep_length, token_ids = keep_length - 1, [held[keep_length - 1]]
        # The last id is always evaluated again: its row of logits may be gone.
        equal = min(common_prefix_length(held[keep_length:], token_ids), max(len(token_ids) - 1, 0))
        length = keep_length + equal
        if length != self.backend.length:
            self.backend.rollback(length)
            del held[length:]
        for start in range(equal, len(token_ids), FEED_PIECE_TOKENS):
            if abandoned():
                return
            piece = token_ids[start : start + FEED_PIECE_TOKENS]
            self.backend.append(piece)
            held.extend(piece)

    def _history(self, order: DraftOrder) -> tuple[Sequence[int], Sequence[int]]:
        if not order.sampling.needs_history:
            return (), ()
        return self._held[: order.num_prompt], self._held[order.num_prompt :]


class DraftSeat:
    """The right of one request to use the draft, until `release`."""

    def __init__(
        self, drafter: Drafter, order: DraftOrder, on_event: Callable[[TokenDrafted | DraftUnavailable], None]
    ) -> None:
        self._drafter = drafter
        self._order = order
        self._on_event = on_event
        self._released = False
        self._latest: DraftNext | None = None

    def draft(self, command: DraftNext) -> None:
        """Start a run of draft steps; their events come back on the event loop, unless the seat was released."""
        self._latest = command
        self._drafter.submit(lambda: self._run(command))

    def release(self) -> None:
        """Give the draft to the next in line. A step that runs ends by itself and tells nobody. Safe to repeat."""
        if not self._released:
            self._released = True
            self._drafter.pass_on()

    def _run(self, command: DraftNext) -> None:
        """Draft the tokens of `command`, telling each at once; a later command ends the run."""
        step = command
        for _ in range(command.num_tokens):
            if self._released:
                return
            event = self._step(step)
            self._drafter.call_back(self._deliver, event)
            token = event.token if isinstance(event, TokenDrafted) else None
            if token is None or token.token_id in self._order.stop_ids or self._latest is not command:
                return
            step = DraftNext(
                step.epoch, step.position + 1, step.position, [token.token_id], with_second=step.with_second
            )

    def _step(self, command: DraftNext) -> TokenDrafted | DraftUnavailable:
        try:
            token = self._drafter.sequence.step(command, self._order, lambda: self._released)
            return TokenDrafted(command.epoch, command.position, token)
        except ContextLengthError:
            return DraftUnavailable("the context of the draft model is full")
        except EdgedraftError as error:
            return DraftUnavailable(f"the draft model failed: {error}")
        except Exception as error:  # an engine's own exception must not end the worker; its text may quote the prompt
            return DraftUnavailable(f"the draft model failed ({type(error).__name__})")

    def _deliver(self, event: TokenDrafted | DraftUnavailable) -> None:
        if not self._released:
            self._on_event(event)


class Drafter:
    """Owns the worker thread. The back end is opened, used and closed there and nowhere else."""

    sequence: DraftSequence
    info: ModelInfo

    def __init__(self, open_backend: Callable[[], DraftBackend]) -> None:
        self._open_backend = open_backend
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edgedraft-draft")
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Load the model. Raises what the back end raises."""
        self._loop = asyncio.get_running_loop()
        try:
            backend = await self._loop.run_in_executor(self._worker, self._open_backend)
        except BaseException:
            self._worker.shutdown(wait=False)
            raise
        self.sequence = DraftSequence(backend)
        self.info = backend.info

    async def reserve(
        self, order: DraftOrder, on_event: Callable[[TokenDrafted | DraftUnavailable], None]
    ) -> DraftSeat:
        """Wait for the draft, first come first served."""
        await self._turn.acquire()
        return DraftSeat(self, order, on_event)

    async def close(self) -> None:
        """Free the model once the step that runs has ended."""
        await self._loop.run_in_executor(self._worker, self.sequence.backend.close)
        self._worker.shutdown(wait=False)

    def submit(self, job: Callable[[], None]) -> None:
        self._worker.submit(job)

    def pass_on(self) -> None:
        self._turn.release()

    def call_back(
        self, deliver: Callable[[TokenDrafted | DraftUnavailable], None], event: TokenDrafted | DraftUnavailable
    ) -> None:
        """From the worker thread to the event loop."""
        self._loop.call_soon_threadsafe(deliver, event)
