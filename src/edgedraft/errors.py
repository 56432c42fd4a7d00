"""Every error that edgedraft raises on purpose, in one tree.

* EdgedraftError
    * InvalidRequestError        a field of a request or a flag has a value that cannot be obeyed
        * UnsupportedError       legal, but not with this back end, rule or strategy
        * ContextLengthError     the prompt does not fit the model's context
    * ModelError                 a model cannot be found, read or run
        * ModelFileError         the file is missing, truncated or not a model
        * VocabularyMismatchError  draft and target do not share a vocabulary
        * BackendError           the engine failed while running
    * LinkError                  the cloud cannot be reached or answers nothing
        * CloudUnreachableError  no connection could be made
        * LinkLostError          the link went away and the request may not wait for it
    * AuthError                  missing or wrong token
    * InsecureBindError          a public address without token and TLS
    * ProtocolError              the peer broke the rules
        * VersionError           the peer speaks another protocol version
        * MalformedFrameError    bytes that are not a message
        * FrameTooLargeError     a frame or field above its bound
        * GapError               draft ids that leave a hole; says what was expected
    * SessionLostError           the cloud no longer has the session: open it again
    * SaturatedError             the cloud has no room; says when to come back

Each class carries its wire `code` and HTTP status. Messages name the field, the value and the remedy;
they never hold prompt text.
"""

from __future__ import annotations

from typing import ClassVar


class EdgedraftError(Exception):
    """Base of the tree. Catch it to catch everything that edgedraft raises on purpose."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class InvalidRequestError(EdgedraftError, ValueError):
    """A field has a value that cannot be obeyed. Also a `ValueError`, so that decoders report it."""

    code = "invalid_request"
    http_status = 400

    def __init__(self, message: str = "", *, field: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.field = field


class UnsupportedError(InvalidRequestError):
    """The field is legal, but this back end, rule or strategy cannot obey it."""

    code = "unsupported"


class ContextLengthError(InvalidRequestError):
    """The prompt, or prompt and `max_tokens` together, do not fit the model's context."""

    code = "context_length"


class ModelError(EdgedraftError):
    """A model cannot be found, read or run."""

    code = "model"
    http_status = 500


class ModelFileError(ModelError):
    """The file is missing, truncated, of another format or of another architecture."""

    code = "model_file"


class VocabularyMismatchError(ModelError):
    """Draft and target do not share a vocabulary. `first_id` is the first id that differs, if known."""

    code = "vocabulary_mismatch"
    http_status = 400

    def __init__(self, message: str = "", *, first_id: int | None = None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.first_id = first_id


class BackendError(ModelError):
    """The engine failed while running a pass."""

    code = "backend"


class LinkError(EdgedraftError):
    """The cloud cannot be reached or answers nothing."""

    code = "link"
    http_status = 502
    retryable = True


class CloudUnreachableError(LinkError):
    """No connection could be made."""

    code = "cloud_unreachable"


class LinkLostError(LinkError):
    """The link went away and the request was told not to wait for it."""

    code = "link_lost"


class AuthError(EdgedraftError):
    """Missing or wrong token."""

    code = "unauthorized"
    http_status = 401


class InsecureBindError(EdgedraftError):
    """Binding to a public address needs a token and TLS, or an explicit `--insecure`."""

    code = "insecure_bind"
    http_status = 500


class ProtocolError(EdgedraftError):
    """The peer broke a rule of the protocol."""

    code = "protocol"
    http_status = 400


class VersionError(ProtocolError):
    """The peer speaks another protocol version."""

    code = "version"


class MalformedFrameError(ProtocolError):
    """The bytes are not a message of this protocol version."""

    code = "malformed_frame"


class FrameTooLargeError(ProtocolError):
    """A frame or one of its fields is above its bound."""

    code = "frame_too_large"
    http_status = 413


class GapError(ProtocolError):
    """Draft ids start past the end of what the cloud holds. `expected` is the position to go on from."""

    code = "gap"
    retryable = True

    def __init__(self, message: str = "", *, expected: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.expected = expected


class SessionLostError(EdgedraftError):
    """The cloud no longer has the session (evicted, expired, restarted). The edge opens it again."""

    code = "session_lost"
    http_status = 410
    retryable = True


class SaturatedError(EdgedraftError):
    """The cloud has no room for another session now."""

    code = "saturated"
    http_status = 503
    retryable = True

    def __init__(self, message: str = "", *, retry_after_s: float = 1.0, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after_s = retry_after_s


def _walk(cls: type[EdgedraftError]) -> list[type[EdgedraftError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in _walk(child))]


def error_class(code: str) -> type[EdgedraftError]:
    """The class that carries a wire code; `EdgedraftError` for a code of a later version."""
    return {cls.code: cls for cls in _walk(EdgedraftError)}.get(code, EdgedraftError)
