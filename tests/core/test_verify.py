"""Acceptance: each rule by its definition, row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgedraft.core import verify as verify_module
from edgedraft.core.distribution import distribution_probs
from edgedraft.core.sampling import choose, draft_token, process
from edgedraft.core.verify import Verdict, rank_of, verify
from edgedraft.errors import BackendError, ProtocolError, UnsupportedError
from edgedraft.protocol.messages import CommitKind
from edgedraft.types import DraftDistribution, Float32Array, Rule, SamplingParams

NUM_IDS = 12
GREEDY = SamplingParams()
SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=0.8, seed=11),
    SamplingParams(temperature=1.0, seed=12, top_k=5, top_p=0.9, min_p=0.02),
    SamplingParams(
        temperature=0.9,
        seed=13,
        repetition_penalty=1.4,
        presence_penalty=1.0,
        frequency_penalty=0.7,
        logit_bias={2: 1.5},
    ),
]


def table(seed: int, num_ids: int = NUM_IDS) -> Float32Array:
    """A toy model: row = logits after the last token."""
    return np.random.default_rng(seed).normal(0, 2, (num_ids, num_ids)).astype(np.float32)


def rows_after(model: Float32Array, last: int, draft_ids: Sequence[int]) -> Float32Array:
    return np.stack([model[last], *[model[i % len(model)] for i in draft_ids]])


def one_hot_distribution(token_id: int) -> DraftDistribution:
    return DraftDistribution([token_id], np.array([1.0], "<f2").tobytes())


def distribution(probs: dict[int, float]) -> DraftDistribution:
    return DraftDistribution(list(probs), np.array(list(probs.values()), "<f2").tobytes())


def logits_of(*probs: float) -> Float32Array:
    return np.log(np.array(probs, np.float64)).astype(np.float32)


def target_only(model: Float32Array, sampling: SamplingParams, prompt: list[int], length: int) -> list[int]:
    output: list[int] = []
    for _ in range(length):
        row = model[(prompt + output)[-1]]
        history = {"num_ids": NUM_IDS, "prompt_ids": prompt, "output_ids": output}
        output.append(choose(row, sampling, len(prompt) + len(output), **history))
    return output


# -- match -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "full", "truncated", "penalties"])
@pytest.mark.parametrize("wrong_at", [0, 1, 2, 3, None])
def test_match_accepts_up_to_the_first_difference(sampling: SamplingParams, wrong_at: int | None) -> None:
    """Forced rejection at each offset; penalties at row i see the draft ids before it."""
    model, prompt = table(1), [3, 5]
    truth = target_only(model, sampling, prompt, 5)
    draft_ids = truth[:4]
    if wrong_at is not None:
        draft_ids[wrong_at] = (draft_ids[wrong_at] + 1) % NUM_IDS
    verdict = verify(
        rows_after(model, 5, draft_ids), draft_ids, sampling, position=2, num_ids=NUM_IDS, rule=Rule.MATCH,
        prompt_ids=prompt, output_ids=[],
    )  # fmt: skip
    if wrong_at is None:
        assert verdict == Verdict(4, truth[4], CommitKind.BONUS)
    else:
        assert verdict == Verdict(wrong_at, truth[wrong_at], CommitKind.RECOVERED)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "full", "truncated", "penalties"])
def test_match_text_is_the_targets_for_any_draft(sampling: SamplingParams) -> None:
    """Drafts by the target itself, by another model, by chance and of every length: one text, k + 1 ids a round."""
    model, other, prompt = table(1), table(2), [3, 5]
    truth = target_only(model, sampling, prompt, 30)
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 5):
        for drafter in ("target", "other", "chance"):
            output: list[int] = []
            while len(output) < 30:
                draft_ids: list[int] = []
                for _ in range(length):
                    tokens = prompt + output + draft_ids
                    row = {"target": model, "other": other, "chance": rng.normal(0, 1, (NUM_IDS, NUM_IDS))}[drafter]
                    draft = draft_token(
                        row[tokens[-1]].astype(np.float32), sampling, len(tokens), num_ids=NUM_IDS, rule=Rule.MATCH,
                        prompt_ids=prompt, output_ids=output + draft_ids,
                    )  # fmt: skip
                    assert draft is not None
                    draft_ids.append(draft.token_id)
                verdict = verify(
                    rows_after(model, (prompt + output)[-1], draft_ids), draft_ids, sampling,
                    position=len(prompt) + len(output), num_ids=NUM_IDS, rule=Rule.MATCH,
                    prompt_ids=prompt, output_ids=output,
                )  # fmt: skip
                assert verdict.next_id is not None
                output += [*draft_ids[: verdict.num_accepted], verdict.next_id]
                if drafter == "target":
                    assert verdict.num_accepted == length
            assert output[:30] == truth


def test_match_stops_looking_at_the_first_difference() -> None:
    rows = np.array([[0, 1], [math.nan, 0], [math.nan, 0]], np.float32)
    assert verify(rows, [0, 1], GREEDY, position=0, num_ids=2, rule=Rule.MATCH).num_accepted == 0
    with pytest.raises(BackendError, match="nan"):
        verify(rows, [1, 1], GREEDY, position=0, num_ids=2, rule=Rule.MATCH)


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RATIO])
@pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=["greedy", "full"])
def test_without_a_draft_the_target_writes_by_itself(rule: Rule, sampling: SamplingParams) -> None:
    verdict = verify(table(1)[:1], [], sampling, position=9, num_ids=NUM_IDS, rule=rule)
    assert (verdict.num_accepted, verdict.kind) == (0, CommitKind.OWN)
    if rule is Rule.MATCH:
        assert verdict.next_id == choose(table(1)[0], sampling, 9, num_ids=NUM_IDS)


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("bad_id", [NUM_IDS, NUM_IDS + 1, 10**6, -1])
def test_ids_outside_the_vocabulary_are_never_accepted(rule: Rule, bad_id: int) -> None:
    """The padding of the row is its most probable part, and the rank is generous."""
    rows = np.full((2, NUM_IDS + 2), 0.0, np.float32)
    rows[:, NUM_IDS:] = 50.0
    distributions = [one_hot_distribution(bad_id)] if rule is Rule.RATIO else []
    for seed in range(20):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        arguments = {"position": 4, "num_ids": NUM_IDS, "rule": rule, "rank": 10**9, "distributions": distributions}
        if rule is Rule.RATIO and bad_id < 0:
            with pytest.raises(ProtocolError):
                verify(rows, [bad_id], sampling, **arguments)
            continue
        verdict = verify(rows, [bad_id], sampling, **arguments)
        assert (verdict.num_accepted, verdict.kind) == (0, CommitKind.RECOVERED)
        assert verdict.next_id in range(NUM_IDS)


def test_rows_of_another_shape_are_an_error() -> None:
    for rows in (np.zeros((2, 4), np.float32), np.zeros(4, np.float32)):
        with pytest.raises(BackendError, match="2 draft ids"):
            verify(rows, [1, 2], GREEDY, position=0, num_ids=4, rule=Rule.MATCH)


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0, seed=1, logit_bias={0: -100.0}),
        SamplingParams(temperature=1.0, seed=1, presence_penalty=2.0, frequency_penalty=2.0),
    ],
    ids=["bias", "penalties"],
)
def test_bias_and_penalties_hold_at_every_position(rule: Rule, sampling: SamplingParams) -> None:
    """Id 0 is the target's clear favourite; as an accepted, recovered, bonus or own token it must obey alike."""
    row = np.array([12.0, 0.0, 0.0, 0.0], np.float32)
    history = [0] * 20 if sampling.presence_penalty else []
    allowed = {1, 2, 3}
    for seed in range(40):
        request = msgspec.structs.replace(sampling, seed=seed)
        for draft_ids in ([0, 0], [1, 0], [1, 2], []):
            verdict = verify(
                np.stack([row] * (len(draft_ids) + 1)), draft_ids, request, position=5, num_ids=4, rule=rule, rank=3,
                output_ids=history, distributions=[one_hot_distribution(i) for i in draft_ids],
            )  # fmt: skip
            kept = draft_ids[: verdict.num_accepted]
            assert set(kept) <= allowed
            assert verdict.next_id in allowed | {None}


