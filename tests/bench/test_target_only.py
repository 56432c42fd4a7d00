"""The yardstick: what a target writes alone."""

from __future__ import annotations

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.registry import open_target
from edgedraft.backends.toy_model import ToyModel, ToySettings
from edgedraft.bench.target_only import target_only_ids
from edgedraft.core.sampling import choose
from edgedraft.types import SamplingParams

SAMPLED = SamplingParams(temperature=0.9, seed=3, repetition_penalty=1.2)


def _from_the_model(sampling: SamplingParams, prompt_ids: list[int], count: int) -> list[int]:
    model = ToyModel(ToySettings(vocab=200))
    token_ids = list(prompt_ids)
    for position in range(len(prompt_ids), len(prompt_ids) + count):
        row = model.logits(token_ids)
        output_ids = token_ids[len(prompt_ids) :]
        token_ids.append(choose(row, sampling, position, num_ids=200, prompt_ids=prompt_ids, output_ids=output_ids))
    return token_ids[len(prompt_ids) :]


def test_ids_are_those_of_the_model_itself() -> None:
    target = open_target("toy:vocab=200", BackendOptions(prefill_chunk_tokens=2))
    for sampling in (SamplingParams(), SAMPLED):
        ids = target_only_ids(target, [5, 6, 7, 8, 9], sampling=sampling, max_tokens=20)
        assert ids == _from_the_model(sampling, [5, 6, 7, 8, 9], 20)


def test_the_end_of_sequence_is_the_last_id_and_the_session_is_freed() -> None:
    target = open_target("toy:vocab=200", BackendOptions(max_sessions=1))
    whole = target_only_ids(target, [5], sampling=SamplingParams(), max_tokens=20)
    end_id = whole[4]
    cut = target_only_ids(target, [5], sampling=SamplingParams(), max_tokens=20, eos_ids=[end_id])
    assert cut == whole[: whole.index(end_id) + 1]
