"""The sessions that a target holds, each as its engine keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from edgedraft.errors import SaturatedError, SessionLostError

SessionT = TypeVar("SessionT")


class SessionTable(Generic[SessionT]):
    """At most `max_sessions` sessions by their ids."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[bytes, SessionT] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: bytes, make: Callable[[], SessionT]) -> SessionT:
        """The session of that id as it is held, or else a new one. Raises `SaturatedError` where there is no room."""
        session = self._sessions.get(session_id)
        if session is None:
            if len(self._sessions) >= self._max_sessions:
                raise SaturatedError(f"All {self._max_sessions} sessions of the target are in use.")
            session = self._sessions[session_id] = make()
        return session

    def find(self, session_id: bytes) -> SessionT:
        """Raises `SessionLostError` for a session that was closed or never opened."""
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionLostError("The target holds no such session.", remedy="Open it again.")
        return session

    def close(self, session_id: bytes) -> SessionT | None:
        """Take a session out; None where it is not held."""
        return self._sessions.pop(session_id, None)

    def clear(self) -> None:
        self._sessions.clear()
