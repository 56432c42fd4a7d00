"""ROUGE-L (Lin 2004): how much of a caption and of its references is one common subsequence."""

from __future__ import annotations

from collections.abc import Sequence

RECALL_WEIGHT = 1.2
"""As in the COCO caption evaluation: recall counts 1.2 times as much as precision (F, not F1)."""


def rouge_l(caption: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """F measure of one caption, 0 to 1. Of several references, best precision and best recall count, as in COCO."""
    shared = [common_length(caption, reference) for reference in references]
    if not caption or not any(shared):
        return 0.0
    precision = max(shared) / len(caption)
    recall = max(length / len(reference) for length, reference in zip(shared, references, strict=True) if reference)
    weight = RECALL_WEIGHT**2
    return (1 + weight) * precision * recall / (recall + weight * precision)


def common_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence, by dynamic programming over prefixes."""
    row = [0] * (len(right) + 1)
    for token in left:
        above = row
        row = [0]
        for column, other in enumerate(right):
            row.append(above[column] + 1 if token == other else max(row[column], above[column + 1]))
    return row[-1]
