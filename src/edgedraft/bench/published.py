"""What the PipeSD paper (arXiv 2605.13319) reports, to stand beside our figures. Milliseconds, joules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

METHODS = ("vanilla", "hsl", "edgellm", "pipesd")

TPT_MS: Mapping[tuple[str, str], tuple[float, float, float, float]] = MappingProxyType(
    {
        ("s1", "code"): (194, 155, 153, 129),
        ("s1", "maths"): (193, 174, 169, 145),
        ("s2", "code"): (225, 184, 166, 134),
        ("s2", "maths"): (318, 223, 197, 168),
        ("s3", "code"): (306, 244, 201, 152),
        ("s3", "maths"): (402, 296, 231, 186),
        ("s4", "code"): (160, 132, 127, 108),
        ("s4", "maths"): (234, 165, 161, 139),
    }
)
"""Its table 1: time per token of `METHODS`, by scenario and data set (HumanEval, GSM8K)."""

ECS_J_PER_100: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {"code": (68, 71, 75, 56), "maths": (98, 102, 100, 84)}
)
"""Its table 2, scenario 1: cloud joules per 100 accepted tokens, on an A800."""

ABLATION_TPT_MS: Mapping[str, float] = MappingProxyType(
    {
        "vanilla": 194,
        "pipesd/fixed": 164,
        "pipesd/no-pipeline": 147,
        "pipesd/sequence": 139,
        "pipesd/token": 137,
        "pipesd": 129,
    }
)
"""Its ablation, scenario 1, HumanEval; slowest first."""

SEARCH_TPT_MS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "bayesian": {"code": 129, "maths": 145},
        "grid": {"code": 139, "maths": 155},
        "random": {"code": 148, "maths": 162},
    }
)
"""Its table 3: time per token with thresholds found by each search, scenario 1."""

SPEED_UP_RANGE = (1.16, 2.16)
"""Its claim: PipeSD over its baselines, least and most."""
UPLOAD_SPEED_UP_RANGE = (1.02, 2.06)
"""Its appendix F: planned uploads over the other policies; no table was published."""
