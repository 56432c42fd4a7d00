"""What is asked of a captioner, checked early."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType

from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.kinds import check_kinds
from edgedraft.core.gate import Everything
from edgedraft.core.strategy import Strategy
from edgedraft.errors import EdgedraftError, InvalidRequestError, UnsupportedError
from edgedraft.speech_features import FeatureDtype, FeatureSpec
from edgedraft.types import OnLinkLoss, SamplingParams

DEFAULT_MAX_TOKENS = 128
GREEDY = SamplingParams()
_KINDS: Mapping[str, tuple[type, ...]] = {
    "language": (str, NoneType),
    "strategy": (Strategy, GateChoice),
    "max_tokens": (int,),
    "on_link_loss": (OnLinkLoss, NoneType),
    "features": (FeatureSpec, NoneType),
    "dtype": (FeatureDtype,),
    "sampling": (SamplingParams,),
    "calibrated_with": (str,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionRequest:
    """What a caption is to be. Raises `InvalidRequestError` naming the field.

    `language`: ISO 639-1; None: the model's first. `strategy`: of `schedule.caption_catalogue`, or a choice, whose open
    numbers are those calibrated for the draft. `on_link_loss`: what to do without the cloud; None: go on alone, but
    wait where the caption is to be the target's own. `features`: what may leave the device; None: what the draft was
    made to send. `dtype`: how it travels. `calibrated_with`: the target, where the strategy's numbers depend on one; a
    cloud with another gets a notice.
    """

    language: str | None = None
    strategy: Strategy | GateChoice = dataclasses.field(default_factory=GateChoice)
    max_tokens: int = DEFAULT_MAX_TOKENS
    on_link_loss: OnLinkLoss | None = None
    features: FeatureSpec | None = None
    dtype: FeatureDtype = FeatureDtype.INT8
    sampling: SamplingParams = GREEDY
    calibrated_with: str = ""

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS)
        if self.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens is {self.max_tokens}; legal: 1 or more.", field="max_tokens")
        if self.is_exact and not self.sampling.greedy:
            raise UnsupportedError(
                f"temperature is {self.sampling.temperature}; an exact caption is greedy.", field="temperature"
            )

    @property
    def is_exact(self) -> bool:
        """Whether the caption is the target's own, token for token, as long as the cloud can be reached."""
        if isinstance(self.strategy, GateChoice):
            return self.strategy.is_exact
        gating = self.strategy.gating
        if gating is None:
            return self.strategy.uses_cloud
        return isinstance(gating.gate, Everything) and self.strategy.rank == 1

    @property
    def settled_strategy(self) -> Strategy:
        """Raises `EdgedraftError` where it is still a choice; see `AsyncCaptioner.settled`."""
        if isinstance(self.strategy, GateChoice):
            raise EdgedraftError("the request is not settled.", remedy="Use: captioner.settled(request).")
        return self.strategy

    @property
    def link_loss(self) -> OnLinkLoss:
        if self.on_link_loss is not None:
            return self.on_link_loss
        return OnLinkLoss.WAIT if self.is_exact else OnLinkLoss.LOCAL
