"""What the simulator asks of the two models on one text: recorded ones, or real ones that answer after any ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgedraft.core.events import RunPass
from edgedraft.core.strategy import Strategy
from edgedraft.core.verify import Verdict
from edgedraft.speech_features import SpeechFeatures
from edgedraft.types import DraftToken


class TextModels(Protocol):
    """Draft and target on one text: both are functions of the ids before, and take no time of their own.

    `max_tokens`: how many tokens a request may ask for at the most; None for as many as it likes. `features`: what the
    target is given of the recording that the text is about; None for text.
    """

    @property
    def id(self) -> str: ...

    @property
    def num_prompt(self) -> int: ...

    @property
    def prompt_ids(self) -> Sequence[int]: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def features(self) -> SpeechFeatures | None: ...

    def draft_token(self, position: int, held: Sequence[int], took_s: float) -> DraftToken:
        """What the draft proposes at `position` after the ids `held`, in `took_s` of virtual time."""

    def verdict(self, log: Sequence[int], command: RunPass) -> Verdict:
        """What the target says of `command.draft_ids` after the first `command.position` ids of `log`."""

    def check(self, token_ids: Sequence[int], strategy: Strategy) -> None:
        """Raises `EdgedraftError` for an answer that cannot be: a fault of ours."""
