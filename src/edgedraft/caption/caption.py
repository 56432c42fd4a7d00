"""A finished caption and its account: what it says, what of it was verified, and what left the device for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from edgedraft.edge.answer import Answer
from edgedraft.metrics import derive
from edgedraft.metrics.records import RequestRecord
from edgedraft.speech_features import SpeechFeatures

PCM_BYTES_PER_S = 32_000
"""16 kHz, 16 bit, mono: what the recording itself would have taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionAccount:
    """Counts and sizes of one caption. Shares are None where there is nothing to divide by.

    `seconds`: of audio. `features`: what of it left, in words; empty: nothing. `feature_bytes`: as often as it was
    sent. `share_of_pcm`: of what the waveform would have taken. `verified_share`: tokens that a verdict was asked for /
    tokens drafted, corrected blocks whole. `num_corrections`: verdicts that changed something. `num_cloud_calls`: all
    verdicts. `ids_per_token`: caption ids sent up / tokens of the caption. `num_unverified`: tokens that should have
    had a verdict while the cloud was out of reach. `called_cloud`: whether a connection was there or tried (unless that
    had failed just before). `bytes_up`, `bytes_down`: its messages, with WebSocket headers; not those
    that open the link, about 900 bytes either way, once for all captions on it. `draft_alone_s`: what the draft would
    have taken by itself, an estimate; None where the cloud wrote.
    """

    seconds: float
    features: str
    feature_bytes: int
    share_of_pcm: float
    num_tokens: int
    num_local: int
    num_accepted: int
    verified_share: float | None
    num_corrections: int
    num_cloud_calls: int
    ids_per_token: float | None
    num_unverified: int
    called_cloud: bool
    bytes_up: int
    bytes_down: int
    ttft_s: float | None
    total_s: float
    draft_alone_s: float | None

    @classmethod
    def of(cls, record: RequestRecord, seconds: float, features: SpeechFeatures | None, num_opens: int) -> Self:
        counters = record.counters
        feature_bytes = features.num_bytes * num_opens if features is not None else 0
        return cls(
            seconds=seconds,
            features=f"{features.spec}, {features.dtype}" if features is not None and num_opens else "",
            feature_bytes=feature_bytes,
            share_of_pcm=feature_bytes / (seconds * PCM_BYTES_PER_S),
            num_tokens=counters.num_committed,
            num_local=counters.num_local,
            num_accepted=counters.num_accepted,
            verified_share=derive.verified_share(record),
            num_corrections=counters.num_rollbacks,
            num_cloud_calls=counters.num_rounds,
            ids_per_token=derive.tokens_up_per_token(record),
            num_unverified=counters.num_unverified,
            called_cloud=record.called_cloud,
            bytes_up=record.bytes_up,
            bytes_down=record.bytes_down,
            ttft_s=derive.ttft_s(record),
            total_s=record.total_s,
            draft_alone_s=derive.draft_alone_s(record),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """`text` describes the recording in `language`; `answer` has its tokens, each with kind and entropy."""

    text: str
    language: str
    account: CaptionAccount
    answer: Answer

    @classmethod
    def of(
        cls, answer: Answer, *, language: str, seconds: float, features: SpeechFeatures | None, num_opens: int
    ) -> Self:
        """`features`: what may have been sent, `num_opens` times."""
        account = CaptionAccount.of(answer.record, seconds, features, num_opens)
        return cls(text=answer.text.strip(), language=language, account=account, answer=answer)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, always in this order."""
        answer = self.answer
        return {
            "text": self.text,
            "language": self.language,
            "strategy": answer.strategy,
            "exact": str(answer.exact),
            "exactness_note": answer.exactness_note,
            "finish_reason": str(answer.finish_reason),
            "token_ids": list(answer.token_ids),
            "kinds": [str(token.kind) for token in answer.tokens],
            "entropies": [token.entropy for token in answer.tokens],
            "notices": list(answer.notices),
            "account": asdict(self.account),
        }
