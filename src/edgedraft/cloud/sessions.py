"""The table of sessions: routes events to them, carries out what they ask for, keeps their number bounded.

Lives on the event loop's thread and never waits. Sessions are keyed by subject and session id, so that an id of
somebody else's is simply unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgedraft.cloud.worker import TargetCommand, log_failure
from edgedraft.core.cloud_session import CloudSession
from edgedraft.core.cloud_settings import CloudSessionSettings, CloudState
from edgedraft.core.events import (
    CloseTarget,
    CloudCommand,
    CloudEvent,
    ConnectionLost,
    EdgeMessage,
    Evicted,
    SendToEdge,
    TargetFailed,
)
from edgedraft.errors import BackendError, EdgedraftError, ProtocolError, SaturatedError, SessionLostError
from edgedraft.protocol.codec import encode, error_to_wire
from edgedraft.protocol.messages import Cancel, Close, Open, Resume, SessionFromEdge
from edgedraft.types import SESSION_ID_BYTES

RETRY_AFTER_S = 1.0
MAX_ENDED_CHANNELS = 64
CLOSE_MOVED = 1001


class Link(Protocol):
    """The sending half of a connection; neither method waits."""

    def send(self, frame: bytes) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


class Worker(Protocol):
    """What the table needs of `TargetWorker`."""

    @property
    def ready(self) -> bool: ...

    @property
    def num_waiting(self) -> int: ...

    def submit(self, session: bytes, command: TargetCommand) -> None: ...


@dataclass(slots=True, eq=False)
class Connection:
    """One WebSocket. `ended`: channels whose session is over and whose edge has been told; messages of theirs that
    were still on their way are dropped."""

    number: int
    subject: str
    link: Link
    channels: dict[int, Entry] = field(default_factory=dict)
    ended: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_ENDED_CHANNELS))

    def unbind(self, channel: int) -> None:
        self.channels.pop(channel, None)
        if channel not in self.ended:
            self.ended.append(channel)


@dataclass(slots=True, eq=False)
class Entry:
    """One session in the table. `target_key`: its name in the target, unique however subjects choose their ids."""

    key: tuple[str, bytes]
    target_key: bytes
    session: CloudSession
    last_used_s: float
    connection: Connection | None = None
    channel: int = 0
    expiry: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class TableStats:
    """For /health. `num_waiting`: passes and prefills in the target's queue. `num_tokens`: held by all sessions."""

    num_sessions: int
    num_connected: int
    max_sessions: int
    num_waiting: int
    num_tokens: int
    saturated: bool


