"""Captions in virtual time: the sessions of the live system, between real models that take no time of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgedraft.bench.caption_arms import strategy_of
from edgedraft.bench.caption_clips import Clip
from edgedraft.bench.caption_models import ClipMemory
from edgedraft.bench.caption_results import Arm, ClipRecord, Setting
from edgedraft.core.gate import Measure
from edgedraft.sim.compute import EdgeProfile, TargetProfile
from edgedraft.sim.edges import SimulatedAnswer, SimulatedEdge
from edgedraft.sim.network import LinkDirection, LinkProfile
from edgedraft.sim.world import simulate
from edgedraft.types import Float64Array


class VirtualCaptions:
    """Captions clips by arms. The link and the cloud's connection are there from the start, as with a client in use.

    The texts do not depend on `Setting`, nor on the seed: only times do.
    """

    def __init__(self, memory: ClipMemory, clips: Sequence[Clip], *, max_tokens: int, seed: int) -> None:
        self.memory = memory
        self.clips = clips
        self._numbers = {clip.id: number for number, clip in enumerate(clips)}
        self._max_tokens = max_tokens
        self._seed = seed

    def records(self, arm: Arm, setting: Setting, clips: Sequence[Clip] | None = None) -> list[ClipRecord]:
        """One record of each clip, in their order; all clips where none are named."""
        return [self.record(arm, clip, setting) for clip in (self.clips if clips is None else clips)]

    def record(self, arm: Arm, clip: Clip, setting: Setting) -> ClipRecord:
        """Raises what the models and the sessions raise."""
        pair = self.memory.pair
        number = self._numbers[clip.id]
        edge = SimulatedEdge(
            texts=[self.memory.models(clip)],
            strategy=strategy_of(arm, clip_number=number, language=clip.language, text_of=pair.text_of),
            profile=edge_profile(setting),
            network=link_profile(setting),
            max_tokens=self._max_tokens,
        )
        (answer,) = simulate([edge], target_profile(setting), seed=self._seed + number)
        return _record(arm, clip, answer, pair.text_of(answer.token_ids).strip())

    def draft_measures(self, records: Sequence[ClipRecord], clips: Sequence[Clip], measure: Measure) -> Float64Array:
        """What `measure` says of every draft token along the captions of an edge alone, shape (num_tokens,)."""
        values = []
        for record, clip in zip(records, clips, strict=True):
            models = self.memory.models(clip)
            held = list(models.prompt_ids)
            for token_id in record.token_ids:
                values.append(measure.of(models.draft_token(len(held), held, 0.0)))
                held.append(token_id)
        return np.array(values)


def edge_profile(setting: Setting) -> EdgeProfile:
    """A further id to take in takes as long as a step. The prompt, a token or two, counts as part of listening."""
    step_s = setting.draft_step_s
    return EdgeProfile(draft_s=step_s, append_s_per_token=step_s, listen_s_per_s=setting.listen_s_per_s)


def target_profile(setting: Setting) -> TargetProfile:
    return TargetProfile(
        step_s=setting.target_step_s,
        per_draft_s=setting.target_per_id_s,
        prefill_s_per_token=setting.target_per_id_s,
        listen_s_per_s=setting.target_listen_s_per_s,
    )


def link_profile(setting: Setting) -> LinkProfile:
    up, down = (
        LinkDirection(delay_s=setting.rtt_s / 2, bytes_per_s=math.inf if rate is None else rate)
        for rate in (setting.bytes_per_s_up, setting.bytes_per_s_down)
    )
    return LinkProfile(up=up, down=down)


def _record(arm: Arm, clip: Clip, answer: SimulatedAnswer, text: str) -> ClipRecord:
    record, counters = answer.record, answer.record.counters
    return ClipRecord(
        arm=arm.name,
        clip=clip.id,
        language=clip.language,
        seconds=clip.seconds,
        text=text,
        token_ids=list(answer.token_ids),
        kinds=[token.kind.value for token in answer.tokens],
        entropies=[token.entropy for token in answer.tokens],
        num_drafted=counters.num_drafted,
        num_gated=counters.num_gated,
        num_judged=counters.num_judged,
        num_local=counters.num_local,
        num_calls=counters.num_rounds,
        num_corrections=counters.num_rollbacks,
        tokens_up=counters.tokens_up,
        feature_bytes=clip.sent.num_bytes * answer.num_opens,
        bytes_up=record.bytes_up,
        bytes_down=record.bytes_down,
        ttft_s=record.first_token_s or 0.0,
        total_s=record.total_s,
    )
