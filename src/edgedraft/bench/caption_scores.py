"""From the captions of an arm to its scores and costs, with intervals; each caption of a clip is scored once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgedraft.bench.caption_clips import Clip
from edgedraft.bench.caption_results import EVERYTHING, ClipRecord, Costs, LanguageResult, TextScores
from edgedraft.caption import bleu
from edgedraft.caption.attributes import read_attributes
from edgedraft.caption.intervals import (
    NUM_RESAMPLES,
    GapClosed,
    Interval,
    gap_closed,
    interval,
    mean_interval,
    ratio_interval,
)
from edgedraft.caption.phrases import LEVELS
from edgedraft.caption.scoring import NUM_COLUMNS, CaptionScores, Metric, score_captions
from edgedraft.caption.tokens import Tokenisation, tokenisations, tokenise
from edgedraft.types import Float64Array

AFFECT = "affect"


class ScoreBook:
    """Scores captions of some clips. Arms say much the same of a clip, so that each saying is scored once.

    `scores` by all metrics, which takes long. `bleu_1` and `gaps` by BLEU-1 alone, for what is tried many times.
    """

    def __init__(self, clips: Sequence[Clip], *, seed: int = 0) -> None:
        self.clips = clips
        self._seed = seed
        self._references = {clip.id: clip.references for clip in clips}
        self._truths = {clip.id: clip.attributes for clip in clips}
        self._rows: dict[tuple[str, str, Tokenisation], tuple[Float64Array, str]] = {}
        self._bleu_rows: dict[tuple[str, str, Tokenisation], Float64Array] = {}

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(sorted({clip.language for clip in self.clips}))

    def scores(self, records: Sequence[ClipRecord], tokenisation: Tokenisation) -> CaptionScores:
        """Of the records in the language of `tokenisation`, in their order."""
        found = [self._row(each, tokenisation) for each in records if each.language == tokenisation.language]
        rows = np.stack([row for row, _ in found])
        return CaptionScores(tokenisation=tokenisation, meteor_matching=found[0][1], statistics=rows)

    def _row(self, record: ClipRecord, tokenisation: Tokenisation) -> tuple[Float64Array, str]:
        key = (record.clip, record.text, tokenisation)
        if key not in self._rows:
            scores = score_captions([record.text], [self._references[record.clip]], tokenisation)
            self._rows[key] = (scores.statistics[0], scores.meteor_matching)
        return self._rows[key]

    def _bleu_scores(self, records: Sequence[ClipRecord], tokenisation: Tokenisation) -> CaptionScores:
        """The same, but what is not BLEU is not a number."""
        rows = [self._bleu_row(each, tokenisation) for each in records if each.language == tokenisation.language]
        return CaptionScores(tokenisation=tokenisation, meteor_matching="not scored", statistics=np.stack(rows))

    def _bleu_row(self, record: ClipRecord, tokenisation: Tokenisation) -> Float64Array:
        key = (record.clip, record.text, tokenisation)
        if key not in self._bleu_rows:
            references = [tokenise(text, tokenisation) for text in self._references[record.clip]]
            row = np.full(NUM_COLUMNS, np.nan)
            row[: bleu.NUM_COLUMNS] = bleu.statistics(tokenise(record.text, tokenisation), references)
            self._bleu_rows[key] = row
        return self._bleu_rows[key]

    def bleu_1(self, records: Sequence[ClipRecord]) -> dict[str, float]:
        """By language, in the tokenisation to quote."""
        return {
            each: self._bleu_scores(records, tokenisations(each)[0]).score(Metric.BLEU_1) for each in self.languages
        }

    def gaps(
        self,
        records: Sequence[ClipRecord],
        edge: Sequence[ClipRecord],
        cloud: Sequence[ClipRecord],
        *,
        num_resamples: int = NUM_RESAMPLES,
    ) -> dict[str, GapClosed]:
        """Of BLEU-1, by language, in the tokenisation to quote."""
        return {each: self._gap(records, edge, cloud, tokenisations(each)[0], num_resamples) for each in self.languages}

    def _gap(
        self,
        records: Sequence[ClipRecord],
        edge: Sequence[ClipRecord],
        cloud: Sequence[ClipRecord],
        tokenisation: Tokenisation,
        num_resamples: int,
    ) -> GapClosed:
        own, low, high = (self._bleu_scores(each, tokenisation) for each in (records, edge, cloud))
        return gap_closed(own, low, high, Metric.BLEU_1, self._rng(), num_resamples=num_resamples)

    def results(
        self, records: Sequence[ClipRecord], edge: Sequence[ClipRecord], cloud: Sequence[ClipRecord]
    ) -> list[LanguageResult]:
        """All that is known of an arm's captions, by language."""
        return [self._result(language, records, edge, cloud) for language in self.languages]

    def _result(
        self,
        language: str,
        records: Sequence[ClipRecord],
        edge: Sequence[ClipRecord],
        cloud: Sequence[ClipRecord],
    ) -> LanguageResult:
        texts = []
        for tokenisation in tokenisations(language):
            scores = self.scores(records, tokenisation)
            texts.append(
                TextScores(
                    tokenisation=tokenisation.value,
                    scores={metric.value: interval(scores, metric, self._rng()) for metric in Metric},
                    definitions=scores.definitions(),
                    gap_closed=self._gap(records, edge, cloud, tokenisation, NUM_RESAMPLES),
                )
            )
        own = [record for record in records if record.language == language]
        attributes, affect = self._accuracies(own)
        return LanguageResult(
            language=language,
            num_clips=len(own),
            texts=texts,
            attribute_accuracy=attributes,
            affect_accuracy=affect,
        )

    def _accuracies(self, records: Sequence[ClipRecord]) -> tuple[Interval | None, Interval | None]:
        """Shares of attributes, and of affects, that captions state truly; None where the truth is not known."""
        truths = [self._truths[record.clip] for record in records]
        if not all(set(LEVELS) <= set(truth) for truth in truths):
            return None, None
        right = np.array([_right(record, truth) for record, truth in zip(records, truths, strict=True)])
        means = right.mean(axis=1)
        affects = right[:, list(LEVELS).index(AFFECT)]
        return mean_interval(means, self._rng()), mean_interval(affects, self._rng())

    def _rng(self) -> np.random.Generator:
        """The same resamples each time: figures of one run differ by their captions alone."""
        return np.random.default_rng(self._seed)


