"""The recipes that were tried; `edge` and `cloud` are those that were kept (LOG.md says why)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgedraft.speech_features import FeatureDtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one model is made.

    `features`, `sends`: names in `training.data.SPECS`: what it hears, and what it gives to its target.
    `listening_steps`: of the encoder and its attribute heads alone, before `steps` of everything. `offset_noise`,
    `frame_noise`: of augmentation, in spreads of each value. `time_mask_share`: at most so much of a clip is hidden.
    """

    features: str
    sends: str = "prosody_12"
    dtype: FeatureDtype
    width: int
    hidden: int
    num_heads: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_statistics_tokens: int
    clips_per_language: int
    batch_clips: int
    listening_steps: int
    steps: int
    learning_rate: float
    attribute_weight: float
    dropout: float = 0.0
    weight_decay: float = 0.01
    label_smoothing: float = 0.0
    offset_noise: float = 0.0
    frame_noise: float = 0.0
    time_mask_share: float = 0.0
    seed: int = 0


_EDGE = Recipe(
    features="pooled_25",
    dtype=FeatureDtype.FLOAT16,
    width=32,
    hidden=64,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    num_statistics_tokens=0,
    clips_per_language=3_000,
    batch_clips=32,
    listening_steps=0,
    steps=2_000,
    learning_rate=4e-3,
    attribute_weight=0.0,
)

_CLOUD = Recipe(
    features="prosody_12",
    dtype=FeatureDtype.INT8,
    width=128,
    hidden=256,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_statistics_tokens=4,
    clips_per_language=7_500,
    batch_clips=32,
    listening_steps=1_500,
    steps=1_500,
    learning_rate=1.5e-3,
    attribute_weight=0.3,
    dropout=0.1,
    offset_noise=0.1,
    frame_noise=0.1,
    time_mask_share=0.15,
)

RECIPES = {
    "edge": _EDGE,
    "cloud": _CLOUD,
    # Fewer clips and steps; another kind of ears for the edge; the cloud's whole recipe at the edge's size.
    "edge-1500": replace(_EDGE, clips_per_language=1_500, steps=1_500),
    "edge-prosody_12": replace(
        _EDGE, features="prosody_12", dtype=FeatureDtype.INT8, clips_per_language=1_500, steps=1_500
    ),
    "edge-rich": replace(
        _EDGE,
        features="prosody_12",
        dtype=FeatureDtype.INT8,
        num_statistics_tokens=2,
        clips_per_language=7_500,
        listening_steps=1_500,
        attribute_weight=0.3,
    ),
    # What the cloud hears: the whole recipe, and hearing alone.
    **{f"cloud-{name}": replace(_CLOUD, features=name) for name in ("pooled_25", "pooled_12", "prosody_25")},
    **{
        f"hear-{name}": replace(_CLOUD, features=name, listening_steps=1_000, steps=0)
        for name in ("pooled_25", "pooled_12", "prosody_25", "prosody_12")
    },
    "smoke": replace(_EDGE, clips_per_language=40, steps=3),
}
