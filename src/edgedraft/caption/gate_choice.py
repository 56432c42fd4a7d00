"""What a user says about when the cloud is asked, checked early, and the strategy it stands for with one model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any

from edgedraft.backends.base import Tokenizer
from edgedraft.caption.kinds import check_kinds
from edgedraft.core.block_length import BlockLengths
from edgedraft.core.forced import ForcedEscalation, ForcedRule
from edgedraft.core.gate import Measure, SendUnit, Threshold
from edgedraft.core.gating import Gating
from edgedraft.core.strategy import Strategy
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.schedule.caption_catalogue import CAPTION_STRATEGIES, PAPER_RANK, gated, sparse_lengths

PAPER_VOCABULARY = 151_936
"""Of the model that the paper's rank of 20 was chosen for."""
MAX_RANK = 2**31
"""What `Open.rank` cannot hold."""
GATED = ("ugsd-sparse", "ugsd")
"""The strategies that have a threshold."""
_FLAGS = {"threshold": "gamma", "lengths": "block"}
"""What the command line calls a field, where its name is another."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    "threshold": (int, float, NoneType),
    "rank": (int, NoneType),
    "lengths": (BlockLengths, NoneType),
    "bonus": (bool,),
    "draft_ahead": (bool, NoneType),
}
_LEGAL = {
    Measure.ENTROPY: "above 0, below ln V (V: ids of the vocabulary)",
    Measure.MAX_PROBABILITY: "above 0, below 1",
    Measure.MARGIN: "above 0",
    Measure.LOG_PROBABILITY: "below 0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChoice:
    """`strategy`: of `CAPTION_STRATEGIES`. None: the strategy's own choice; for `threshold`: the calibrated one.

    `measure`, `unit`, `lengths`, `rank`, `forced`, `bonus`: see `Gating` and `Strategy`. `draft_ahead`: None is yes,
    unless there is a bonus. Raises `InvalidRequestError` for unknown names and illegal numbers, `UnsupportedError` for
    what the strategy has no use for.
    """

    strategy: str = GATED[0]
    threshold: float | None = None
    measure: str | None = None
    unit: str | None = None
    rank: int | None = None
    lengths: BlockLengths | None = None
    forced: Sequence[str] = ()
    bonus: bool = False
    draft_ahead: bool | None = None

    def __post_init__(self) -> None:
        _one_of("strategy", self.strategy, tuple(CAPTION_STRATEGIES))
        self._refuse_useless()
        if self.measure is not None:
            _one_of("measure", self.measure, tuple(Measure))
        if self.unit is not None:
            _one_of("unit", self.unit, tuple(SendUnit))
        if isinstance(self.forced, str):
            raise InvalidRequestError(f"forced is '{self.forced}'; legal: a list of rules.", field="forced")
        for rule in self.forced:
            _one_of("forced", rule, tuple(ForcedRule))
        check_kinds(self, _KINDS)
        if self.rank is not None and not 1 <= self.rank < MAX_RANK:
            raise InvalidRequestError(f"rank is {self.rank}; legal: 1 or more, below 2^31.", field="rank")
        if self.bonus and self.draft_ahead:
            raise UnsupportedError(
                "draft_ahead is set together with bonus: what is drafted ahead would start one token too early.",
                field="draft_ahead",
                remedy="Leave one of them out.",
            )
        if self.is_gated and self.threshold is not None:
            self._check_threshold(self.threshold)

    def _refuse_useless(self) -> None:
        useless: tuple[str, ...] = ()
        if self.strategy == "exact":
            useless = ("threshold", "measure", "unit", "rank", "forced")
        elif not self.is_gated:
            useless = tuple(each.name for each in fields(self) if each.name != "strategy")
        for each in fields(self):
            if each.name in useless and getattr(self, each.name) != each.default:
                flag = f" ({_FLAGS[each.name]})" if each.name in _FLAGS else ""
                raise UnsupportedError(
                    f"{each.name}{flag} is set, which strategy '{self.strategy}' has no use for.",
                    field=each.name,
                    remedy=f"Leave it out, or use one of: {', '.join(GATED)}.",
                )

    def _check_threshold(self, value: float) -> None:
        measure = self.gate_measure
        legal = value < 0.0 if measure is Measure.LOG_PROBABILITY else value > 0.0
        if not math.isfinite(value) or not legal or (measure is Measure.MAX_PROBABILITY and value >= 1.0):
            self._refuse_threshold(value, _LEGAL[measure])

    def _refuse_threshold(self, value: float, legal: str) -> None:
        raise InvalidRequestError(
            f"threshold (gamma) is {value:g}; legal for {self.gate_measure}: {legal}.",
            field="threshold",
            remedy="Give 'auto' to use the calibrated one.",
        )

    # -- what it comes to ----------------------------------------------------------------------------------------------

    @property
    def is_gated(self) -> bool:
        """Whether there is a threshold."""
        return self.strategy in GATED

    @property
    def is_exact(self) -> bool:
        """Whether it is the target's own caption, token for token."""
        return self.strategy in ("exact", "cloud-only")

    @property
    def gate_measure(self) -> Measure:
        return Measure(self.measure or (Measure.ENTROPY if self.strategy == "ugsd" else Measure.MAX_PROBABILITY))

    @property
    def gate_unit(self) -> SendUnit:
        return SendUnit(self.unit or (SendUnit.BLOCK if self.strategy == "ugsd" else SendUnit.TOKENS))

    @property
    def block_lengths(self) -> BlockLengths:
        if self.lengths is not None:
            return self.lengths
        return sparse_lengths(self.gate_unit) if self.strategy == "ugsd-sparse" else BlockLengths()

    @property
    def block(self) -> str:
        """The block lengths in a word: "1", or "3-5-7" where they change; "3-5-7-judged" where only verdicts count."""
        lengths = self.block_lengths
        sizes = (lengths.least, lengths.base, lengths.most)
        if len(set(sizes)) == 1:
            return str(sizes[0])
        return "-".join([*map(str, sizes), *([] if lengths.counts_local else ["judged"])])

    def gate_rank(self, num_ids: int) -> int:
        """The rank given; else the paper's, scaled with the vocabulary, or 1 where the strategy is not the paper's."""
        if self.rank is not None:
            return self.rank
        return max(1, round(PAPER_RANK * num_ids / PAPER_VOCABULARY)) if self.strategy == "ugsd" else 1

    def gating(self, threshold: float) -> Gating:
        """The gate with that threshold, without forced rules."""
        return Gating(
            gate=Threshold(self.gate_measure, threshold),
            unit=self.gate_unit,
            lengths=self.block_lengths,
        )

    def check_vocabulary(self, num_ids: int) -> None:
        """Raises `InvalidRequestError` for an entropy that no distribution over `num_ids` ids is above."""
        highest = math.log(num_ids)
        if self.is_gated and self.gate_measure is Measure.ENTROPY and (self.threshold or 0.0) >= highest:
            self._refuse_threshold(self.threshold or 0.0, f"above 0, below ln {num_ids} = {highest:.3f}")

    def build(self, tokenizer: Tokenizer, language: str, threshold: float | None) -> Strategy:
        """The strategy. `threshold`: what to take where none was given; the others need none."""
        numbers: dict[str, Any] = {}
        if self.strategy not in ("edge-only", "cloud-only"):
            ahead = not self.bonus if self.draft_ahead is None else self.draft_ahead
            numbers = {"lengths": self.block_lengths, "bonus": self.bonus, "draft_ahead": ahead}
        if not self.is_gated:
            return CAPTION_STRATEGIES[self.strategy](**numbers)
        wanted = self.threshold if self.threshold is not None else threshold
        if wanted is None:
            raise InvalidRequestError("threshold is missing.", field="threshold", remedy="Give one, or calibrate.")
        self.check_vocabulary(tokenizer.num_ids)
        return gated(
            self.strategy,
            Threshold(self.gate_measure, wanted),
            unit=self.gate_unit,
            rank=self.gate_rank(tokenizer.num_ids),
            forced=self._forced(tokenizer, language),
            **numbers,
        )

    def _forced(self, tokenizer: Tokenizer, language: str) -> ForcedEscalation | None:
        if not self.forced:
            return None

        def text_of(token_ids: Sequence[int]) -> str:
            return b"".join(map(tokenizer.token_bytes, token_ids)).decode(errors="replace")

        return ForcedEscalation(frozenset(map(ForcedRule, self.forced)), language, text_of)


def _one_of(field: str, value: str, legal: Sequence[str]) -> None:
    if value not in legal:
        raise InvalidRequestError(f"{field} is '{value}'; legal: {', '.join(legal)}.", field=field)
