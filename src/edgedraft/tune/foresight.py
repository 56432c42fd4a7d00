"""What other thresholds would have done with the text seen so far, and how long that would have taken.

Twenty tokens are two to five rounds, and how many of them hold a wrong token is chance: the time measured on one
such stretch scatters by 40 %. Yet every judged token tells its confidence and whether it was right, and neither
depends on the thresholds. So each pair of thresholds can be played over the whole text, and only what it costs needs
measuring: seconds a round and seconds a drafted token. The Gaussian process then learns what this leaves out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from edgedraft.tune.gaussian_process import Float64Array
from edgedraft.types import DraftToken

MAX_DRAFT_TOKENS = 64
KEPT_SHARE = 0.1
_TINY = 1e-9


@dataclass(slots=True)
class _Stretch:
    """Sums over the rounds of one trial."""

    num_rounds: int = 0
    num_drafted: int = 0
    num_tokens: int = 0


class Foresight:
    """Plays `thresholds`, float64 (m, 2) as (token, sequence), over what `saw` is told; learns costs from `timed`.

    `max_draft_tokens`: where a draft ends in any case. A draft that holds a wrong token goes on to where its trigger
    fires, over the confidences of the text that came instead: those of the tokens it would have drafted are not known.
    """

    def __init__(self, thresholds: Float64Array, max_draft_tokens: int = MAX_DRAFT_TOKENS) -> None:
        self._token, self._sequence = thresholds[:, 0], thresholds[:, 1]
        self._max_draft_tokens = max_draft_tokens
        num_pairs = len(thresholds)
        self._confidence, self._length = np.ones(num_pairs), np.zeros(num_pairs)
        self._is_doomed = np.zeros(num_pairs, dtype=bool)
        self._doomed_confidence, self._doomed_length = np.ones(num_pairs), np.zeros(num_pairs)
        self._rounds, self._drafted, self._tokens = (np.zeros(num_pairs) for _ in range(3))
        self._moments = np.zeros(4)  # of the rounds' drafted tokens x and seconds y: sums of x, x², y, xy
        self._num_timed = 0
        self._stretches: list[_Stretch] = []
        self._open = _Stretch()

    # -- what happened -------------------------------------------------------------------------------------------------

    def saw(self, judged: Sequence[DraftToken], num_accepted: int) -> None:
        """The tokens of a verdict up to the first wrong one; what was drafted behind it is not the text's."""
        for index, token in enumerate(judged[: num_accepted + 1]):
            self._play(token.confidence, is_right=index < num_accepted)

    def timed(self, num_drafted: int, num_tokens: int, elapsed_s: float) -> None:
        """One round as it was: tokens drafted, tokens committed, and the time since the verdict before."""
        self._moments += (num_drafted, num_drafted**2, elapsed_s, num_drafted * elapsed_s)
        self._num_timed += 1
        self._open.num_rounds += 1
        self._open.num_drafted += num_drafted
        self._open.num_tokens += num_tokens

    def end_stretch(self) -> None:
        """The trial is over; the next rounds belong to the next one."""
        self._stretches.append(self._open)
        self._open = _Stretch()

    def after_drift(self) -> Self:
        """Nothing known of costs, and the text seen so far at a tenth of its weight.

        Where the link has changed the text is as true as before, where the text has changed it misleads, and time per
        token cannot tell which. Measured over both, a tenth helps early on and is soon outweighed.
        """
        other = copy.deepcopy(self)
        for counts in (other._rounds, other._drafted, other._tokens):
            counts *= KEPT_SHARE
        other._moments, other._num_timed = np.zeros(4), 0
        other._stretches, other._open = [], _Stretch()
        return other

    # -- what would happen ---------------------------------------------------------------------------------------------

    def log_times(self) -> tuple[Float64Array, Float64Array]:
        """Logarithms of seconds a token: (m,) of every pair over all the text, (k,) of each ended stretch as it was."""
        round_s, drafted_s = self._costs()
        whole = (round_s * self._rounds + drafted_s * self._drafted) / np.maximum(self._tokens, 1.0)
        each = [
            (round_s * stretch.num_rounds + drafted_s * stretch.num_drafted) / max(stretch.num_tokens, 1)
            for stretch in self._stretches
        ]
        return np.log(whole + _TINY), np.log(np.asarray(each, dtype=np.float64) + _TINY)

    def _costs(self) -> tuple[float, float]:
        """Seconds a round and a drafted token: the line of least squares through the rounds, neither below 0."""
        x, xx, y, xy = self._moments.tolist()
        n = self._num_timed
        spread = n * xx - x * x
        if n == 0 or y <= 0:
            return 1.0, 1.0
        if spread <= _TINY * n * xx:  # rounds of one length: the costs cannot be told apart, so halve them
            return 0.5 * y / n, 0.5 * y / max(x, 1.0)
        drafted_s = min(max((n * xy - x * y) / spread, 0.0), xy / xx)
        return max((y - drafted_s * x) / n, 0.0), drafted_s

    def _play(self, confidence: float, *, is_right: bool) -> None:
        """One token of the text, for all pairs at once."""
        is_low = confidence <= self._token
        self._go_on_with_doomed(confidence, is_low)
        self._confidence *= confidence
        self._length += 1
        fires = is_low | (self._confidence <= self._sequence) | (self._length >= self._max_draft_tokens)
        self._drafted += 1
        self._tokens += 1
        if is_right:
            self._tokens += fires  # the bonus token
            self._rounds += fires
            begins = fires
        else:
            self._rounds += 1
            self._is_doomed = ~fires
            self._doomed_confidence, self._doomed_length = self._confidence.copy(), self._length.copy()
            begins = np.ones_like(fires)
        self._confidence[begins] = 1.0
        self._length[begins] = 0

    def _go_on_with_doomed(self, confidence: float, is_low: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Drafts behind a wrong token, counted beside the round that begins after it."""
        self._drafted += self._is_doomed
        self._doomed_confidence *= confidence
        self._doomed_length += 1
        ends = is_low | (self._doomed_confidence <= self._sequence) | (self._doomed_length >= self._max_draft_tokens)
        self._is_doomed &= ~ends
