"""How long the models take: declared times, with a seeded jitter for the draft."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from edgedraft.errors import InvalidRequestError


def _check_times(profile: object, *names: str) -> None:
    for name in names:
        value = getattr(profile, name)
        if not 0 <= value < math.inf:  # which no NaN fulfils
            raise InvalidRequestError(f"{name} is {value}; legal: 0 or more seconds.", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeProfile:
    """The draft model on its device. Times in seconds.

    `draft_s`: one draft step, which takes in the id before it. `draft_jitter`: a step takes `draft_s` times a number
    uniform in 1 - jitter to 1 + jitter. `append_s_per_token`: each further id that has to be taken in first, such as a
    bonus token. `prefill_s_per_token`: the same for ids of the prompt. `listen_s_per_s`: hearing a recording before
    the first step, for each of its seconds. Raises `InvalidRequestError` naming the field.
    """

    draft_s: float
    draft_jitter: float = 0.0
    append_s_per_token: float = 0.0
    prefill_s_per_token: float = 0.0
    listen_s_per_s: float = 0.0

    def __post_init__(self) -> None:
        _check_times(self, "draft_s", "append_s_per_token", "prefill_s_per_token", "listen_s_per_s")
        if not 0 <= self.draft_jitter < 1:
            raise InvalidRequestError(
                f"draft_jitter is {self.draft_jitter}; legal: 0 or more, below 1.", field="draft_jitter"
            )

    def step_s(self, rng: Random) -> float:
        """One draft step, with its jitter."""
        return (
            self.draft_s * rng.uniform(1 - self.draft_jitter, 1 + self.draft_jitter)
            if self.draft_jitter
            else self.draft_s
        )

    def taking_in_s(self, num_ids: int, num_prompt_ids: int) -> float:
        """What comes before a step that follows `num_ids` new ids, the first `num_prompt_ids` of them of the prompt."""
        num_more = max(0, num_ids - num_prompt_ids - 1)
        return self.prefill_s_per_token * num_prompt_ids + self.append_s_per_token * num_more


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetProfile:
    """The target model on its machine. Times in seconds.

    A pass takes `step_s`, plus `per_draft_s` for each draft id in it and `per_session_s` for each session beyond the
    first. A prompt is taken in at `prefill_s_per_token`, at most `prefill_chunk_tokens` at once; a recording is heard
    first, in `listen_s_per_s` for each of its seconds. Raises `InvalidRequestError` naming the field.
    """

    step_s: float
    per_draft_s: float = 0.0
    per_session_s: float = 0.0
    prefill_s_per_token: float = 0.0
    prefill_chunk_tokens: int = 512
    listen_s_per_s: float = 0.0

    def __post_init__(self) -> None:
        _check_times(self, "step_s", "per_draft_s", "per_session_s", "prefill_s_per_token", "listen_s_per_s")
        if self.prefill_chunk_tokens < 1:
            raise InvalidRequestError(
                f"prefill_chunk_tokens is {self.prefill_chunk_tokens}; legal: 1 or more.", field="prefill_chunk_tokens"
            )

    def pass_s(self, num_draft_ids: Sequence[int]) -> float:
        """One pass over sessions that have so many draft ids each."""
        return self.step_s + self.per_draft_s * sum(num_draft_ids) + self.per_session_s * (len(num_draft_ids) - 1)
