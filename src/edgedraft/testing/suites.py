"""Conformance suites: what every back end passes, ours and yours.

Subclass a suite in a test module under a name that pytest collects, and give it its fixture:

    class TestMyTarget(TargetBackendSuite):
        @pytest.fixture(scope="class")
        def open_target(self) -> OpenTarget:
            return lambda: MyTarget("model.bin", context_length=512, max_sessions=4)

Open the model with a small context (512 tokens is plenty): one test fills it. Needs `pytest`, which nothing else in
edgedraft imports.
"""

from edgedraft.testing.draft_suite import DraftBackendSuite, OpenDraft
from edgedraft.testing.suite_rows import assert_same_row, sample_ids
from edgedraft.testing.target_suite import OpenTarget, TargetBackendSuite
from edgedraft.testing.tokenizer_suite import TokenizerSuite

__all__ = [
    "DraftBackendSuite",
    "OpenDraft",
    "OpenTarget",
    "TargetBackendSuite",
    "TokenizerSuite",
    "assert_same_row",
    "sample_ids",
]
