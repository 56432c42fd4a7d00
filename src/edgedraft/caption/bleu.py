"""BLEU of a whole set of captions (Papineni et al. 2002), as sacrebleu computes it, from sums over captions.

A caption is ten numbers; BLEU of any choice of captions follows from their sums, so a bootstrap needs no second count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from edgedraft.types import Float64Array

MAX_ORDER = 4
_LENGTH, _REFERENCE_LENGTH = 2 * MAX_ORDER, 2 * MAX_ORDER + 1
NUM_COLUMNS = 2 * MAX_ORDER + 2
"""Clipped n-gram matches, n-grams (of 1 to 4 tokens each), caption length, length of the closest reference."""

Tokens = Sequence[str]


def statistics(caption: Tokens, references: Sequence[Tokens]) -> Float64Array:
    """What one caption adds to the sums: float64, shape (NUM_COLUMNS,). `references`: one or more."""
    row = np.zeros(NUM_COLUMNS)
    for order in range(1, MAX_ORDER + 1):
        drafted = Counter(_ngrams(caption, order))
        wanted: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            wanted |= Counter(_ngrams(reference, order))
        row[order - 1] = (drafted & wanted).total()
        row[MAX_ORDER + order - 1] = drafted.total()
    row[_LENGTH] = len(caption)
    row[_REFERENCE_LENGTH] = min(
        (len(reference) for reference in references), key=lambda length: (abs(length - len(caption)), length)
    )
    return row


def bleu(sums: Float64Array, max_order: int) -> Float64Array:
    """BLEU with brevity penalty, 0 to 100, shape (m,), of `sums`: float64, shape (m, NUM_COLUMNS or more).

    Orders without a match are smoothed as in sacrebleu ("exp"): the first such counts 1/2 of a match, the next 1/4.
    """
    log_precisions = np.zeros(len(sums))
    halvings = np.ones(len(sums))
    for order in range(max_order):
        matches, totals = sums[:, order], sums[:, MAX_ORDER + order]
        halvings = np.where(matches > 0, halvings, halvings * 2)
        smoothed = np.where(matches > 0, matches, 1 / halvings)
        log_precisions += np.log(smoothed / np.maximum(totals, 1))
    # Without a single match, or too short for an n-gram of the highest order, nothing can be smoothed.
    scored = sums[:, :max_order].any(axis=1) & (sums[:, MAX_ORDER + max_order - 1] > 0)
    return np.where(scored, 100 * _brevity_penalty(sums) * np.exp(log_precisions / max_order), 0.0)


def unigram_precision(sums: Float64Array) -> Float64Array:
    """Precision of single tokens, 0 to 100, shape (m,): BLEU-1 without brevity penalty, so short captions gain."""
    precision: Float64Array = 100 * sums[:, 0] / np.maximum(sums[:, MAX_ORDER], 1)
    return precision


def _ngrams(tokens: Tokens, order: int) -> Iterator[tuple[str, ...]]:
    return zip(*(tokens[start:] for start in range(order)), strict=False)


def _brevity_penalty(sums: Float64Array) -> Float64Array:
    lengths, reference_lengths = sums[:, _LENGTH], sums[:, _REFERENCE_LENGTH]
    penalty: Float64Array = np.exp(np.minimum(0.0, 1 - reference_lengths / np.maximum(lengths, 1)))
    return penalty
