"""A tuner's record as text: there and back, and everything else refused with a remedy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedraft.errors import InvalidRequestError
from edgedraft.tune.search import Thresholds
from edgedraft.tune.tuner_file import TunerKey, TunerRecord, from_json, to_json

KEY = TunerKey(draft="hub:a/draft", target="hub:a/target", link="wss://cloud.example:8765")
RECORD = TunerRecord(key=KEY, thresholds=Thresholds(0.62, 0.41), num_trials=16)
NAMES = st.text(min_size=1, max_size=20)
OPEN = st.floats(0, 1, exclude_min=True, exclude_max=True)


@given(draft=NAMES, target=NAMES, link=NAMES, token=OPEN, sequence=OPEN, num_trials=st.integers(1, 1000))
def test_a_record_comes_back(
    draft: str, target: str, link: str, token: float, sequence: float, num_trials: int
) -> None:
    key = TunerKey(draft=draft, target=target, link=link)
    record = TunerRecord(key=key, thresholds=Thresholds(token, sequence), num_trials=num_trials)
    assert from_json(to_json(record), key) == record


def changed(**values: object) -> str:
    return json.dumps(json.loads(to_json(RECORD)) | values)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "damaged"),
        ("{", "damaged"),
        ("[" * 100_000, "damaged"),
        ("[]", "not a tuner's"),
        ('{"hello": 1}', "not a tuner's"),
        (changed(edgedraft_tuner=2), "version 2"),
        (changed(edgedraft_tuner=True), "version True"),
        (changed(edgedraft_tuner="1"), "version 1"),
        (changed(extra=1), "extra"),
        (changed(token_threshold=1.5), "token_threshold"),
        (changed(sequence_threshold=float("nan")), "sequence_threshold"),
        (changed(token_threshold="0.5"), "token_threshold"),
        (changed(num_trials=0), "num_trials"),
        (changed(num_trials=True), "num_trials"),
        (changed(draft=""), "draft"),
        (changed(target=3), "target"),
        (changed(link="another"), "belongs to"),
        (to_json(RECORD)[:-20], "damaged"),
    ],
)
def test_anything_else_is_refused_with_a_remedy(text: str, what: str) -> None:
    with pytest.raises(InvalidRequestError, match=what) as raised:
        from_json(text, KEY)
    assert raised.value.remedy


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        from_json(text, KEY)
