"""Models that listen to speech, opened by their specs; those of text are refused, and closed again."""

from __future__ import annotations

from edgedraft.backends import registry
from edgedraft.backends.base import (
    BackendOptions,
    CaptionTokenizer,
    DraftBackend,
    ListeningDraft,
    ListeningTarget,
)
from edgedraft.errors import UnsupportedError


def open_caption_tokenizer(spec: str) -> CaptionTokenizer:
    """Raises what `registry.open_tokenizer` raises, `UnsupportedError` for a model of text."""
    tokenizer = registry.open_tokenizer(spec)
    if not isinstance(tokenizer, CaptionTokenizer):
        raise _is_of_text("draft", spec)
    return tokenizer


def open_listening_draft(spec: str, options: BackendOptions) -> ListeningDraft:
    """Raises what `registry.open_draft` raises, `UnsupportedError` for a model of text."""
    draft = registry.open_draft(spec, options)
    try:
        return listening(draft)
    except UnsupportedError:
        draft.close()
        raise


def open_listening_target(spec: str, options: BackendOptions) -> ListeningTarget:
    """Raises what `registry.open_target` raises, `UnsupportedError` for a model of text."""
    target = registry.open_target(spec, options)
    if not isinstance(target, ListeningTarget):
        target.shutdown()
        raise _is_of_text("target", spec)
    return target


def listening(draft: DraftBackend) -> ListeningDraft:
    """The draft itself. Raises `UnsupportedError` for one of text."""
    if not isinstance(draft, ListeningDraft):
        raise _is_of_text("draft", draft.info.name)
    return draft


def _is_of_text(field: str, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{field} is '{name}', a model of text.",
        field=field,
        remedy="Use models that listen, such as captioner:edge and captioner:cloud.",
    )
