"""Derived figures, one function each. All are pure functions of raw records; None where there is nothing to divide by.

Times are in seconds, sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any

from edgedraft.errors import EdgedraftError
from edgedraft.metrics.records import RequestRecord, RoundRecord

ROUND_PARTS = ("draft_s", "upload_s", "queue_s", "verify_s", "network_s")
_ROUNDING_S = 1e-6


def _ratio(dividend: float, divisor: float) -> float | None:
    return dividend / divisor if divisor else None


# -- time ------------------------------------------------------------------------------------------------------------


def ttft_s(record: RequestRecord) -> float | None:
    """Time to first token: request sent until the first committed token reached the caller.

    Includes the queue, the prefill and a round trip.
    """
    return record.first_token_s


def tpt_s(*records: RequestRecord) -> float | None:
    """Time per token: total time over committed tokens, each summed over all `records` first. Includes TTFT."""
    return _ratio(sum(record.total_s for record in records), sum(record.counters.num_committed for record in records))


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token after the first: (total - TTFT) / (committed tokens - 1)."""
    first_s, num_tokens = record.first_token_s, record.counters.num_committed
    return None if first_s is None or num_tokens < 2 else (record.total_s - first_s) / (num_tokens - 1)


def part_s(record: RequestRecord, part: str) -> float | None:
    """One of `ROUND_PARTS`, summed over the request's rounds; None without rounds, where it was never measured."""
    return sum(getattr(round_, part) for round_ in record.rounds) if record.rounds else None


def draft_alone_s(record: RequestRecord) -> float | None:
    """What so many tokens would have taken without the cloud: up to the first drafted one, then a median step for each.

    None where nothing was drafted. An estimate: the draft's own text may be longer or shorter.
    """
    if not record.draft_steps_s:
        return None
    first_s, *others_s = record.draft_steps_s
    num_others = max(record.counters.num_committed - 1, 0)
    return record.began_s + first_s + num_others * (statistics.median(others_s) if others_s else first_s)


# -- acceptance ------------------------------------------------------------------------------------------------------


def acceptance_rate(record: RequestRecord) -> float | None:
    """Accepted / judged draft tokens, over the whole request. The next token is in neither."""
    return _ratio(record.counters.num_accepted, record.counters.num_judged)


def acceptance_rate_per_position(record: RequestRecord) -> list[float]:
    """For each place in a draft, from 0: rounds that accepted it / rounds that had it."""
    longest = max((round_.num_drafted for round_ in record.rounds), default=0)
    return [
        sum(round_.num_accepted > place for round_ in record.rounds)
        / sum(round_.num_drafted > place for round_ in record.rounds)
        for place in range(longest)
    ]


def mean_acceptance_length(record: RequestRecord) -> float | None:
    """1 + accepted / rounds: tokens a round gives, next token included."""
    share = _ratio(record.counters.num_accepted, record.counters.num_rounds)
    return None if share is None else 1 + share


def rollback_rate(record: RequestRecord) -> float | None:
    """Rounds with a rejection / rounds."""
    return _ratio(sum(round_.num_accepted < round_.num_drafted for round_ in record.rounds), len(record.rounds))


# -- cost ------------------------------------------------------------------------------------------------------------


def target_passes_per_token(record: RequestRecord) -> float | None:
    """Target passes / committed tokens: 1 where the target writes alone."""
    return _ratio(record.counters.num_target_passes, record.counters.num_committed)


def tokens_per_target_pass(record: RequestRecord) -> float | None:
    """Committed tokens / target passes."""
    return _ratio(record.counters.num_committed, record.counters.num_target_passes)


def bytes_up_per_token(record: RequestRecord) -> float | None:
    """Bytes from edge to cloud / committed tokens, the prompt's one journey included."""
    return _ratio(record.bytes_up, record.counters.num_committed)


def bytes_down_per_token(record: RequestRecord) -> float | None:
    """Bytes from cloud to edge / committed tokens."""
    return _ratio(record.bytes_down, record.counters.num_committed)


def tokens_up_per_token(record: RequestRecord) -> float | None:
    """Draft ids that travelled, repeats included / committed tokens."""
    return _ratio(record.counters.tokens_up, record.counters.num_committed)


def verified_share(record: RequestRecord) -> float | None:
    """Where the edge owns the text: tokens that a verdict was asked for / tokens drafted, corrected blocks whole."""
    return _ratio(record.counters.num_judged, record.counters.num_gated)


# -- all of them -----------------------------------------------------------------------------------------------------


def accounting(record: RequestRecord) -> dict[str, Any]:
    """The figures that every answer carries. Raw counts first, then the derived ones, then what was controlled."""
    counters = record.counters
    return {
        "ttft_s": ttft_s(record),
        "total_s": record.total_s,
        "tpt_s": tpt_s(record),
        "tpot_s": tpot_s(record),
        "num_rounds": counters.num_rounds,
        "num_drafted": counters.num_drafted,
        "num_judged": counters.num_judged,
        "num_accepted": counters.num_accepted,
        "num_committed": counters.num_committed,
        "num_discarded": counters.num_discarded,
        "num_reused": counters.num_reused,
        "num_target_passes": counters.num_target_passes,
        "num_rollbacks": counters.num_rollbacks,
        "num_reopens": counters.num_reopens,
        "num_resumes": counters.num_resumes,
        "num_reconnects": counters.num_reconnects,
        "num_gated": counters.num_gated,
        "num_local": counters.num_local,
        "num_unverified": counters.num_unverified,
        "tokens_up": counters.tokens_up,
        "bytes_up": record.bytes_up,
        "bytes_down": record.bytes_down,
        "acceptance_rate": acceptance_rate(record),
        "mean_acceptance_length": mean_acceptance_length(record),
        "rollback_rate": rollback_rate(record),
        "target_passes_per_token": target_passes_per_token(record),
        "tokens_per_target_pass": tokens_per_target_pass(record),
        "bytes_up_per_token": bytes_up_per_token(record),
        "bytes_down_per_token": bytes_down_per_token(record),
        "tokens_up_per_token": tokens_up_per_token(record),
        "verified_share": verified_share(record),
        **{part: part_s(record, part) for part in ROUND_PARTS},
        **dataclasses.asdict(record.control),
    }


def check_round(round_: RoundRecord) -> None:
    """Raises `EdgedraftError` naming the round and the fault: parts that are not times or miss the round's length by
    more than a microsecond, or more tokens accepted than drafted.
    """
    name = f"round {round_.round_id}"
    for field in ("round_s", *ROUND_PARTS):
        value = getattr(round_, field)
        if not (math.isfinite(value) and value >= -_ROUNDING_S):
            raise EdgedraftError(f"{name}: {field} is {value}; legal: 0 or more seconds.")
    total_s = sum(getattr(round_, part) for part in ROUND_PARTS)
    if abs(total_s - round_.round_s) > _ROUNDING_S:
        raise EdgedraftError(f"{name}: round_s is {round_.round_s}, but its parts add up to {total_s}.")
    if not 0 <= round_.num_accepted <= round_.num_drafted:
        raise EdgedraftError(
            f"{name}: num_accepted is {round_.num_accepted}; legal: 0 to num_drafted = {round_.num_drafted}."
        )
