"""How Qwen-Omni models are asked for a caption: requests of three styles, and the chat template around them.

The log that edge and cloud share holds text ids only: the request, `<|im_end|>`, then the caption. Everything else that
a model wants (system turn, recording, headers) differs between the two lines of models and is put in by each side
itself, as a `Frame`.
"""
# ruff: noqa: RUF001 - Chinese is written with its own punctuation

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

TURN_END = "<|im_end|>"

DETAILED = "detailed"
REQUESTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        DETAILED: MappingProxyType(
            {
                "en": (
                    "Listen to the voice in this recording and describe the emotion in it. Write two or three plain "
                    "English sentences about the speaker: first what you hear, such as pitch, pace, loudness, "
                    "intonation, pauses or voice quality, and last the emotion that this most likely expresses. "
                    "Describe only what can be heard. Do not repeat the words that are spoken, and write no dialogue, "
                    "list or heading."
                ),
                "zh": (
                    "请听录音中的声音，描述其中的情绪。用两到三句中文写成一段话，约七十到一百字：先写听到的两三个特征，"
                    "例如音高、语速、音量、语调、停顿或音色，最后写出最可能表达的一种情绪；如有把握，可以简短而谨慎地提到"
                    "原因。只写能听出来的内容，不要复述说话的原文，也不要写对话、列表或标题。"
                ),
            }
        ),
        "concise": MappingProxyType(
            {
                "en": (
                    "Listen to the voice in this recording. In one plain English sentence, say how it sounds and which "
                    "emotion this most likely expresses. Do not repeat the words that are spoken."
                ),
                "zh": "请听录音中的声音，用一句中文说明声音听起来怎样、最可能表达哪种情绪。不要复述说话的原文。",
            }
        ),
        "line": MappingProxyType(
            {
                "en": (
                    "Listen to the voice in this recording. Name its emotion and how it is voiced in one line of at "
                    "most eight English words. Do not repeat the words that are spoken."
                ),
                "zh": "请听录音中的声音，用一行八到十六个汉字写出其中的情绪和说话的方式。不要复述说话的原文。",
            }
        ),
    }
)
"""By style, then by language (ISO 639-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of Qwen-Omni models.

    `thinker_class`: in transformers. `system`: what its chat template says before the first turn; empty for nothing.
    `audio_start`, `audio_end`: the marks around a recording. `window_audio_tokens`: what 30 s of recording take.
    """

    thinker_class: str
    system: str
    audio_start: str
    audio_end: str
    window_audio_tokens: int


QWEN2_5_OMNI = Line(
    thinker_class="Qwen2_5OmniThinkerForConditionalGeneration",
    # The model's own default; with another one its makers promise less.
    system=(
        "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and "
        "visual inputs, as well as generating text and speech."
    ),
    audio_start="<|audio_bos|>",
    audio_end="<|audio_eos|>",
    window_audio_tokens=750,
)
QWEN3_OMNI = Line(
    thinker_class="Qwen3OmniMoeThinkerForConditionalGeneration",
    system="",
    audio_start="<|audio_start|>",
    audio_end="<|audio_end|>",
    window_audio_tokens=390,
)
LINES: Mapping[str, Line] = MappingProxyType(
    {
        "qwen2_5_omni": QWEN2_5_OMNI,
        "qwen2_5_omni_thinker": QWEN2_5_OMNI,
        "qwen3_omni_moe": QWEN3_OMNI,
        "qwen3_omni_moe_thinker": QWEN3_OMNI,
    }
)
"""By the `model_type` of `config.json`: the whole model as it is published, or its thinker alone."""


class Encoder(Protocol):
    def encode(self, text: str, *, parse_special: bool) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Ids that a back end puts around a log: before the audio, between audio and log, and after the log's first
    `turn_end_id`, which ends the request.
    """

    before_audio: tuple[int, ...]
    after_audio: tuple[int, ...]
    turn_end_id: int
    after_turn: tuple[int, ...]

    @classmethod
    def of(cls, line: Line, tokenizer: Encoder) -> Frame:
        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer.encode(text, parse_special=True))

        system = f"<|im_start|>system\n{line.system}{TURN_END}\n" if line.system else ""
        return cls(
            before_audio=ids(f"{system}<|im_start|>user\n{line.audio_start}"),
            after_audio=ids(line.audio_end),
            turn_end_id=ids(TURN_END)[0],
            after_turn=ids("\n<|im_start|>assistant\n"),
        )

    @property
    def num_ids(self) -> int:
        return len(self.before_audio) + len(self.after_audio) + len(self.after_turn)
