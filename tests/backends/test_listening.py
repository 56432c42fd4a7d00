"""Models of text are refused where one that listens is needed, and closed again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from edgedraft.backends import listening, registry
from edgedraft.backends.base import BackendOptions
from edgedraft.errors import UnsupportedError

OPTIONS = BackendOptions()


@pytest.mark.parametrize(
    ("field", "open_model"),
    [
        ("draft", listening.open_caption_tokenizer),
        ("draft", lambda spec: listening.open_listening_draft(spec, OPTIONS)),
        ("target", lambda spec: listening.open_listening_target(spec, OPTIONS)),
    ],
    ids=["tokenizer", "draft", "target"],
)
def test_a_model_of_text_is_refused(field: str, open_model: Callable[[str], object]) -> None:
    with pytest.raises(UnsupportedError, match="a model of text") as caught:
        open_model("toy:vocab=300,seed=3")
    assert caught.value.field == field


def test_what_was_refused_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    text = SimpleNamespace(
        info=SimpleNamespace(name="text"),
        close=lambda: closed.append("draft"),
        shutdown=lambda: closed.append("target"),
    )
    monkeypatch.setattr(registry, "open_draft", lambda spec, options: text)
    monkeypatch.setattr(registry, "open_target", lambda spec, options: text)
    for open_model in (listening.open_listening_draft, listening.open_listening_target):
        with pytest.raises(UnsupportedError):
            open_model("text", OPTIONS)
    assert closed == ["draft", "target"]


def test_a_model_that_listens_is_opened() -> None:
    draft = listening.open_listening_draft("captioner:edge", OPTIONS)
    assert listening.listening(draft) is draft
    draft.close()
    assert listening.open_caption_tokenizer("captioner:edge").languages