# -- ratio -----------------------------------------------------------------------------------------------------------


def ratio(rows: Float32Array, draft_ids: list[int], distributions: list[DraftDistribution], seed: int) -> Verdict:
    sampling = SamplingParams(temperature=1.0, seed=seed)
    return verify(
        rows, draft_ids, sampling, position=3, num_ids=rows.shape[1], rule=Rule.RATIO, distributions=distributions
    )


def test_ratio_accepts_with_the_quotient_and_recovers_from_the_residual() -> None:
    """Target (.5 .3 .2), draft (.25 .5 .25), id 1 drafted: kept with .6, else all of the residual is on id 0."""
    rows = np.stack([logits_of(0.5, 0.3, 0.2)] * 2)
    sent = distribution({0: 0.25, 1: 0.5, 2: 0.25})
    verdicts = [ratio(rows, [1], [sent], seed) for seed in range(2000)]
    accepted = [v for v in verdicts if v.num_accepted == 1]
    assert len(accepted) / 2000 == pytest.approx(0.6, abs=0.04)
    assert {v.kind for v in accepted} == {CommitKind.BONUS}
    assert {(v.next_id, v.kind) for v in verdicts if v.num_accepted == 0} == {(0, CommitKind.RECOVERED)}
    bonus = Counter(v.next_id for v in accepted)
    assert [bonus[i] / len(accepted) for i in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.05)


