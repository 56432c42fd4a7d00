"""What a cloud session allows, the states it goes through, and what it refuses to open."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from edgedraft.core.block_cut import PassCost
from edgedraft.core.strategy import check_rule
from edgedraft.errors import ContextLengthError, InvalidRequestError, UnsupportedError
from edgedraft.protocol.messages import Open
from edgedraft.speech_features import FeatureSpec
from edgedraft.types import Assist, Owner, Rule


class CloudState(enum.Enum):
    """Where a session stands; `CLOSED` is both before the first `Open` and after the end."""

    CLOSED = "closed"
    ASSEMBLING = "assembling"
    PREFILLING = "prefilling"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSessionSettings:
    """What the target and the operator allow (`config.CloudConfig`). All lengths in tokens.

    `features`: what of a recording the target listens to; None for text. `pass_cost`: what all sessions of the target
    learn of it together.
    """

    num_ids: int
    eos_ids: frozenset[int]
    context_length: int
    max_pending_tokens: int = 256
    assist_lead_tokens: int = 64
    features: FeatureSpec | None = None
    pass_cost: PassCost = field(default_factory=PassCost, compare=False)


def check_open(message: Open, context_length: int) -> None:
    """Refuse what this target cannot serve, naming the field. Raises `InvalidRequestError` or a child."""
    if message.num_prompt < 1:
        raise InvalidRequestError("prompt is empty.", field="prompt", remedy="Give at least one token.")
    num_held, max_length = message.num_prompt + message.num_committed, message.max_length
    if not num_held < max_length <= context_length:
        raise ContextLengthError(
            f"max_length is {max_length} with {num_held} tokens held; legal: above that, at most {context_length}.",
            field="max_length",
            remedy="Shorten the prompt or lower max_tokens.",
        )
    check_rule(message.rule, message.assist, eager=message.eager)
    if message.owner is Owner.EDGE and (message.assist is not Assist.NONE or message.eager):
        raise UnsupportedError("owner is 'edge', so the target may not write by itself.", field="assist")
    if message.owner is Owner.EDGE and message.logprobs:
        raise UnsupportedError("owner is 'edge', which commits ids that the target has not judged.", field="logprobs")
    if message.rule is Rule.RANK and message.owner is not Owner.EDGE:
        raise UnsupportedError("rule is 'rank', which needs owner 'edge'.", field="rule")
    if message.rule is Rule.RANK and message.rank < 1:
        raise InvalidRequestError(f"rank is {message.rank}; legal: 1 or more.", field="rank")
    if message.bonus and message.rule is not Rule.RANK:
        raise UnsupportedError("bonus is asked for; it goes with rule 'rank', others have one anyway.", field="bonus")
    if message.fork_of:
        raise UnsupportedError("fork_of names a session; this target does not share prefixes.", field="fork_of")
