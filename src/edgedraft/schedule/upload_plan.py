"""Into which messages a draft is cut so that its last token arrives soonest (PipeSD, Algorithm 1 and Eqs. 2-6).

Tokens are drafted one after another whatever the link does; a message leaves when its last token is drafted and the
message before it has left the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.link import LinkCost

_TIE_S = 1e-12
"""Plans nearer than that are equally good: rounding must not choose between them."""


def plan_batches(num_tokens: int, cost: LinkCost, draft_s: float) -> tuple[int, ...]:
    """Sizes of the messages, in tokens, oldest first; they add up to `num_tokens`.

    `draft_s`: seconds to draft one token. Of equally good plans the one with the largest last message, which mostly
    has the fewest. Time grows with the square of `num_tokens`. Raises `InvalidRequestError` for a plan of nothing and
    for an illegal time.
    """
    if num_tokens < 1:
        raise InvalidRequestError(
            f"num_tokens is {num_tokens}; legal: 1 or more.", field="num_tokens", remedy="Plan for at least one token."
        )
    _check_draft_s(draft_s)
    ends_s = [0.0]  # ends_s[j]: when the first j tokens have left the link, at best
    starts = [0]  # starts[j]: where the last message of that plan starts
    for end in range(1, num_tokens + 1):
        drafted_s = draft_s * end
        best_s, best_start = math.inf, 0
        for start in range(end):
            end_s = max(ends_s[start], drafted_s) + cost.message_s(end - start)
            if end_s < best_s - _TIE_S:
                best_s, best_start = end_s, start
        ends_s.append(best_s)
        starts.append(best_start)
    return _sizes(starts)


def _sizes(starts: Sequence[int]) -> tuple[int, ...]:
    """Walk back from the last token."""
    sizes: list[int] = []
    end = len(starts) - 1
    while end > 0:
        sizes.append(end - starts[end])
        end = starts[end]
    return tuple(reversed(sizes))


def plan_cost_s(sizes: Sequence[int], cost: LinkCost, draft_s: float) -> float:
    """Seconds from the first draft step until the last message has left the link.

    `sizes`: tokens per message, oldest first. Raises `InvalidRequestError` for no message and for an empty one.
    """
    if not sizes or min(sizes) < 1:
        raise InvalidRequestError(f"sizes is {tuple(sizes)}; legal: at least one size, each 1 or more.", field="sizes")
    _check_draft_s(draft_s)
    num_drafted = 0
    free_s = 0.0
    for size in sizes:
        num_drafted += size
        free_s = max(free_s, draft_s * num_drafted) + cost.message_s(size)
    return free_s


def _check_draft_s(draft_s: float) -> None:
    if not 0.0 <= draft_s < math.inf:  # which no NaN fulfils
        raise InvalidRequestError(f"draft_s is {draft_s}; legal: 0 or more, finite.", field="draft_s")
