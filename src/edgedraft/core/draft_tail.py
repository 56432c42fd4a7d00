"""The speculative tail: draft tokens after the committed text, and what has happened to each of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgedraft.core.events import DraftNext, TokenDrafted
from edgedraft.core.hedging import Hedge
from edgedraft.core.sequence import common_prefix_length
from edgedraft.core.strategy import Trigger, UploadState
from edgedraft.types import DraftToken


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How new committed text met the tail. `num_dropped`: tokens rolled back that no verdict was given for.

    `epoch`: the hedge's, where the text took that way.
    """

    contradicted: bool
    overtaken: bool
    num_dropped: int
    epoch: int | None = None


class DraftTail:
    """Tokens drafted after the log, oldest first.

    `num_sent` of them have travelled, up to `num_asked` a verdict was last asked for; the rest is what the trigger
    looks at. `num_messages`: messages that took tokens since then. `fired`: a verdict is due. `no_proposal`: the draft
    had nothing to propose after the last token.
    """

    def __init__(self) -> None:
        self.tokens: list[DraftToken] = []
        self.num_sent = 0
        self.num_asked = 0
        self.num_messages = 0
        self.fired = False
        self.no_proposal = False
        self._last_message_tokens = 0
        self._last_sent_s = -math.inf
        self._epoch = 0
        self._step: tuple[int, int] | None = None
        self._num_to_come = 0
        self._held_length = 0
        self.hedge: Hedge | None = None
        self.on_hedge = False

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_unsent(self) -> int:
        return len(self.tokens) - self.num_sent

    @property
    def num_ahead(self) -> int:
        """Tokens drafted since a verdict was last asked for."""
        return len(self.tokens) - self.num_asked

    @property
    def step_is_out(self) -> bool:
        return self._step is not None

    def line(self, length: int) -> Sequence[DraftToken]:
        """The tokens after `length` committed ones that the draft model goes on from: the tail, or up to the hedge."""
        if self.hedge is None or not self.on_hedge:
            return self.tokens
        return [*self.tokens[: self.hedge.position - length], *self.hedge.tokens]

    def open_hedge(self, offset: int, length: int, epoch: int) -> None:
        """Start a second way on with the other choice at `offset`."""
        first = self.tokens[offset]
        other = DraftToken(first.second_id, first.second_confidence, first.entropy)
        self.hedge = Hedge(position=length + offset, epoch=epoch, tokens=[other])

    def go_on(self, *, on_hedge: bool) -> None:
        """Draft behind the tail or behind the hedge from now on. The model holds what stands before the two part."""
        if on_hedge != self.on_hedge and self.hedge is not None:
            assert self._step is None, "invariant 3: a step that is out belongs to the way it was asked for"
            self._held_length = min(self._held_length, self.hedge.position)
            self.on_hedge = on_hedge

    def next_run(self, log: Sequence[int], num_tokens: int, *, with_second: bool = False) -> DraftNext:
        """Ask the draft model for `num_tokens` tokens after log and tail, telling it only what it does not hold.

        Invariant 4: the position drafted next is the end of what is held, in tokens and in the KV cache.
        """
        assert self._step is None, "invariant 3: one draft step at a time"
        line = self.line(len(log))
        position = len(log) + len(line)
        keep = self._held_length
        unseen = [*log[keep:], *(token.token_id for token in line[max(0, keep - len(log)) :])]
        self._held_length = position
        self._step = (self._epoch, position)
        self._num_to_come = num_tokens
        return DraftNext(self._epoch, position, keep, unseen, num_tokens, with_second)

    def take_step(self, event: TokenDrafted, stop_ids: Collection[int]) -> bool:
        """Whether `event` answers the step that is out; results of older epochs do not (invariant 3)."""
        if (event.epoch, event.position) != self._step:
            return False
        self._held_length = event.position
        self._num_to_come -= 1
        ended = event.token is None or event.token.token_id in stop_ids or self._num_to_come == 0
        self._step = None if ended else (event.epoch, event.position + 1)
        return True

    def pending(self, *, verdict_is_out: bool) -> Sequence[DraftToken]:
        """What the trigger looks at: tokens drafted since the last verdict was asked for.

        While one is out the first of them is a guess at the target's own next token, which nobody will judge.
        """
        return self.tokens[self.num_asked + verdict_is_out :]

    def add(self, token: DraftToken, trigger: Trigger, *, verdict_is_out: bool) -> None:
        self.tokens.append(token)
        pending = self.pending(verdict_is_out=verdict_is_out)
        self.fired = self.fired or (bool(pending) and trigger.fires(pending))

    def mark_asked(self) -> None:
        """A verdict on all of the tail has been asked for."""
        self.num_asked = len(self.tokens)
        self.num_messages = 0
        self.fired = False

    def mark_sent(self, num_tokens: int, now_s: float) -> None:
        """`num_tokens` more have travelled, in one message."""
        self.num_sent += num_tokens
        if num_tokens > 0:
            self.num_messages += 1
            self._last_message_tokens, self._last_sent_s = num_tokens, now_s

    def mark_hedge_sent(self, now_s: float) -> None:
        """All of the second way has travelled."""
        assert self.hedge is not None
        self._last_message_tokens, self._last_sent_s = self.hedge.num_unsent, now_s
        self.hedge.num_sent = len(self.hedge.tokens)

    def upload_state(self, now_s: float) -> UploadState:
        """What waits: of the tail, or, where that has all left, of the second way."""
        num_unsent = self.num_unsent or (self.hedge.num_unsent if self.hedge is not None else 0)
        since_s = now_s - self._last_sent_s
        return UploadState(num_unsent, self.num_messages, self._last_message_tokens, since_s)

    def forget_uploads(self) -> None:
        """What travelled may be lost: it has to travel, and be asked for, again."""
        self.num_sent = 0
        self.num_asked = 0
        self.num_messages = 0
        self._drop_hedge()

    def _drop_hedge(self) -> int:
        """Forget the second way, and the step that is out behind it; how many tokens that were."""
        hedge, self.hedge = self.hedge, None
        if hedge is None:
            return 0
        if self.on_hedge:
            self.on_hedge = False
            self._held_length = min(self._held_length, hedge.position)
            self._drop_step()
        return len(hedge.tokens)

    def clear(self, true_length: int) -> None:
        """Drop all tokens and the step that is out. What the draft model holds stays true up to `true_length`."""
        self._held_length = min(self._held_length, true_length)
        self.tokens = []
        self.fired = False
        self.no_proposal = False
        self.forget_uploads()
        self._drop_step()

    def _drop_step(self) -> None:
        self._epoch += 1
        self._step = None

    def reconcile(self, new_ids: Sequence[int], length: int, judged_end: int) -> Reconciled:
        """Meet `new_ids`, committed from position `length` on; a verdict was given up to position `judged_end`.

        Equal tokens leave the tail, and what follows them stays valid. At the first difference everything goes.
        """
        equal = common_prefix_length([token.token_id for token in self.tokens], new_ids)
        self.no_proposal = False
        end = length + len(new_ids)
        if equal < min(len(self.tokens), len(new_ids)):
            num_dropped = max(0, len(self.tokens) - max(judged_end - length, equal))
            hedge = self.hedge
            if hedge is not None and hedge.position == length + equal and hedge.agrees_with(new_ids, length):
                self._adopt(hedge, end)
                return Reconciled(contradicted=True, overtaken=False, num_dropped=num_dropped, epoch=hedge.epoch)
            num_dropped += len(hedge.tokens) if hedge is not None else 0
            self.clear(length + equal)
            return Reconciled(contradicted=True, overtaken=False, num_dropped=num_dropped)
        del self.tokens[:equal]
        self.num_sent = max(0, self.num_sent - equal)
        self.num_asked = max(0, self.num_asked - equal)
        num_dropped = self._drop_hedge() if self.hedge is not None and self.hedge.position < end else 0
        overtaken = self._overtaken(end)
        if not self.tokens:
            self.fired = False
        return Reconciled(contradicted=False, overtaken=overtaken, num_dropped=num_dropped)

    def _overtaken(self, end: int) -> bool:
        """Whether the text has reached the token that is being drafted; then nobody waits for it any more."""
        overtaken = self._step is not None and self._step[1] < end
        if overtaken:
            self._drop_step()
        return overtaken

    def _adopt(self, hedge: Hedge, end: int) -> None:
        """The text took the second way: what was drafted behind it is the tail now, as far as it goes past `end`."""
        num_settled = end - hedge.position
        if not self.on_hedge:
            self._held_length = min(self._held_length, hedge.position)
            self._drop_step()
        self.hedge, self.on_hedge, self.fired = None, False, False
        self.tokens = hedge.tokens[num_settled:]
        self.forget_uploads()
        self.num_sent = max(0, hedge.num_sent - num_settled)
        self._overtaken(end)