class SessionTable:
    """All sessions of one cloud. `worker` must be set before the first message."""

    worker: Worker

    def __init__(self, settings: CloudSessionSettings, *, max_sessions: int, expiry_s: float) -> None:
        self._settings = settings
        self._max_sessions = max_sessions
        self._expiry_s = expiry_s
        self._entries: dict[tuple[str, bytes], Entry] = {}
        self._by_target_key: dict[bytes, Entry] = {}
        self._connections: dict[int, Connection] = {}
        self._num_connections = 0
        self._num_opened = 0

    def __len__(self) -> int:
        return len(self._entries)

    # -- connections -----------------------------------------------------------------------------------------------

    def connect(self, subject: str, link: Link) -> Connection:
        self._num_connections += 1
        connection = Connection(self._num_connections, subject, link)
        self._connections[connection.number] = connection
        return connection

    def disconnect(self, connection: Connection) -> None:
        """The link is gone: its sessions learn it at once and expire unless they are resumed."""
        self._connections.pop(connection.number, None)
        for entry in list(connection.channels.values()):
            entry.connection = None
            self._dispatch(entry, ConnectionLost(connection.number))
            if self._entries.get(entry.key) is entry:
                reason = f"No connection for {self._expiry_s:g} s."
                entry.expiry = asyncio.get_running_loop().call_later(self._expiry_s, self._evict, entry, reason)
        connection.channels.clear()

    # -- messages --------------------------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: SessionFromEdge) -> None:
        """Handle a message of a session. What is wrong with it is answered on its channel; nothing is raised."""
        try:
            if isinstance(message, Open | Resume):
                self._attach(connection, message)
                return
            entry = connection.channels.get(message.channel)
            if entry is not None:
                entry.last_used_s = time.perf_counter()
                self._dispatch(entry, EdgeMessage(message, connection.number))
            elif message.channel not in connection.ended and not isinstance(message, Cancel | Close):
                raise SessionLostError(f"channel {message.channel} has no session.", remedy="Open it first.")
        except EdgedraftError as error:
            self.refuse(connection, message, error)
        except Exception as error:
            # A fault of ours, in one session: the connection carries others.
            log_failure(f"a session failed on {type(message).__name__}", error)
            self.refuse(connection, message, EdgedraftError("The cloud failed on this session."))

    def refuse(self, connection: Connection, message: SessionFromEdge, error: EdgedraftError) -> None:
        """Answer with an error; what follows on a channel without a session is dropped until it is opened."""
        connection.link.send(encode(error_to_wire(error, message.channel, message.incarnation)))
        if message.channel not in connection.channels:
            connection.unbind(message.channel)

    def _attach(self, connection: Connection, message: Open | Resume) -> None:
        key = (connection.subject, message.session_id)
        entry = self._entries.get(key)
        bound = connection.channels.get(message.channel)
        if bound is not None and bound is not entry:
            raise ProtocolError(f"channel {message.channel} already carries another session.")
        if entry is not None:
            entry.last_used_s = time.perf_counter()
            self._dispatch(entry, EdgeMessage(message, connection.number))
            self._bind(entry, connection, message.channel)
        elif isinstance(message, Open):
            self._open(connection, message, key)
        else:
            raise SessionLostError("The cloud does not hold this session.", remedy="Open it again.")

    def _open(self, connection: Connection, message: Open, key: tuple[str, bytes]) -> None:
        """Room is made only for an `Open` that the session itself accepts."""
        if not self.worker.ready:
            raise BackendError("The target has stopped.", remedy="Restart the cloud.")
        now_s = time.perf_counter()
        session = CloudSession(message.session_id, self._settings)
        commands = session.handle(EdgeMessage(message, connection.number), now_s)
        self._num_opened += 1
        entry = Entry(key, self._num_opened.to_bytes(SESSION_ID_BYTES, "big"), session, now_s)
        if session.state is not CloudState.CLOSED:
            self._make_room()
            self._entries[key] = entry
            self._by_target_key[entry.target_key] = entry
        elif not commands:
            raise ProtocolError("incarnation and attach are counted from 1.")
        self._execute(entry, commands)
        self._bind(entry, connection, message.channel)

    def _make_room(self) -> None:
        if len(self._entries) < self._max_sessions:
            return
        idle = [entry for entry in self._entries.values() if entry.connection is None]
        if not idle:
            raise SaturatedError(
                f"All {self._max_sessions} sessions are in use.",
                retry_after_s=RETRY_AFTER_S,
                remedy="Come back later, or raise --max-sessions.",
            )
        self._evict(min(idle, key=lambda entry: entry.last_used_s), "The room was needed for another session.")

    def _bind(self, entry: Entry, connection: Connection, channel: int) -> None:
        """Follow the session to where it says that it is now; the link it left is closed if it carries nothing else."""
        if entry.session.connection != connection.number or entry.session.channel != channel:
            return
        if self._entries.get(entry.key) is not entry:
            connection.unbind(channel)
            return
        old = entry.connection
        if old is not None and (old is not connection or entry.channel != channel):
            old.unbind(entry.channel)
            if old is not connection and not old.channels:
                old.link.close(CLOSE_MOVED, "its sessions moved to a newer connection")
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
        entry.connection, entry.channel = connection, channel
        connection.channels[channel] = entry

    # -- the target ------------------------------------------------------------------------------------------------

    def on_target(self, target_key: bytes, incarnation: int, event: CloudEvent) -> None:
        """A result of the worker; one for a session that is gone, or for another incarnation of it, is dropped."""
        entry = self._by_target_key.get(target_key)
        if entry is not None and entry.session.incarnation == incarnation:
            self._dispatch(entry, event)

    def on_crash(self) -> None:
        """The target's thread is gone: no session can go on."""
        for entry in list(self._entries.values()):
            self._dispatch(entry, TargetFailed(BackendError("The target has stopped.")))

    # -- forgetting ------------------------------------------------------------------------------------------------

    def evict_all(self, reason: str) -> None:
        """Forget every session, telling those that are connected."""
        for entry in list(self._entries.values()):
            self._evict(entry, reason)

    def _evict(self, entry: Entry, reason: str) -> None:
        self._dispatch(entry, Evicted(reason))

    def _forget(self, entry: Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        self._by_target_key.pop(entry.target_key, None)
        if entry.expiry is not None:
            entry.expiry.cancel()
        if entry.connection is not None:
            entry.connection.unbind(entry.channel)
            entry.connection = None

    # -- sessions --------------------------------------------------------------------------------------------------

    def _dispatch(self, entry: Entry, event: CloudEvent) -> None:
        try:
            self._execute(entry, entry.session.handle(event, time.perf_counter()))
        except Exception as error:
            # A fault of ours, in one session: the others must not feel it.
            log_failure(f"a session failed on {type(event).__name__}", error)
            self._abandon(entry)

    def _abandon(self, entry: Entry) -> None:
        if entry.connection is not None:
            lost = SessionLostError("The cloud failed on this session.")
            entry.connection.link.send(encode(error_to_wire(lost, entry.channel, entry.session.incarnation)))
        self._execute(entry, [CloseTarget()])

    def _execute(self, entry: Entry, commands: Sequence[CloudCommand]) -> None:
        for command in commands:
            if isinstance(command, SendToEdge):
                connection = self._connections.get(command.connection)
                if connection is not None:
                    connection.link.send(encode(command.message))
                continue
            self.worker.submit(entry.target_key, command)
            if isinstance(command, CloseTarget):
                self._forget(entry)

    def stats(self) -> TableStats:
        entries = self._entries.values()
        num_connected = sum(entry.connection is not None for entry in entries)
        return TableStats(
            num_sessions=len(entries),
            num_connected=num_connected,
            max_sessions=self._max_sessions,
            num_waiting=self.worker.num_waiting,
            num_tokens=sum(entry.session.length for entry in entries),
            saturated=num_connected >= self._max_sessions,
        )
