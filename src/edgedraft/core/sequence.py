"""What both session machines need to know about a run of token ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgedraft.types import FinishReason


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading ids are equal."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def cut_at_end(
    new_ids: Sequence[int], *, length: int, max_length: int, stop_ids: Collection[int]
) -> tuple[list[int], FinishReason | None]:
    """The part of `new_ids` that belongs to the text when appended at `length`, and why the text ends, if it does.

    A stop id is kept, what follows it is not. A stop id that is also the last one allowed counts as a stop.
    """
    kept: list[int] = []
    for token_id in new_ids[: max_length - length]:
        kept.append(token_id)
        if token_id in stop_ids:
            return kept, FinishReason.STOP
    return kept, FinishReason.LENGTH if length + len(kept) >= max_length else None
