"""What the two session machines are told, and what they ask for. Plain data; time is always an argument.

The shells (`edge/runtime`, `cloud/app`, the tests) turn sockets, threads and clocks into these and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.core.strategy import Strategy
from edgedraft.errors import EdgedraftError
from edgedraft.protocol.messages import CommitKind, SessionFromCloud, SessionFromEdge
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import CommittedToken, DraftDistribution, DraftToken, FinishReason, Rule, SamplingParams

# -- edge: events ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the request."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A connection is there and its handshake is done. `channel` is this session's handle on it."""

    channel: int
    rtt_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection is gone; the shell reconnects by itself and will send `LinkUp`."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of this session arrived from the cloud."""

    message: SessionFromCloud


@dataclass(frozen=True, slots=True)
class TokenDrafted:
    """One answer to `DraftNext`, with its epoch and position. `token` is None where the draft had no proposal."""

    epoch: int
    position: int
    token: DraftToken | None


@dataclass(frozen=True, slots=True)
class DraftUnavailable:
    """The draft model cannot go on (context full, engine failed): finish without it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The link took the message that asked for a verdict; `upload_s` is how long that took."""

    upload_s: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer set by the last `SetTimer` is due. A timer that was replaced must not fire."""


@dataclass(frozen=True, slots=True)
class StopStringFound:
    """The text layer completed a stop string with the token at `length - 1`: the answer ends there."""

    length: int


@dataclass(frozen=True, slots=True)
class StrategyChanged:
    """Go on with this strategy: other numbers, another trigger or plan, with or without the draft. The rule stays."""

    strategy: Strategy


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user no longer wants the answer."""


EdgeEvent = (
    Start
    | LinkUp
    | LinkDown
    | MessageReceived
    | TokenDrafted
    | DraftUnavailable
    | Uploaded
    | TimerFired
    | StopStringFound
    | StrategyChanged
    | CancelRequested
)

# -- edge: commands --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DraftNext:
    """Roll the draft model back to `keep_length` tokens, append `token_ids`, draft from `position` on.

    Always `position == keep_length + len(token_ids)`. A run of up to `num_tokens` tokens is drafted, each answered by a
    `TokenDrafted` of the same epoch as soon as it is there. It ends early where nothing is proposed, at a stop id, and
    where the next command comes. `with_second`: tell the second choices too.
    """

    epoch: int
    position: int
    keep_length: int
    token_ids: Sequence[int]
    num_tokens: int = 1
    with_second: bool = False


@dataclass(frozen=True, slots=True)
class Connect:
    """The cloud is needed from here on: answered by `LinkUp`, or by `LinkDown` where it cannot be had."""


@dataclass(frozen=True, slots=True)
class SendToCloud:
    """Put a message on the link, in order. `asks` marks the one whose upload time is to be told (`Uploaded`)."""

    message: SessionFromEdge
    asks: bool = False


@dataclass(frozen=True, slots=True)
class EmitTokens:
    """These tokens are committed: show them. Never taken back."""

    tokens: Sequence[CommittedToken]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Replace the session's one timer; None stops it."""

    at_s: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should be told, once, in words."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The request is over, with its one reason. Nothing follows."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Fail:
    """The request is over with an error. Nothing follows."""

    error: EdgedraftError


EdgeCommand = DraftNext | Connect | SendToCloud | EmitTokens | SetTimer | Notice | Finish | Fail

# -- cloud: events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeMessage:
    """A message of this session arrived from the edge. `connection` names the link it came by."""

    message: SessionFromEdge
    connection: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A link of this session is gone."""

    connection: int


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The target holds prompt and committed ids of this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class PassDone:
    """The answer to `RunPass`. `next_id` is None where the rule gives no next token (rule *rank*, all accepted).

    `logprobs`: where asked for, one for each accepted id and the next one.
    """

    pass_id: int
    num_accepted: int
    next_id: int | None
    kind: CommitKind
    queue_s: float
    verify_s: float
    logprobs: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class TargetFailed:
    """Prefill or pass failed; the session is lost unless the error says that the request itself is at fault."""

    error: EdgedraftError


@dataclass(frozen=True, slots=True)
class Evicted:
    """The shell needs the room: forget the session and tell the edge."""

    reason: str


CloudEvent = EdgeMessage | ConnectionLost | PrefillDone | PassDone | TargetFailed | Evicted

# -- cloud: commands -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToEdge:
    """Put a message on the link named `connection`, in order."""

    message: SessionFromCloud
    connection: int


@dataclass(frozen=True, slots=True)
class OpenTarget:
    """Register the session with the target and prefill it; answered by `PrefillDone` or `TargetFailed`.

    `features`: the recording, where the target listens to one.
    """

    incarnation: int
    prompt_ids: Sequence[int]
    committed_ids: Sequence[int]
    features: SpeechFeatures | None = None


class Priority(int):
    """Who goes first in the target's queue; lower is sooner."""


REQUESTED, EAGER, OWN = Priority(0), Priority(1), Priority(2)


@dataclass(frozen=True, slots=True)
class RunPass:
    """Score `draft_ids` after the log, judge them, answer with `PassDone`. At most one is out per session.

    `length`: tokens of the log that the target already holds. `committed_ids`: the log's ids after those.
    `position`: where `draft_ids` start, which is the log's length. `prompt_ids` and `output_ids` are the history for
    penalties, empty where none is set. `judged`: offsets up for judgement, None for all. `logprobs`: give those of
    the ids that the verdict commits. `bonus`: with rule *rank*, give a next token after full acceptance too.
    """

    pass_id: int
    priority: Priority
    length: int
    committed_ids: Sequence[int]
    position: int
    draft_ids: Sequence[int]
    rule: Rule
    rank: int
    sampling: SamplingParams
    prompt_ids: Sequence[int] = ()
    output_ids: Sequence[int] = ()
    distributions: Sequence[DraftDistribution] = ()
    judged: Sequence[int] | None = None
    logprobs: bool = False
    bonus: bool = False


@dataclass(frozen=True, slots=True)
class CancelPass:
    """Take the pass out of the queue if it has not begun; its answer, if any, is ignored."""

    pass_id: int


@dataclass(frozen=True, slots=True)
class CloseTarget:
    """Free the session's place in the target and forget the session."""


CloudCommand = SendToEdge | OpenTarget | RunPass | CancelPass | CloseTarget
