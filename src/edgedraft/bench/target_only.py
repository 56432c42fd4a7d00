"""The target's own text for a request: one token after another, with no draft, session machine or network between.

The yardstick of every claim of exactness, so it shares with the product only the back end and the rule of choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.backends.base import ScoreRequest, TargetBackend
from edgedraft.core.sampling import choose
from edgedraft.types import SamplingParams

_SESSION_ID = b"target-only text"


def target_only_ids(
    target: TargetBackend,
    prompt_ids: Sequence[int],
    *,
    sampling: SamplingParams,
    max_tokens: int,
    eos_ids: Sequence[int] = (),
) -> list[int]:
    """At most `max_tokens` ids; the first of `eos_ids` ends the text and is its last id.

    Raises what the back end raises.
    """
    target.open(_SESSION_ID, prompt_ids, ())
    try:
        while target.prefill(_SESSION_ID):
            pass
        output_ids: list[int] = []
        while len(output_ids) < max_tokens and (not output_ids or output_ids[-1] not in eos_ids):
            length = len(prompt_ids) + len(output_ids)
            request = ScoreRequest(_SESSION_ID, max(len(prompt_ids), length - 1), output_ids[-1:], ())
            output_ids.append(
                choose(
                    target.score([request])[0][0],
                    sampling,
                    length,
                    num_ids=target.info.num_ids,
                    prompt_ids=prompt_ids,
                    output_ids=output_ids,
                )
            )
        return output_ids
    finally:
        target.close(_SESSION_ID)
