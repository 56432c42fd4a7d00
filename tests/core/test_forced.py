from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgedraft.core.forced import ForcedEscalation, ForcedRule
from edgedraft.core.gate import Nothing, SendUnit
from edgedraft.core.gating import Gating
from edgedraft.types import DraftToken

WORDS = ["speaks", ",", ".", "haha", "a", " calm", "平静", "\uff0c", "aa", "声音"]


def text_of(ids: Sequence[int]) -> str:
    return "".join(WORDS[token_id] for token_id in ids)


def block(*ids: int, entropy: float = 0.5) -> list[DraftToken]:
    return [DraftToken(token_id, 0.9, entropy) for token_id in ids]


@pytest.mark.parametrize(
    ("rule", "broken", "sound"),
    [
        (ForcedRule.PUNCTUATION_TOKENS, block(0, 1, 2), block(0, 1, 5)),
        (ForcedRule.ONE_CHARACTER, block(8, 4, 8), block(0, 5, 3)),
        (ForcedRule.LANGUAGE, block(6, 9), block(0, 6)),
        (ForcedRule.PUNCTUATION_DENSITY, block(4, 1, 2), block(0, 1)),
        (ForcedRule.NO_ENTROPY, block(0, 5, entropy=0.0), [*block(0, entropy=0.0), *block(5)]),
    ],
)
def test_each_rule_alone(rule: ForcedRule, broken: list[DraftToken], sound: list[DraftToken]) -> None:
    forced = ForcedEscalation(frozenset({rule}), "en", text_of)
    assert forced.finds(broken, []) is rule
    assert forced.finds(sound, []) is None
    assert ForcedEscalation(frozenset(set(ForcedRule) - {rule}), "en", text_of).finds(broken, []) is not rule


def test_chinese_wants_chinese() -> None:
    forced = ForcedEscalation(frozenset({ForcedRule.LANGUAGE}), "zh", text_of)
    assert forced.finds(block(0, 5), []) is ForcedRule.LANGUAGE
    assert forced.finds(block(6, 7), []) is None
    assert forced.finds(block(1, 2), []) is None  # marks alone are of no language


def test_a_cycle_may_have_begun_before_the_block() -> None:
    forced = ForcedEscalation(frozenset({ForcedRule.CYCLE}), "en", text_of)
    assert forced.finds(block(3, 4, 5), [9, 0, 3, 4, 5, 0]) is ForcedRule.CYCLE
    assert forced.finds(block(3, 4, 5), [9, 1, 3, 4, 5, 0]) is None
    assert forced.finds(block(3, 4, 5), [0]) is None


def test_a_broken_block_is_judged_whole_whatever_the_gate_says() -> None:
    forced = ForcedEscalation(frozenset({ForcedRule.NO_ENTROPY}), "en", text_of)
    gating = Gating(gate=Nothing(), unit=SendUnit.TOKENS, forced=forced)
    assert gating.judged(block(0, 5, entropy=0.0), 7, []) == [7, 8]
    assert gating.judged(block(0, 5), 7, []) == []
