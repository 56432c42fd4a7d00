"""The published suites, on the demo models."""

from __future__ import annotations

import pytest

from edgedraft.backends.base import BackendOptions, Tokenizer
from edgedraft.backends.llamacpp import LlamaCppFamily
from edgedraft.backends.model_store import resolve
from edgedraft.testing.suites import DraftBackendSuite, OpenDraft, OpenTarget, TargetBackendSuite, TokenizerSuite

pytestmark = pytest.mark.model
FAMILY = LlamaCppFamily()
# Chunks smaller than the default keep the suite short; the exactness tests use the default.
CHUNK_TOKENS = 32


class TestLlamaCppDraft(DraftBackendSuite):
    @pytest.fixture
    def open_draft(self) -> OpenDraft:
        path = str(resolve("demo:draft"))
        return lambda: FAMILY.open_draft(path, BackendOptions(threads=1, context_length=256))


class TestDeterministicTarget(TargetBackendSuite):
    num_prompt_tokens = 70

    @pytest.fixture
    def open_target(self) -> OpenTarget:
        path = str(resolve("demo:target"))
        options = BackendOptions(
            context_length=256, max_sessions=4, deterministic=True, prefill_chunk_tokens=CHUNK_TOKENS
        )
        return lambda: FAMILY.open_target(path, options)


class TestBatchingTarget(TargetBackendSuite):
    num_prompt_tokens = 70
    tolerance = 0.25  # sessions that share a pass may shift each other's logits a little

    @pytest.fixture
    def open_target(self) -> OpenTarget:
        path = str(resolve("demo:target"))
        options = BackendOptions(threads=1, context_length=256, max_sessions=4, prefill_chunk_tokens=CHUNK_TOKENS)
        return lambda: FAMILY.open_target(path, options)


class TestLlamaCppTokenizer(TokenizerSuite):
    @pytest.fixture
    def tokenizer(self) -> Tokenizer:
        return FAMILY.open_tokenizer(str(resolve("demo:draft")))
