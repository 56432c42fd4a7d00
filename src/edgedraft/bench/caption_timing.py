"""How long the two models of a caption bench take on this machine, for virtual times that are not made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from time import perf_counter

import numpy as np

from edgedraft.bench.caption_clips import Clip
from edgedraft.bench.caption_models import CaptionPair, ClipModels
from edgedraft.caption.request import GREEDY
from edgedraft.core.events import REQUESTED, RunPass
from edgedraft.types import Rule

NUM_CLIPS = 6
NUM_TOKENS = 40
NUM_DRAFT_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """As in `caption_results.Setting`."""

    draft_step_s: float
    target_step_s: float
    target_per_id_s: float
    target_listen_s_per_s: float


@dataclass(slots=True)
class _Taken:
    """Seconds, of single steps. Medians are taken: a machine that others use stalls now and then."""

    draft_step_s: list[float] = field(default_factory=list)
    target_step_s: list[float] = field(default_factory=list)
    target_per_id_s: list[float] = field(default_factory=list)
    target_listen_s_per_s: list[float] = field(default_factory=list)

    def times(self) -> ModelTimes:
        return ModelTimes(**{item.name: max(0.0, float(np.median(getattr(self, item.name)))) for item in fields(self)})


def measured_times(pair: CaptionPair, clips: Sequence[Clip]) -> ModelTimes:
    """Medians over the steps of the first clips, each along the draft's own caption."""
    taken = _Taken()
    for clip in clips[:NUM_CLIPS]:
        models = ClipModels(pair, clip, NUM_TOKENS)
        held = _time_draft(models, taken)
        _time_target(models, held, taken)
    return taken.times()


def _time_draft(models: ClipModels, taken: _Taken) -> list[int]:
    """Prompt and caption. The first token does not count: before it the clip is heard."""
    held = list(models.prompt_ids)
    for number in range(NUM_TOKENS):
        started_s = perf_counter()
        token = models.draft_token(len(held), held, 0.0)
        if number:
            taken.draft_step_s.append(perf_counter() - started_s)
        held.append(token.token_id)
        if number and token.token_id in models.eos_ids:
            break
    return held


def _time_target(models: ClipModels, held: Sequence[int], taken: _Taken) -> None:
    """Pairs of passes, of one id and of one and some drafted ones, far enough apart that none is known already."""
    heard_s = _pass_s(models, held[: models.num_prompt], ())
    taken.target_listen_s_per_s.append(heard_s / models.clip.seconds)
    for length in range(models.num_prompt + 1, len(held), NUM_DRAFT_TOKENS + 1):
        draft_ids = held[length : length + NUM_DRAFT_TOKENS]
        one_s = _pass_s(models, held[:length], ())
        taken.target_step_s.append(one_s)
        taken.target_per_id_s.append((_pass_s(models, held[:length], draft_ids) - one_s) / max(len(draft_ids), 1))


def _pass_s(models: ClipModels, before: Sequence[int], draft_ids: Sequence[int]) -> float:
    """Rule *match* looks at all rows, so that the pass is run."""
    command = RunPass(0, REQUESTED, 0, (), len(before), draft_ids, Rule.MATCH, 1, GREEDY)
    started_s = perf_counter()
    models.verdict(before, command)
    return perf_counter() - started_s