def test_ratio_always_accepts_what_the_target_likes_more() -> None:
    rows = np.stack([logits_of(0.5, 0.3, 0.2)] * 2)
    sent = distribution({0: 0.25, 1: 0.5, 2: 0.25})
    assert all(ratio(rows, [0], [sent], seed).num_accepted == 1 for seed in range(300))


def test_ratio_never_accepts_what_the_target_rules_out() -> None:
    rows = np.array([[0.0, -math.inf, 0.0]] * 2, np.float32)
    for seed in range(100):
        verdict = ratio(rows, [1], [one_hot_distribution(1)], seed)
        assert verdict.num_accepted == 0
        assert verdict.next_id in (0, 2)


def test_ratio_draws_accept_recover_and_bonus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def recorded(seed: int, choice: int, position: int, purpose: bytes) -> float:
        asked.append((position, purpose))
        return 0.9

    monkeypatch.setattr(verify_module, "keyed_uniform", recorded)
    rows = np.stack([logits_of(0.5, 0.3, 0.2)] * 3)
    ratio(rows, [0, 0], [distribution({0: 0.5, 1: 0.5})] * 2, seed=1)
    assert asked == [(3, b"accept"), (4, b"accept"), (5, b"bonus")]
    asked.clear()
    ratio(rows, [2, 0], [one_hot_distribution(2), one_hot_distribution(0)], seed=1)
    assert asked == [(3, b"accept"), (3, b"recover")]


def test_ratio_at_temperature_0_is_the_targets_text() -> None:
    model = table(4)
    truth = target_only(model, GREEDY, [0], 3)
    for draft_ids in ([*truth[:2]], [truth[0], (truth[1] + 1) % NUM_IDS]):
        verdict = verify(
            rows_after(model, 0, draft_ids), draft_ids, GREEDY, position=1, num_ids=NUM_IDS, rule=Rule.RATIO,
            distributions=[one_hot_distribution(i) for i in draft_ids],
        )  # fmt: skip
        assert [*draft_ids[: verdict.num_accepted], verdict.next_id] == truth[: verdict.num_accepted + 1]


def test_ratio_accepts_everything_from_an_equal_draft() -> None:
    """Truncated alike on both sides, only the rounding to float16 can reject."""
    row = table(6)[0]
    accepted = 0
    for seed in range(300):
        sampling = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, seed=seed)
        draft = draft_token(row, sampling, 3, num_ids=NUM_IDS, rule=Rule.RATIO)
        assert draft is not None
        assert draft.distribution is not None
        kept = process(row, sampling, num_ids=NUM_IDS).ids
        assert distribution_probs(draft.distribution)[0].tolist() == kept.tolist()
        accepted += verify(
            np.stack([row, row]), [draft.token_id], sampling, position=3, num_ids=NUM_IDS, rule=Rule.RATIO,
            distributions=[draft.distribution],
        ).num_accepted  # fmt: skip
    assert accepted >= 299


def test_ratio_refuses_what_does_not_belong_together() -> None:
    rows = np.zeros((2, 3), np.float32)
    with pytest.raises(ProtocolError, match="1 draft ids came with 0"):
        ratio(rows, [1], [], seed=0)
    with pytest.raises(ProtocolError, match="no probability"):
        ratio(rows, [1], [distribution({0: 0.5, 2: 0.5})], seed=0)
    with pytest.raises(UnsupportedError) as caught:
        verify(rows, [1], GREEDY, position=0, num_ids=3, rule=Rule.RATIO, judged=[0])
    assert caught.value.field == "judged"