def _right(record: ClipRecord, truth: Mapping[str, str]) -> list[float]:
    stated = read_attributes(record.text, record.language)
    return [float(stated.get(attribute) == truth[attribute]) for attribute in LEVELS]


# -- costs -----------------------------------------------------------------------------------------------------------


def costs(records: Sequence[ClipRecord], *, seed: int = 0) -> list[Costs]:
    """Over all clips first, then by language."""
    return [_costs(name, group, np.random.default_rng(seed)) for name, group in grouped(records).items()]


def grouped(records: Sequence[ClipRecord]) -> dict[str, Sequence[ClipRecord]]:
    """All of them under "all", then those of each language."""
    languages = sorted({record.language for record in records})
    return {EVERYTHING: records, **{each: [r for r in records if r.language == each] for each in languages}}


def column(records: Sequence[ClipRecord], name: str) -> Float64Array:
    """A number of each record, shape (num_clips,)."""
    return np.array([getattr(record, name) for record in records], dtype=np.float64)


def verified_share(records: Sequence[ClipRecord]) -> float:
    """Tokens that a verdict was asked for / tokens drafted, corrected blocks whole."""
    return _ratio(records, "num_judged", "num_gated")


def verified_shares(records: Sequence[ClipRecord]) -> dict[str, float]:
    """By language."""
    return {name: verified_share(group) for name, group in grouped(records).items() if name != EVERYTHING}


def _ratio(records: Sequence[ClipRecord], above: str, below: str) -> float:
    total = float(column(records, below).sum())
    return float(column(records, above).sum()) / total if total else 0.0


def _costs(language: str, records: Sequence[ClipRecord], rng: np.random.Generator) -> Costs:
    num_tokens = sum(len(record.token_ids) for record in records)
    sent = [record for record in records if record.feature_bytes]
    share = ratio_interval(column(records, "num_judged"), column(records, "num_gated"), rng)
    total_s = mean_interval(column(records, "total_s"), rng)
    return Costs(
        language=language,
        num_clips=len(records),
        seconds=float(column(records, "seconds").sum()),
        num_tokens=num_tokens,
        verified_share=share.value,
        share_interval=share,
        ids_per_token=float(column(records, "tokens_up").sum()) / max(num_tokens, 1),
        calls_per_clip=float(column(records, "num_calls").mean()),
        corrections_per_clip=float(column(records, "num_corrections").mean()),
        silent_share=float((column(records, "bytes_up") == 0).mean()),
        feature_bytes_per_s=_ratio(records, "feature_bytes", "seconds"),
        sent_feature_bytes_per_s=_ratio(sent, "feature_bytes", "seconds"),
        bytes_up_per_clip=float(column(records, "bytes_up").mean()),
        bytes_down_per_clip=float(column(records, "bytes_down").mean()),
        drafted_per_token=float(column(records, "num_drafted").sum()) / max(num_tokens, 1),
        ttft_s=float(column(records, "ttft_s").mean()),
        total_s=total_s.value,
        total_s_interval=total_s,
    )
