"""How many bytes a message takes on the link."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from edgedraft.errors import InvalidRequestError
from edgedraft.protocol.codec import wire_size_bytes
from edgedraft.protocol.messages import Draft, SessionFromCloud, SessionFromEdge

PAPER_TOKEN_BYTES = 290_304
"""A distribution over 32,256 ids, nine bytes each: what PipeSD ships with every draft token."""

_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """`name`: what reports call it. `token_payload_bytes`: what a draft token takes beside its id."""

    name: str
    token_payload_bytes: int = 0

    def __post_init__(self) -> None:
        if self.token_payload_bytes < 0:
            raise InvalidRequestError(
                f"token_payload_bytes is {self.token_payload_bytes}; legal: 0 or more.", field="token_payload_bytes"
            )


IDS = Payload(name="ids")
PAPER = Payload(name="paper", token_payload_bytes=PAPER_TOKEN_BYTES)


def message_bytes(message: SessionFromEdge | SessionFromCloud, *, masked: bool) -> int:
    """WebSocket header and payload of the message as it is encoded. (The codec's checks are for what comes in.)"""
    return wire_size_bytes(len(_ENCODER.encode(message)), masked=masked)


class UpwardSizes:
    """Sizes of what an edge sends, told of each message in order.

    The token that is drafted first behind a question for a verdict is a guess of the target's own next token: it can
    only be right or dropped, so that it travels as a bare id (PipeSD, appendix B).
    """

    def __init__(self, payload: Payload) -> None:
        self._token_bytes = payload.token_payload_bytes
        self._guess: tuple[int, int, int] | None = None  # incarnation, epoch, position

    def size_bytes(self, message: SessionFromEdge) -> int:
        size = message_bytes(message, masked=True)
        if not self._token_bytes or not isinstance(message, Draft):
            return size
        end = message.position + len(message.token_ids)
        num_full = len(message.token_ids)
        if self._guess is not None and self._guess[:2] == (message.incarnation, message.epoch):
            num_full -= message.position <= self._guess[2] < end
        if message.verify:
            self._guess = (message.incarnation, message.epoch, end)
        return size + num_full * self._token_bytes
