"""Runs models over a calibration set: what the edge writes by itself, and what ranks cost and give with a cloud."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgedraft.backends.base import BackendOptions, CaptionTokenizer, ListeningDraft
from edgedraft.backends.listening import open_caption_tokenizer, open_listening_draft
from edgedraft.caption.audio import load
from edgedraft.caption.calibration import Chain
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import AsyncCaptioner
from edgedraft.caption.dataset import DatasetItem
from edgedraft.caption.excerpts import spoken_part
from edgedraft.caption.features import extract
from edgedraft.caption.gate_choice import GateChoice
from edgedraft.caption.recording import Recording
from edgedraft.caption.request import GREEDY, CaptionRequest
from edgedraft.caption.scoring import Metric, score_captions
from edgedraft.caption.tokens import tokenisations
from edgedraft.core.sampling import draft_token
from edgedraft.metrics.records import Counters
from edgedraft.speech_features import FeatureDtype
from edgedraft.types import DraftToken, OnLinkLoss, Rule

RANKS = (1, 2, 3, 5, 20)


@contextlib.contextmanager
def listening_model(spec: str) -> Iterator[tuple[ListeningDraft, CaptionTokenizer]]:
    """A draft that listens and its tokenizer, while the block lasts.

    Raises what the registry raises, `UnsupportedError` for models of text.
    """
    tokenizer = open_caption_tokenizer(spec)
    draft = open_listening_draft(spec, BackendOptions())
    try:
        yield draft, tokenizer
    finally:
        draft.close()


def draft_chain(
    draft: ListeningDraft, tokenizer: CaptionTokenizer, recording: Recording, language: str, max_tokens: int
) -> Chain:
    """What the draft writes alone. No cloud is involved. Raises what the draft and `extract` raise."""
    if draft.info.features is not None:
        draft.listen(extract(spoken_part(recording), draft.info.features, FeatureDtype.FLOAT16))
    prompt_ids = tokenizer.caption_prompt(language)
    draft.append(prompt_ids)
    chain: list[DraftToken] = []
    while len(chain) < min(max_tokens, draft.info.context_length - len(prompt_ids)):
        row, position = draft.draft(), len(prompt_ids) + len(chain)
        token = draft_token(row, GREEDY, position, num_ids=tokenizer.num_ids, rule=Rule.RANK, with_second=True)
        if token is None:
            break
        chain.append(token)
        if token.token_id in tokenizer.eos_ids:
            break
        draft.append([token.token_id])
    draft.rollback(0)
    return chain


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrade:
    """What a rank costs and gives over a calibration set. Shares are None where there is nothing to divide by.

    `verified_share`: of drafted tokens, `accepted_share`: of those that were verified. `bleu_1`: by language.
    """

    rank: int
    verified_share: float | None
    accepted_share: float | None
    corrections_per_caption: float
    cloud_calls_per_caption: float
    bleu_1: Mapping[str, float]


async def rank_trade(
    captioner: AsyncCaptioner,
    items: Sequence[DatasetItem],
    choice: GateChoice,
    threshold: float,
    *,
    max_tokens: int,
    ranks: Sequence[int] = RANKS,
    done: Callable[[], None] = lambda: None,
) -> list[RankTrade]:
    """All `items` captioned with each rank, through the cloud. `done` is called after each caption.

    Raises what `caption` raises, also where the cloud is lost: the draft's own text says nothing of ranks.
    """
    trades = []
    for rank in ranks:
        captions = []
        for item in items:
            strategy = replace(choice, rank=rank).build(captioner.tokenizer, item.language, threshold)
            request = CaptionRequest(
                language=item.language, strategy=strategy, max_tokens=max_tokens, on_link_loss=OnLinkLoss.FAIL
            )
            captions.append(await captioner.caption(spoken_part(load(item.path)), request))
            done()
        trades.append(_trade(rank, items, captions))
    return trades


def _trade(rank: int, items: Sequence[DatasetItem], captions: Sequence[Caption]) -> RankTrade:
    counters: list[Counters] = [caption.answer.record.counters for caption in captions]
    num_gated = sum(each.num_gated for each in counters)
    num_judged = sum(each.num_judged for each in counters)
    return RankTrade(
        rank=rank,
        verified_share=num_judged / num_gated if num_gated else None,
        accepted_share=sum(each.num_accepted for each in counters) / num_judged if num_judged else None,
        corrections_per_caption=statistics.fmean(each.num_rollbacks for each in counters),
        cloud_calls_per_caption=statistics.fmean(each.num_rounds for each in counters),
        bleu_1={language: _bleu_1(language, items, captions) for language in sorted({i.language for i in items})},
    )


def _bleu_1(language: str, items: Sequence[DatasetItem], captions: Sequence[Caption]) -> float:
    pairs = [pair for pair in zip(captions, items, strict=True) if pair[1].language == language]
    texts, references = [caption.text for caption, _ in pairs], [item.captions for _, item in pairs]
    return score_captions(texts, references, tokenisations(language)[0]).score(Metric.BLEU_1)
