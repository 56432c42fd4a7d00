"""The end of `edgedraft demo`: two recordings are captioned by an edge process and a cloud process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from edgedraft import caption as caption_package
from edgedraft.caption.audio import load
from edgedraft.caption.calibration_file import SHIPPED, CalibrationFile, calibrated_strategy
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import DEFAULT_DRAFT, DEFAULT_TARGET, AsyncCaptioner
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import CaptionRequest
from edgedraft.cli.caption_screen import Screen

CAPTION_DRAFT, CAPTION_TARGET = DEFAULT_DRAFT, DEFAULT_TARGET
CLIPS = Path(caption_package.__file__).parent / "clips"
LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True)
class ClipCaption:
    """`equal`: whether the exact mode and the cloud alone wrote the same tokens for this clip."""

    clip: str
    equal: bool
    caption: Caption

    def to_dict(self) -> dict[str, Any]:
        return {"clip": self.clip, "exact_equals_cloud_only": self.equal, "caption": self.caption.to_dict()}


def caption_clips(console: Console, url: str) -> list[ClipCaption]:
    """Caption the shipped clips through the cloud at `url`, and show it on `console`."""

    async def run() -> list[ClipCaption]:
        async with AsyncCaptioner(url, draft=CAPTION_DRAFT) as captioner:
            return [await _clip(console, captioner, language) for language in LANGUAGES]

    return asyncio.run(run())


async def _clip(console: Console, captioner: AsyncCaptioner, language: str) -> ClipCaption:
    recording = load(CLIPS / f"{language}.wav")
    console.print(f"--- {language}.wav, synthetic speech, {recording.seconds:.1f} s")
    screen = Screen(captioner.tokenizer, show_tokens=True, console=console)
    edge = await captioner.caption(recording, _request(captioner, language, "edge-only"))
    console.print(f"    the edge alone would have said: {edge.text}", style="dim")
    async with captioner.stream(recording, _request(captioner, language, "ugsd-sparse")) as stream:
        shown = await screen.write(stream)
    screen.say(shown)
    exact, alone = await _both(captioner, recording, language)
    equal = list(exact.answer.token_ids) == list(alone.answer.token_ids)
    console.print(f"    exact mode: {'equal' if equal else 'NOT EQUAL'} to cloud-only: {alone.text}", style="dim")
    return ClipCaption(f"{language}.wav", equal, shown)


async def _both(captioner: AsyncCaptioner, recording: Recording, language: str) -> Sequence[Caption]:
    return [await captioner.caption(recording, _request(captioner, language, name)) for name in ("exact", "cloud-only")]


def _request(captioner: AsyncCaptioner, language: str, strategy: str) -> CaptionRequest:
    choice, files = GateChoice(strategy=strategy), [CalibrationFile(SHIPPED)]
    found = calibrated_strategy(choice, captioner.tokenizer, captioner.draft_info.identity, language, files)
    return CaptionRequest(language=language, strategy=found.strategy)
