"""Processing order, choice and draft, against a slow implementation of the definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedraft.core import noise, truncation
from edgedraft.core.distribution import drawn_index
from edgedraft.core.sampling import (
    choose,
    distribution_probs,
    draft_token,
    edited_row,
    gumbel_noise,
    logprob_of,
    noise_key,
    process,
    round_distribution,
)
from edgedraft.errors import BackendError, InvalidRequestError, ProtocolError
from edgedraft.types import DraftDistribution, Float32Array, Rule, SamplingParams

NEVER = -math.inf


def row_of(*logits: float) -> Float32Array:
    return np.array(logits, np.float32)


def slow_process(
    logits: Float32Array, sampling: SamplingParams, num_ids: int, prompt: Sequence[int], output: Sequence[int]
) -> dict[int, float]:
    """The definition, id by id: what is kept and its score."""
    edited = {}
    for token_id in range(min(num_ids, len(logits))):
        value = float(logits[token_id])
        value += sampling.logit_bias.get(token_id, 0.0)
        if token_id in prompt or token_id in output:
            factor = sampling.repetition_penalty
            value = value / factor if value > 0 else value * factor
        count = list(output).count(token_id)
        value -= sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
        edited[token_id] = float(np.float32(value))
    top = max(edited.values())
    temperature = max(sampling.temperature, 1e-200) if sampling.temperature else 1.0
    scores = {i: (v - top) / temperature for i, v in edited.items()}
    if sampling.min_p > 0:
        scores = {i: s for i, s in scores.items() if s >= math.log(sampling.min_p)}
    ranked = sorted(scores, key=lambda i: (-scores[i], i))
    if sampling.top_k > 0:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p < 1:
        masses = [int(np.exp(np.array([scores[i]]))[0] * 2.0**40) for i in ranked]
        needed = min(math.ceil(sampling.top_p * sum(masses)), sum(masses))
        ranked = [i for place, i in enumerate(ranked) if sum(masses[:place]) < needed]
    return {i: scores[i] for i in sorted(ranked) if scores[i] > NEVER}


def slow_choice(kept: dict[int, float], sampling: SamplingParams, position: int) -> int:
    if sampling.greedy:
        return max(kept, key=lambda i: (kept[i], -i))
    key = noise_key(sampling.seed, sampling.choice, position)
    noisy = {i: score + gumbel_noise(key, np.array([i]))[0] for i, score in kept.items()}
    return max(noisy, key=lambda i: (noisy[i], -i))


LOGITS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.5, NEVER]), st.floats(-30, 30, width=32))
PENALTY = st.one_of(st.just(0.0), st.floats(-2, 2))
SAMPLING = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-250, 0.3, 0.8, 1.0, 2.0, 100.0]),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([1.0, 0.999999999, 0.9, 0.5, 0.25, 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 1e-300, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
    choice=st.integers(0, 3),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=PENALTY,
    frequency_penalty=PENALTY,
    logit_bias=st.dictionaries(st.integers(0, 9), st.floats(-100, 100), max_size=3),
)
HISTORY = st.lists(st.integers(-1, 60), max_size=6)


@pytest.mark.parametrize("short_row_ids", [4096, 2], ids=["plain", "sieved"])
@settings(max_examples=300)
@given(
    logits=st.lists(LOGITS, min_size=10, max_size=40),
    padding=st.integers(0, 5),
    sampling=SAMPLING,
    position=st.integers(0, 2**40),
    prompt=HISTORY,
    output=HISTORY,
)
def test_equals_the_slow_definition(
    short_row_ids: int,
    logits: list[float],
    padding: int,
    sampling: SamplingParams,
    position: int,
    prompt: list[int],
    output: list[int],
) -> None:
    """Bit for bit, with the sieves for long rows forced onto short ones, too."""
    logits[0] = max(logits[0], -30.0)
    row = row_of(*logits, *[99.0] * padding)
    expected = slow_process(row, sampling, len(logits), prompt, output)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncation, "_SHORT_ROW_IDS", short_row_ids)
        patch.setattr(noise, "_PLAIN_IDS", short_row_ids)
        patch.setattr(noise, "CHUNK_IDS", 7)
        patch.setattr(truncation, "CHUNK_IDS", 7)
        history = {"num_ids": len(logits), "prompt_ids": prompt, "output_ids": output}
        processed = process(row, sampling, **history)
        token_id = choose(row, sampling, position, **history)
    assert processed.ids.tolist() == list(expected)
    assert processed.logits.tolist() == list(expected.values())
    assert token_id == slow_choice(expected, sampling, position)


LONG_CASES = [
    SamplingParams(temperature=0.8, seed=1),
    SamplingParams(temperature=0.8, seed=2, top_k=40),
    SamplingParams(temperature=0.8, seed=3, top_p=0.95),
    SamplingParams(temperature=0.8, seed=7, top_p=0.2),
    SamplingParams(temperature=0.8, seed=4, min_p=0.05),
    SamplingParams(temperature=0.8, seed=5, top_k=3000, top_p=0.9, min_p=0.001),
    SamplingParams(temperature=1.5, seed=6, presence_penalty=1.0, repetition_penalty=1.2, logit_bias={5: 3.0}),
]


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("sampling", LONG_CASES, ids=lambda s: str(s.seed))
def test_long_rows_equal_the_whole_formula(
    sampling: SamplingParams, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """152,064 logits of which 151,936 are real, sieved and unsieved."""
    row = np.random.default_rng(1).normal(0, spread, 152_064).astype(np.float32)
    history = {"num_ids": 151_936, "prompt_ids": range(100), "output_ids": range(50, 150)}
    sieved = process(row, sampling, **history)
    choices = [choose(row, sampling, position, **history) for position in range(5)]
    monkeypatch.setattr(truncation, "_SHORT_ROW_IDS", 10**9)
    whole = process(row, sampling, **history)
    assert np.array_equal(sieved.ids, whole.ids)
    assert np.array_equal(sieved.logits, whole.logits)
    for position, choice in enumerate(choices):
        key = noise_key(sampling.seed, 0, position)
        assert choice == whole.ids[(whole.logits + gumbel_noise(key, whole.ids)).argmax()]


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95])
def test_choice_from_a_flat_row_is_one_of_the_lowest_ids(top_p: float) -> None:
    """All equal, so top-p keeps the first ids, and all of those are drawn alike."""
    row = np.zeros(20_000, np.float32)
    num_kept = math.ceil(top_p * 20_000)
    sampling = SamplingParams(temperature=1.0, top_p=top_p, seed=3)
    assert len(process(row, sampling, num_ids=20_000).ids) == num_kept

    choices = [choose(row, sampling, position, num_ids=20_000) for position in range(200)]

    assert max(choices) < num_kept
    assert 0.4 < np.mean(choices) / num_kept < 0.6


def test_greedy_tie_goes_to_the_lowest_id() -> None:
    assert choose(row_of(1, 5, 5, 5), SamplingParams(), 0, num_ids=4) == 1


def test_truncation_tie_keeps_the_lowest_ids() -> None:
    sampling = SamplingParams(temperature=1, top_k=2)
    assert process(row_of(1, 5, 5, 5), sampling, num_ids=4).ids.tolist() == [1, 2]
    sampling = SamplingParams(temperature=1, top_p=0.5)
    assert process(row_of(5, 5, 5, 5), sampling, num_ids=4).ids.tolist() == [0, 1]


def test_top_p_counts_what_top_k_left() -> None:
    """0.4 of four equal ids needs two of them; of the two that top-k leaves it needs one."""
    sampling = SamplingParams(temperature=1, top_k=2, top_p=0.4)
    assert process(row_of(0, 0, 0, 0), sampling, num_ids=4).ids.tolist() == [0]


def test_temperature_comes_before_min_p() -> None:
    logits = row_of(0, -2)
    assert len(process(logits, SamplingParams(temperature=1, min_p=0.2), num_ids=2).ids) == 1
    assert len(process(logits, SamplingParams(temperature=2, min_p=0.2), num_ids=2).ids) == 2


def test_bias_comes_before_everything() -> None:
    sampling = SamplingParams(temperature=1, top_k=1, logit_bias={1: 100.0})
    assert process(row_of(5, 0, 0), sampling, num_ids=3).ids.tolist() == [1]


def test_bias_comes_before_the_repetition_penalty() -> None:
    """(1 + 1) / 2 = 1 is below 1.2; 1 / 2 + 1 would be above."""
    sampling = SamplingParams(repetition_penalty=2.0, logit_bias={1: 1.0})
    assert choose(row_of(1.2, 1), sampling, 0, num_ids=2, prompt_ids=[1]) == 0


def test_repetition_counts_prompt_and_output_the_others_output_only() -> None:
    logits = row_of(1, 1)
    for sampling in (SamplingParams(presence_penalty=1.0), SamplingParams(frequency_penalty=1.0)):
        assert choose(logits, sampling, 0, num_ids=2, prompt_ids=[0]) == 0
        assert choose(logits, sampling, 0, num_ids=2, output_ids=[0]) == 1
    repetition = SamplingParams(repetition_penalty=2.0)
    assert choose(logits, repetition, 0, num_ids=2, prompt_ids=[0]) == 1
    assert choose(logits, repetition, 0, num_ids=2, output_ids=[0]) == 1


def test_frequency_counts_each_occurrence_presence_one() -> None:
    logits = row_of(1.5, 0)
    assert choose(logits, SamplingParams(presence_penalty=1.0), 0, num_ids=2, output_ids=[0, 0]) == 0
    assert choose(logits, SamplingParams(frequency_penalty=1.0), 0, num_ids=2, output_ids=[0, 0]) == 1


def test_penalties_leave_the_row_of_the_back_end_alone() -> None:
    logits = row_of(1, 2)
    choose(logits, SamplingParams(presence_penalty=2.0, logit_bias={1: 5.0}), 0, num_ids=2, output_ids=[1])
    assert logits.tolist() == [1, 2]


def test_same_arguments_same_token_other_seed_other_text() -> None:
    row = np.zeros(1000, np.float32)
    texts = {
        (seed, choice): [
            choose(row, SamplingParams(temperature=1, seed=seed, choice=choice), p, num_ids=1000) for p in range(8)
        ]
        for seed, choice in [(1, 0), (2, 0), (1, 1)]
    }
    assert texts[1, 0] == [choose(row, SamplingParams(temperature=1, seed=1), p, num_ids=1000) for p in range(8)]
    assert len({tuple(text) for text in texts.values()}) == 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_padding_is_never_chosen_or_drafted(temperature: float) -> None:
    row = row_of(0, 1, 50, 60)
    for seed in range(50):
        sampling = SamplingParams(temperature=temperature, seed=seed)
        assert choose(row, sampling, 0, num_ids=2) < 2
        for rule in Rule:
            draft = draft_token(row, sampling, 0, num_ids=2, rule=rule)
            assert draft is not None
            assert draft.token_id < 2


def test_padded_widths_choose_alike() -> None:
    """One real vocabulary, rows of different width: the same noise, the same choice."""
    row = np.random.default_rng(3).normal(0, 1, 100).astype(np.float32)
    wide = np.concatenate([row, np.full(28, 9, np.float32)])
    for seed in range(50):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        assert choose(row, sampling, 4, num_ids=100) == choose(wide, sampling, 4, num_ids=100)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("bad", "says"), [(math.nan, "nan"), (math.inf, "inf"), (NEVER, "no real id has a finite value")]
)
def test_row_without_a_choice_is_a_clear_error(bad: float, says: str, temperature: float) -> None:
    row = row_of(*[NEVER if bad == NEVER else 0.0] * 3, bad, 7.0)
    with pytest.raises(BackendError, match=says):
        choose(row, SamplingParams(temperature=temperature), 0, num_ids=4)
    with pytest.raises(BackendError, match=says):
        process(row, SamplingParams(temperature=temperature), num_ids=4)


def test_bias_on_an_id_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="id 4") as caught:
        choose(row_of(0, 0, 0, 0, 0), SamplingParams(logit_bias={4: 1.0}), 0, num_ids=4)
    assert caught.value.field == "logit_bias"


# -- draft -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Rule.MATCH, Rule.RANK])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_draft_uses_the_noise_of_the_target(rule: Rule, temperature: float) -> None:
    row = np.random.default_rng(2).normal(0, 1, 50).astype(np.float32)
    for position in range(50):
        sampling = SamplingParams(temperature=temperature, seed=9, top_k=20)
        draft = draft_token(row, sampling, position, num_ids=50, rule=rule)
        assert draft is not None
        assert draft.token_id == choose(row, sampling, position, num_ids=50)
        assert draft.distribution is None


@pytest.mark.parametrize("rule", list(Rule))
def test_confidence_is_the_processed_probability(rule: Rule) -> None:
    row = np.random.default_rng(2).normal(0, 2, 50).astype(np.float32)
    for sampling in (
        SamplingParams(),
        SamplingParams(top_k=5, presence_penalty=1.0),
        SamplingParams(temperature=0.7, top_k=5, seed=3),
        SamplingParams(temperature=1.3, top_p=0.8, min_p=0.01, logit_bias={3: 4.0}, seed=4),
    ):
        draft = draft_token(row, sampling, 6, num_ids=50, rule=rule, output_ids=[1, 2])
        processed = process(row, sampling, num_ids=50, output_ids=[1, 2])
        assert draft is not None
        assert draft.confidence == pytest.approx(processed.probs()[processed.ids == draft.token_id].item())


def test_entropy_is_of_the_raw_distribution_in_nats() -> None:
    sampling = SamplingParams(temperature=0.5, top_k=1, logit_bias={0: 50.0})
    draft = draft_token(row_of(0, 0, 0, 0, 80), sampling, 0, num_ids=4, rule=Rule.MATCH)
    assert draft is not None
    assert draft.entropy == pytest.approx(math.log(4))


def test_entropy_and_confidence_of_a_long_row() -> None:
    row = np.random.default_rng(4).normal(0, 2, 40_000).astype(np.float32)
    probs = np.exp(row.astype(np.float64))
    probs /= probs.sum()
    draft = draft_token(row, SamplingParams(), 0, num_ids=40_000, rule=Rule.MATCH)
    assert draft is not None
    assert draft.entropy == pytest.approx(-(probs * np.log(probs)).sum())
    assert draft.confidence == pytest.approx(probs.max())


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("num_ids", [8, 20_000])
@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(), SamplingParams(temperature=0.8, seed=1), SamplingParams(temperature=0.8, top_k=3, top_p=0.9)],
    ids=["greedy", "full", "truncated"],
)
def test_one_hot_row_is_certain(rule: Rule, num_ids: int, sampling: SamplingParams) -> None:
    row = np.full(num_ids, NEVER, np.float32)
    row[5] = 0.0
    draft = draft_token(row, sampling, 3, num_ids=num_ids, rule=rule)
    assert draft is not None
    assert (draft.token_id, draft.confidence, draft.entropy) == (5, 1.0, 0.0)


@pytest.mark.parametrize("temperature", [0.8, 1e-300])
def test_masked_ids_cost_no_warning(temperature: float) -> None:
    """Engines mask with the lowest float32, which a temperature scales out of its range."""
    row = row_of(1.0, 2.0, float(np.finfo(np.float32).min), 0.0)
    draft = draft_token(row, SamplingParams(temperature=temperature, seed=1), 0, num_ids=4, rule=Rule.MATCH)
    assert draft is not None
    assert draft.token_id != 2


def test_row_without_a_proposal_gives_none() -> None:
    row = row_of(NEVER, NEVER, 1.0)
    assert draft_token(row, SamplingParams(logit_bias={0: 1.0}), 0, num_ids=2, rule=Rule.MATCH) is None


def test_nan_in_a_draft_row_is_an_error() -> None:
    with pytest.raises(BackendError, match="nan"):
        draft_token(row_of(0, math.nan), SamplingParams(), 0, num_ids=2, rule=Rule.MATCH)


def test_ratio_draft_is_sampled_from_what_it_carries() -> None:
    """Half of the probability does not fit two ids: the draft must be one of the two."""
    row = row_of(1.0, 1.0, 0.9, 0.9)
    drafts = []
    for seed in range(200):
        sampling = SamplingParams(temperature=1, seed=seed, top_k=2)
        draft = draft_token(row, sampling, 3, num_ids=4, rule=Rule.RATIO)
        assert draft is not None
        assert draft.distribution is not None
        assert draft.distribution.token_ids == [0, 1]
        drafts.append(draft.token_id)
    assert 60 < sum(drafts) < 140


def test_greedy_ratio_draft_is_certain() -> None:
    draft = draft_token(row_of(0, 1, 1), SamplingParams(), 0, num_ids=3, rule=Rule.RATIO)
    assert draft is not None
    assert draft.token_id == 1
    assert draft.distribution is not None
    ids, probs = distribution_probs(draft.distribution)
    assert (ids.tolist(), probs.tolist()) == ([1], [1.0])


# -- distributions ---------------------------------------------------------------------------------------------------


def test_rounded_distribution_is_the_most_probable_in_float16() -> None:
    row = np.random.default_rng(8).normal(0, 4, 1000).astype(np.float32)
    processed = process(row, SamplingParams(temperature=1), num_ids=1000)
    rounded = round_distribution(processed, max_ids=16)
    ids, probs = distribution_probs(rounded)
    assert ids.tolist() == sorted(np.argsort(-row, kind="stable")[:16].tolist())
    expected = processed.probs()[ids]
    expected = (expected / expected.sum()).astype(np.float16).astype(np.float64)
    assert probs == pytest.approx(expected / expected.sum(), abs=0)
    assert probs.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("uniform", "index"), [(1e-300, 1), (0.25, 3), (0.2499, 1), (0.999, 3), (1 - 2.0**-53, 3)])
def test_drawn_index_passes_over_weight_0(uniform: float, index: int) -> None:
    assert drawn_index(np.array([0.0, 0.5, 0.0, 1.5, 0.0]), uniform) == index


def test_drawn_index_stays_inside_where_the_sum_rounds() -> None:
    weights = np.array([1.0, 5e-324, 0.0])
    assert drawn_index(weights, 1 - 2.0**-53) == 0
    assert drawn_index(np.array([0.1] * 10), 1 - 2.0**-53) == 9


def test_what_rounds_to_nothing_is_left_out() -> None:
    processed = process(row_of(0, -30), SamplingParams(temperature=1), num_ids=2)
    assert round_distribution(processed).token_ids == [0]


@pytest.mark.parametrize(
    ("token_ids", "probs"),
    [
        ([], []),
        ([1, 2], [1.0]),
        ([2, 1], [0.5, 0.5]),
        ([1, 1], [0.5, 0.5]),
        ([-1, 1], [0.5, 0.5]),
        ([1, 2], [0.5, 0.0]),
        ([1, 2], [0.5, -0.5]),
        ([1, 2], [0.5, math.nan]),
        ([1, 2], [0.5, math.inf]),
    ],
)
def test_malformed_distribution_is_refused(token_ids: list[int], probs: list[float]) -> None:
    with pytest.raises(ProtocolError):
        distribution_probs(DraftDistribution(token_ids, np.array(probs, "<f2").tobytes()))


# -- log-probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_ids", [1, 40, noise.CHUNK_IDS + 7])
def test_logprobs_are_the_log_softmax_of_real_ids_after_bias_and_penalties(num_ids: int) -> None:
    """Temperature and truncation change nothing; padding has no part in it."""
    logits = np.random.default_rng(num_ids).normal(0, 6, num_ids + 9).astype(np.float32)
    logits[num_ids:] = 100.0
    edits = SamplingParams(
        repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={num_ids - 1: 3.0}
    )
    prompt, output = [0, num_ids - 1], [0, num_ids // 2, 0]
    scores = slow_process(logits, edits, num_ids, prompt, output)
    total = math.log(math.fsum(math.exp(score) for score in scores.values()))
    for sampling in (edits, msgspec.structs.replace(edits, temperature=0.3, top_k=1, top_p=0.1, min_p=0.5)):
        row = edited_row(logits, sampling, num_ids=num_ids, prompt_ids=prompt, output_ids=output)
        for token_id in {0, num_ids // 2, num_ids - 1}:
            assert logprob_of(row, token_id) == pytest.approx(scores[token_id] - total, abs=1e-9)


def test_logprobs_of_certain_and_of_hopeless_ids() -> None:
    assert logprob_of(row_of(5, NEVER, NEVER), 0) == 0.0
    steep = np.finfo(np.float32)
    assert logprob_of(row_of(steep.max, steep.min), 1) == 2.0 * float(steep.min)
    assert logprob_of(row_of(1, 1), 1) == -math.log(2.0)
    assert logprob_of(row_of(1, NEVER), 1) == NEVER
    for bad in (row_of(1, math.nan), row_of(1, math.inf), row_of(NEVER, NEVER)):
        with pytest.raises(BackendError):
            logprob_of(bad, 0)