# -- log-probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "full", "truncated", "penalties"])
@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("num_draft", [0, 1, 4])
def test_logprobs_are_those_of_the_committed_ids_each_after_those_before_it(
    sampling: SamplingParams, rule: Rule, num_draft: int
) -> None:
    """Of every rule and outcome; asking for them changes nothing else."""
    model, prompt, output = table(1), [3, 5], [4]
    num_accepted = set()
    for seed in range(20):
        draft_ids = [int(i) for i in np.random.default_rng(seed).integers(0, NUM_IDS, num_draft)]
        if seed < 5:
            draft_ids = target_only(model, sampling, [*prompt, *output], num_draft)
        arguments = {
            "position": 3, "num_ids": NUM_IDS, "rule": rule, "rank": 6, "prompt_ids": prompt, "output_ids": output,
            "distributions": [one_hot_distribution(i) for i in draft_ids] if rule is Rule.RATIO else (),
        }  # fmt: skip
        rows = rows_after(model, 4, draft_ids)
        plain, verdict = (
            verify(rows, draft_ids, sampling, logprobs=wanted, **arguments)  # type: ignore[arg-type]
            for wanted in (False, True)
        )
        assert plain.logprobs is None
        assert verdict.logprobs is not None
        assert replace(verdict, logprobs=None) == plain
        committed = [*draft_ids[: verdict.num_accepted], *([] if verdict.next_id is None else [verdict.next_id])]
        edits = msgspec.structs.replace(sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        expected = []
        for offset, token_id in enumerate(committed):
            history = {"prompt_ids": prompt, "output_ids": output + committed[:offset]}
            probs = process(rows[offset], edits, num_ids=NUM_IDS, **history).probs()
            expected.append(math.log(probs[token_id]))
        assert verdict.logprobs == pytest.approx(expected, abs=1e-9)
        num_accepted.add(verdict.num_accepted)
    assert max(num_accepted) == num_draft or rule is Rule.RATIO
    assert min(num_accepted) < num_draft or num_draft == 0


# -- rank ------------------------------------------------------------------------------------------------------------


def test_rank_counts_higher_logits_and_equal_ones_with_a_lower_id() -> None:
    row = np.array([1, 3, 2, 3, 2, -math.inf], np.float32)
    assert [rank_of(row, i) for i in range(5)] == [5, 1, 3, 2, 4]
    assert [rank_of(row, i) for i in (5, 6, -1)] == [math.inf] * 3


@pytest.mark.parametrize("temperature", [0.0, 0.1, 2.0])
def test_rank_drops_from_the_first_violation_on(temperature: float) -> None:
    """Whatever the temperature and truncation: ranks are of logits before both."""
    sampling = SamplingParams(temperature=temperature, top_k=1, seed=5)
    rows = np.array([[4, 3, 2, 1]] * 4, np.float32)

    def judge(draft_ids: list[int], rank: int) -> Verdict:
        return verify(rows, draft_ids, sampling, position=0, num_ids=4, rule=Rule.RANK, rank=rank)

    assert judge([0, 1, 1], 2) == Verdict(3, None, CommitKind.ACCEPTED_ONLY)
    assert judge([1, 2, 0], 2) == Verdict(1, 0, CommitKind.RECOVERED)
    assert judge([3, 0, 0], 3) == Verdict(0, 0, CommitKind.RECOVERED)


def test_rank_sees_bias_and_penalties() -> None:
    rows = np.array([[4, 3, 2, 1]] * 3, np.float32)
    sampling = SamplingParams(presence_penalty=2.0)
    verdict = verify(rows, [0, 0], sampling, position=0, num_ids=4, rule=Rule.RANK, rank=1)
    assert verdict == Verdict(1, 1, CommitKind.RECOVERED)


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RANK])
def test_unjudged_ids_pass(rule: Rule) -> None:
    rows = np.array([[9, 0, 0]] * 4, np.float32)

    def judge(judged: list[int]) -> Verdict:
        return verify(rows, [1, 0, 1], GREEDY, position=0, num_ids=3, rule=rule, judged=judged)

    assert judge([0, 1, 2]).num_accepted == 0
    assert judge([1, 2]) == Verdict(2, 0, CommitKind.RECOVERED)
    assert judge([1]).num_accepted == judge([]).num_accepted == 3
