"""When a measured figure has changed so much that what was decided with it has to be decided anew."""

from __future__ import annotations

import math

from edgedraft.errors import InvalidRequestError

CHANGED_SHARE = 0.2
CONFIRMATIONS = 3


class ChangeGate:
    """Fires when a figure is off its reference by more than `relative`, `confirmations` times in a row on one side.

    The mean of those figures is then the new reference (PipeSD appendix D.2; the repetition is ours, so that noise
    does not fire it). `least`: a smaller difference never counts, whatever its share; in the figure's unit.
    `reference`: what the present decision rests on; None: the first figure.

    Feed it figures that are averages already: one for each round or estimate, not one for each token.
    """

    def __init__(
        self,
        relative: float = CHANGED_SHARE,
        *,
        least: float = 0.0,
        confirmations: int = CONFIRMATIONS,
        reference: float | None = None,
    ) -> None:
        if not 0.0 < relative < math.inf:  # which no NaN fulfils
            raise InvalidRequestError(f"relative is {relative}; legal: above 0, finite.", field="relative")
        if not 0.0 <= least < math.inf:
            raise InvalidRequestError(f"least is {least}; legal: 0 or more, finite.", field="least")
        if confirmations < 1:
            raise InvalidRequestError(f"confirmations is {confirmations}; legal: 1 or more.", field="confirmations")
        self.reference = reference
        self._relative = relative
        self._least = least
        self._confirmations = confirmations
        self._outside: list[float] = []

    def changed(self, value: float) -> bool:
        """Take the next figure; one that is not finite tells nothing."""
        if not math.isfinite(value):
            return False
        if self.reference is None:
            self.reference = value
            return False
        if not self._is_outside(value, self.reference):
            self._outside.clear()
            return False
        if self._outside and (value > self.reference) != (self._outside[-1] > self.reference):
            self._outside.clear()
        self._outside.append(value)
        if len(self._outside) < self._confirmations:
            return False
        self.settle(sum(figure / len(self._outside) for figure in self._outside))
        return True

    def settle(self, reference: float | None) -> None:
        """Compare with this from now on: what was just decided rests on it. None: with the next figure."""
        self.reference = reference
        self._outside.clear()

    def _is_outside(self, value: float, reference: float) -> bool:
        return abs(value - reference) > max(self._relative * abs(reference), self._least)
