"""Recorded texts made for a test."""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.backends.trace import RecordedText

EOS_ID = 9_999


def recorded_text(
    *,
    num_tokens: int = 40,
    wrong: Sequence[int] = (),
    num_prompt_tokens: int = 5,
    ends: bool = False,
    confidences: Sequence[float] | None = None,
    name: str = "text",
) -> RecordedText:
    """A text whose draft is wrong at the places of `wrong`, and unsure there; its second choice is right at every other
    of them. `ends`: its last id is `EOS_ID`.
    """
    target_ids = [300 + place for place in range(num_tokens)]
    if ends:
        target_ids[-1] = EOS_ID
    draft_ids = [7 if place in wrong else token_id for place, token_id in enumerate(target_ids)]
    probs = confidences or [0.2 if place in wrong else 0.95 for place in range(num_tokens)]
    seconds = [8 if place % 2 else target_id for place, target_id in enumerate(target_ids)]
    return RecordedText(
        id=name,
        kind="code",
        num_prompt_tokens=num_prompt_tokens,
        target_ids=tuple(target_ids),
        target_prob=(0.9,) * num_tokens,
        draft_ids=tuple(draft_ids),
        draft_prob=tuple(probs),
        draft_entropy=(0.3,) * num_tokens,
        target_rank_of_draft=(1,) * num_tokens,
        overlap=(0.9,) * num_tokens,
        draft_top5_ids=tuple(zip(draft_ids, seconds, strict=True)),
        draft_top5_probs=tuple((prob, 0.8 * (1 - prob)) for prob in probs),
    )
