"""The one thread that owns the target. The event loop hands it commands and gets events back; neither waits.

In: `submit`, a queue that never blocks. Out: `loop.call_soon_threadsafe`. Between two pieces of work the thread
takes in everything that has arrived, so a closed session's passes are gone before the next choice is made and its
prefill stops at the chunk that is running. Where sessions share passes it also lets those of the last one be heard, so
that they can join the next. An engine may fail in any way, so whatever it raises is caught here, and only the session
at fault pays.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedraft.backends.base import ListeningTarget, ScoreRequest, TargetBackend
from edgedraft.core.events import (
    CancelPass,
    CloseTarget,
    CloudEvent,
    OpenTarget,
    PassDone,
    PrefillDone,
    RunPass,
    TargetFailed,
)
from edgedraft.core.verify import verify
from edgedraft.errors import BackendError, EdgedraftError, UnsupportedError
from edgedraft.schedule.verify_batcher import PrefillStep, QueuedPass, VerifyBatcher
from edgedraft.types import Float32Array

logger = logging.getLogger(__name__)

TargetCommand = OpenTarget | RunPass | CancelPass | CloseTarget
OnResult = Callable[[bytes, int, CloudEvent], None]
"""Told, on the event loop, the session, its incarnation in the target and what happened."""

STOP_TIMEOUT_S = 10.0
LONGEST_HEARING_S = 0.005
"""A busy event loop must not keep the target idle for longer."""


@dataclass(slots=True)
class _Opened:
    """What the worker remembers of a session. `has_row`: the target still holds the row that prefill left."""

    command: OpenTarget
    has_row: bool = False


class TargetWorker:
    """Runs one target for many sessions. `start` and `submit` belong to the event loop's thread."""

    def __init__(self, target: TargetBackend, on_result: OnResult, on_crash: Callable[[], None]) -> None:
        self._target = target
        self._on_result = on_result
        self._on_crash = on_crash
        self._batcher = VerifyBatcher()
        self._sessions: dict[bytes, _Opened] = {}
        self._inbox: queue.SimpleQueue[tuple[bytes, TargetCommand, float] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="edgedraft-target", daemon=True)
        self._serving = False

    # -- on the event loop -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve. Results arrive on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._serving = True
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after the piece of work that runs now; every session is closed in the target.

        A piece of work that does not end within `STOP_TIMEOUT_S` is left to itself: see `alive`.
        """
        if self._thread.is_alive():
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)

    @property
    def alive(self) -> bool:
        """Whether the thread is still at work, so that the target must not be freed under it."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        return self._serving

    @property
    def num_waiting(self) -> int:
        """Passes and prefills that have not begun or not ended; commands on their way in count as well."""
        return self._batcher.num_waiting + self._inbox.qsize()

    def submit(self, session: bytes, command: TargetCommand) -> None:
        """Hand over a command of `session`; never blocks. Whatever cannot be run comes back as `TargetFailed`."""
        self._inbox.put((session, command, time.perf_counter()))

    # -- on the worker's thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
            self._serving = False
        except BaseException as error:  # whatever ends this thread must be seen, or every session waits for ever
            self._serving = False
            log_failure("the target's thread ended", error)
            self._post(self._on_crash)

    def _serve(self) -> None:
        while self._take_commands():
            work = self._batcher.next_work(self._target.max_batch_sessions)
            if isinstance(work, PrefillStep):
                self._prefill(work.session)
            elif work:
                self._run_batch(work)
                if self._target.max_batch_sessions > 1:
                    self._let_sessions_go_on()
        for session in list(self._sessions):
            self._close(session)

    def _let_sessions_go_on(self) -> None:
        """Choose only when the last batch's sessions have had their say: else they would miss the next one for ever.

        Two that write on by themselves would take turns, each of them waiting through the other's passes.
        """
        heard = threading.Event()
        self._post(heard.set)  # runs behind their results, on which they submit what they want next
        heard.wait(LONGEST_HEARING_S)

    def _take_commands(self) -> bool:
        """Take in all that has arrived; wait where there is nothing to do. False: stop."""
        wait = self._batcher.num_waiting == 0
        while True:
            try:
                arrived = self._inbox.get(block=wait)
            except queue.Empty:
                return True
            if arrived is None:
                return False
            self._take(*arrived)
            wait = False

    def _take(self, session: bytes, command: TargetCommand, arrived_s: float) -> None:
        match command:
            case OpenTarget():
                self._open(session, command)
            case RunPass():
                self._batcher.add_pass(QueuedPass(session, command, arrived_s))
            case CancelPass(pass_id=pass_id):
                self._batcher.cancel_pass(session, pass_id)
            case CloseTarget():
                self._close(session)

    def _open(self, session: bytes, command: OpenTarget) -> None:
        self._batcher.cancel(session)
        self._sessions[session] = _Opened(command)
        try:
            self._open_in_target(session, command)
        except Exception as error:
            self._fail(session, error)
        else:
            self._batcher.add_prefill(session)

    def _open_in_target(self, session: bytes, command: OpenTarget) -> None:
        self._target.open(session, command.prompt_ids, command.committed_ids)
        if command.features is None:
            return
        if not isinstance(self._target, ListeningTarget):
            raise UnsupportedError("features were sent; this target takes text only.", field="features")
        self._target.listen(session, command.features)

    def _close(self, session: bytes) -> None:
        self._batcher.cancel(session)
        self._sessions.pop(session, None)
        try:
            self._target.close(session)
        except Exception as error:
            log_failure("closing a session failed", error)

    def _prefill(self, session: bytes) -> None:
        try:
            num_left = self._target.prefill(session)
        except Exception as error:
            self._fail(session, error)
            return
        if num_left > 0:
            return
        opened = self._sessions[session]
        opened.has_row = True
        self._batcher.finish_prefill(session)
        self._answer(session, PrefillDone(opened.command.incarnation))

    def _run_batch(self, batch: Sequence[QueuedPass]) -> None:
        """Score and judge; where a shared pass fails, each of its sessions is tried alone."""
        started_s = time.perf_counter()
        try:
            rows = self._score(batch)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0].session, error)
            else:
                for queued in batch:
                    self._run_batch([queued])
            return
        for queued, session_rows in zip(batch, rows, strict=True):
            self._judge(queued, session_rows, started_s)

    def _score(self, batch: Sequence[QueuedPass]) -> Sequence[Float32Array]:
        for queued in batch:
            self._restore_row(queued)
        return self._target.score(
            [
                ScoreRequest(one.session, one.command.length, one.command.committed_ids, one.command.draft_ids)
                for one in batch
            ]
        )

    def _restore_row(self, queued: QueuedPass) -> None:
        """A pass without committed ids needs the row that prefill left; one that was cut off has used it up."""
        opened = self._sessions.get(queued.session)
        if opened is None:
            raise BackendError("The session has no place in the target.")
        if not queued.command.committed_ids and not opened.has_row:
            command = opened.command
            self._open_in_target(queued.session, command)
            while self._target.prefill(queued.session):
                pass
        opened.has_row = False

    def _judge(self, queued: QueuedPass, rows: Float32Array, started_s: float) -> None:
        command = queued.command
        try:
            verdict = verify(
                rows,
                command.draft_ids,
                command.sampling,
                position=command.position,
                num_ids=self._target.info.num_ids,
                rule=command.rule,
                rank=command.rank,
                prompt_ids=command.prompt_ids,
                output_ids=command.output_ids,
                distributions=command.distributions,
                judged=command.judged,
                logprobs=command.logprobs,
                bonus=command.bonus,
            )
        except Exception as error:
            self._fail(queued.session, error)
            return
        done = PassDone(
            pass_id=command.pass_id,
            num_accepted=verdict.num_accepted,
            next_id=verdict.next_id,
            kind=verdict.kind,
            queue_s=started_s - queued.queued_s,
            verify_s=time.perf_counter() - started_s,
            logprobs=verdict.logprobs,
        )
        self._answer(queued.session, done)

    def _fail(self, session: bytes, error: Exception) -> None:
        """The session is over in the target; its own errors pass, foreign ones become a neutral `BackendError`."""
        if not isinstance(error, EdgedraftError):
            log_failure("the target failed on a session", error)
            error = BackendError("The target failed while running this session.")
        self._answer(session, TargetFailed(error))
        self._batcher.cancel(session)

    def _answer(self, session: bytes, event: CloudEvent) -> None:
        opened = self._sessions.get(session)
        if opened is not None:
            self._post(self._on_result, session, opened.command.incarnation, event)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None  # noqa: S101 - set by start, before the thread
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            logger.debug("the event loop is closed; a result was dropped")


def log_failure(what: str, error: BaseException) -> None:
    """Where it failed, without the error's own text: an engine may put token ids into that."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s\n%s", what, type(error).__name__, trace)
