"""The arms of a caption bench as data, and the strategy that each one stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from edgedraft.bench.caption_results import Arm
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.forced import ForcedEscalation, ForcedRule
from edgedraft.core.gate import Chance, Everything, Gate, Measure, Nothing, SendUnit, Threshold
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError
from edgedraft.schedule.caption_catalogue import PAPER_RANK, PAPER_THRESHOLD_NATS, SPARSE_BLOCK_TOKENS, gated
from edgedraft.schedule.catalogue import cloud_only

EDGE_ONLY, CLOUD_ONLY, EXACT, UGSD, SPARSE = "edge-only", "cloud-only", "exact", "ugsd", "ugsd-sparse"
IN_FIVES = "sparse, L=5"
"""What is doubted is asked about at the end of a block of five: fewer calls, and more drafted behind a correction."""
EVERYTHING, NOTHING, CHANCE = "everything", "nothing", "chance"
CLIP_STRIDE = 1_000_003
"""Keeps the draws of a gate of chance apart from clip to clip."""


def _blocks(name: str, tokens: int | None = None, **numbers: object) -> Arm:
    """Whole blocks by entropy, as in the paper, but rank 1: of fixed length, or 3, 5 and 7."""
    lengths = {} if tokens is None else dict.fromkeys(("least_tokens", "base_tokens", "most_tokens"), tokens)
    return Arm(name=name, **{"gate": Measure.ENTROPY.value, "tuned": True, **lengths, **numbers})  # type: ignore[arg-type]


def _sparse(name: str, measure: Measure) -> Arm:
    return _blocks(name, SPARSE_BLOCK_TOKENS, gate=measure.value, unit=SendUnit.TOKENS.value)


EDGE_ALONE = Arm(name=EDGE_ONLY, gate=NOTHING)
CLOUD_ALONE = Arm(name=CLOUD_ONLY, gate=CLOUD_ONLY)
ALL_EXACT = Arm(name=EXACT, gate=EVERYTHING)
ENDS = (EDGE_ALONE, CLOUD_ALONE, ALL_EXACT)
"""What every run has: the two ends of the scale, and all judged, which must equal the upper one."""

ARMS = (
    *ENDS,
    Arm(name="never", gate=NOTHING, least_tokens=3, base_tokens=3, most_tokens=3),
    Arm(name="always, rank 20", gate=EVERYTHING, rank=PAPER_RANK),
    Arm(name="ugsd, as published", gate=Measure.ENTROPY.value, threshold=PAPER_THRESHOLD_NATS, rank=PAPER_RANK),
    _blocks(UGSD),
    _blocks("ugsd, L=3", 3),
    _blocks("ugsd, L=5", 5),
    _blocks("ugsd, L=7", 7),
    _blocks("ugsd, from first", unit=SendUnit.FROM_FIRST.value),
    _blocks("ugsd, max-probability", gate=Measure.MAX_PROBABILITY.value),
    _blocks("ugsd, forced rules", forced=[rule.value for rule in ForcedRule]),
    _blocks("ugsd, bonus", bonus=True, draft_ahead=False),
    _sparse(SPARSE, Measure.MAX_PROBABILITY),
    _blocks(IN_FIVES, 5, gate=Measure.MAX_PROBABILITY.value, unit=SendUnit.TOKENS.value),
    _sparse("sparse, entropy", Measure.ENTROPY),
    _sparse("sparse, margin", Measure.MARGIN),
    _sparse("sparse, log-probability", Measure.LOG_PROBABILITY),
)
"""The arms of a whole run. Those that are `tuned` get their thresholds from the dev set."""

SAME_THRESHOLD = {"ugsd, forced rules": UGSD, "ugsd, bonus": UGSD, IN_FIVES: SPARSE}
"""Variants of another arm, which differ from it in one switch: they take its threshold."""


def control(arm: Arm, seed: int) -> Arm:
    """The same arm with a gate of chance; `shares` are set once those of the arm are known."""
    return msgspec.structs.replace(
        arm,
        name=f"{arm.name}, chance {seed}",
        gate=CHANCE,
        threshold=None,
        gate_seed=seed,
        controls=arm.name,
        tuned=False,
    )


def arms_named(names: Iterable[str] | None) -> list[Arm]:
    """Those of `ARMS`, with the ends in any case; None: all. Raises `InvalidRequestError` for a name that is none."""
    known = {arm.name: arm for arm in ARMS}
    wanted = list(known) if names is None else [*(arm.name for arm in ENDS), *names]
    if unknown := [name for name in wanted if name not in known]:
        raise InvalidRequestError(f"arms names '{unknown[0]}'; legal: {'; '.join(known)}.", field="arms")
    return [known[name] for name in dict.fromkeys(wanted)]


def strategy_of(arm: Arm, *, clip_number: int, language: str, text_of: Callable[[Sequence[int]], str]) -> Strategy:
    """What the arm does with one clip. `text_of`: the text of ids, for forced rules.

    Raises `InvalidRequestError` for an arm whose gate lacks its number, and what strategies raise.
    """
    if arm.gate == CLOUD_ONLY:
        return cloud_only()
    forced = None
    if arm.forced:
        forced = ForcedEscalation(frozenset(map(ForcedRule, arm.forced)), language, text_of)
    return gated(
        arm.name,
        gate_of(arm, clip_number, language),
        unit=arm.unit,
        rank=arm.rank,
        lengths=BlockLengths(least=arm.least_tokens, base=arm.base_tokens, most=arm.most_tokens),
        forced=forced,
        bonus=arm.bonus,
        draft_ahead=arm.draft_ahead,
    )


def gate_of(arm: Arm, clip_number: int = 0, language: str = "") -> Gate:
    """Raises `InvalidRequestError` for an arm whose gate lacks its number: of chance, its share in `language`."""
    if arm.gate == EVERYTHING:
        return Everything()
    if arm.gate == NOTHING:
        return Nothing()
    if arm.gate == CHANCE:
        if language not in arm.shares:
            raise _lacking(arm, "shares")
        return Chance(arm.shares[language], (arm.gate_seed or 0) * CLIP_STRIDE + clip_number)
    try:
        measure = Measure(arm.gate)
    except ValueError:
        legal = ", ".join([*Measure, EVERYTHING, NOTHING, CHANCE, CLOUD_ONLY])
        raise InvalidRequestError(f"gate is '{arm.gate}'; legal: {legal}.", field="gate") from None
    if arm.threshold is None:
        raise _lacking(arm, "threshold", "Give a dev set, a share or a threshold.")
    return Threshold(measure, arm.threshold)


def _lacking(arm: Arm, field: str, remedy: str = "") -> InvalidRequestError:
    return InvalidRequestError(f"{field} of arm '{arm.name}' is not set.", field=field, remedy=remedy)


def check_threshold(measure: Measure, threshold: float, num_ids: int) -> None:
    """Raises `InvalidRequestError` for a threshold that no token, or every one, would pass."""
    highest = {Measure.ENTROPY: math.log(num_ids), Measure.MAX_PROBABILITY: 1.0}.get(measure, math.inf)
    lowest = -math.inf if measure is Measure.LOG_PROBABILITY else 0.0
    if not lowest < threshold < highest:
        raise InvalidRequestError(
            f"threshold of {measure} is {threshold}; legal: above {lowest:g}, below {highest:.3g}.", field="threshold"
        )
