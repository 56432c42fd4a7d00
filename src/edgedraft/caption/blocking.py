"""The blocking captioner: the asynchronous one on an event loop in a thread of its own."""

from __future__ import annotations

from pathlib import Path

from edgedraft.backends.base import BackendOptions, CaptionTokenizer
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import DEFAULT_DRAFT, AsyncCaptioner
from edgedraft.caption.excerpt_captions import RecordingCaption
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import CaptionRequest
from edgedraft.config import EdgeConfig
from edgedraft.edge.loop_thread import LoopThread
from edgedraft.types import ModelInfo


class Captioner(LoopThread):
    """An edge that captions speech, for code without asyncio; arguments as in `AsyncCaptioner`.

    with Captioner() as captioner:
        for caption in captioner.caption_all(load("hello.wav")).captions:
            print(caption.text)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        draft: str = DEFAULT_DRAFT,
        token: str | None = None,
        tls_ca: Path | str | None = None,
        config: EdgeConfig | None = None,
        draft_options: BackendOptions | None = None,
    ) -> None:
        self._captioner = AsyncCaptioner(
            url, draft=draft, token=token, tls_ca=tls_ca, config=config, draft_options=draft_options
        )
        super().__init__(self._captioner, Captioner)

    @property
    def tokenizer(self) -> CaptionTokenizer:
        return self._captioner.tokenizer

    @property
    def draft_info(self) -> ModelInfo:
        return self._captioner.draft_info

    @property
    def max_seconds(self) -> float:
        """The longest recording that the draft takes at once."""
        return self._captioner.max_seconds

    def settled(self, request: CaptionRequest) -> tuple[CaptionRequest, str]:
        """The request as it is for this draft, and a notice, or ""; see `AsyncCaptioner.settled`."""
        return self._captioner.settled(request)

    def caption(self, recording: Recording, request: CaptionRequest | None = None) -> Caption:
        """The caption of a recording; see `AsyncCaptioner.caption`."""
        return self.run(self._captioner.caption(recording, request))

    def caption_all(
        self, recording: Recording, request: CaptionRequest | None = None, *, window_s: float | None = None
    ) -> RecordingCaption:
        """The captions of a recording of any length; see `AsyncCaptioner.caption_all`."""
        return self.run(self._captioner.caption_all(recording, request, window_s=window_s))
