"""Prompts as ids: the chat template is applied on the edge, once, with exactly one BOS in front.

Templates come with models and from clouds, so they run in jinja's immutable sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgedraft.backends.base import Tokenizer
from edgedraft.errors import InvalidRequestError

Messages = Sequence[Mapping[str, str]]

BOS_MARK, EOS_MARK = "\ufdd0", "\ufdd1"
"""Stand for the control tokens in a rendered text. Unicode keeps these two free for such use inside a program."""

_MARKS = re.compile(f"([{BOS_MARK}{EOS_MARK}])")


class _Refused(TemplateError):
    """The template itself called `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}` marks the model's own turns for training; for a prompt it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads it from the class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _tojson(value: Any, indent: int | None = None) -> str:
    """Plain JSON: jinja's own filter escapes for HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _bad_template(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"chat_template {reason}.", field="chat_template", remedy="Send a plain prompt, or name another template."
    )


def _check_messages(messages: Messages) -> None:
    if not messages:
        raise InvalidRequestError("messages is empty; legal: one message or more.", field="messages")
    for index, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise InvalidRequestError(
                    f"messages[{index}].{key} is {type(message.get(key)).__name__}; legal: a string.", field="messages"
                )
    if not any(message["content"] for message in messages):
        raise InvalidRequestError("messages hold no text; legal: a content that is not empty.", field="messages")


def render(
    template: str, messages: Messages, *, bos_token: str, eos_token: str, add_generation_prompt: bool = True
) -> str:
    """The prompt text of a conversation.

    Raises `InvalidRequestError` naming `messages` (none, or not role and content strings, or refused by the template)
    or `chat_template` (absent, not jinja, or it fails). No error holds text of the messages.
    """
    _check_messages(messages)
    if not template:
        raise _bad_template("is empty: the model has none")
    try:
        return _compiled(template).render(
            messages=[dict(message) for message in messages],
            bos_token=bos_token,
            eos_token=eos_token,
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
        )
    except _Refused as error:
        # What the template says is for the user, unless it quotes them.
        quoted = any(message["content"] and message["content"] in str(error) for message in messages)
        reason = "" if quoted else f": {error}"
        raise InvalidRequestError(f"messages are refused by the chat template{reason}.", field="messages") from None
    except TemplateSyntaxError as error:
        raise _bad_template(f"is not valid jinja (line {error.lineno}: {error.message})") from None
    except Exception as error:  # a template is a program of a stranger: it may fail in any way
        raise _bad_template(f"fails with {type(error).__name__}") from None


def _with_one_bos(tokenizer: Tokenizer, token_ids: list[int]) -> list[int]:
    """Several BOS in front become one; none becomes one where the tokenizer wants it."""
    bos_id = tokenizer.bos_id
    if bos_id is None:
        return token_ids
    start = 0
    while start < len(token_ids) and token_ids[start] == bos_id:
        start += 1
    return [bos_id, *token_ids[start:]] if start or tokenizer.add_bos else token_ids


def _encode_marked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a rendered text; the marks become the ids they stand for, whatever text the tokenizer gives them."""
    token_ids: list[int] = []
    for part in _MARKS.split(text):
        if part == BOS_MARK:
            token_ids.extend([] if tokenizer.bos_id is None else [tokenizer.bos_id])
        elif part == EOS_MARK:
            token_ids.extend(tokenizer.eos_ids[:1])
        elif part:
            token_ids.extend(tokenizer.encode(part, parse_special=True))
    return token_ids


def encode_chat(tokenizer: Tokenizer, template: str, messages: Messages) -> list[int]:
    """Prompt ids of a conversation, ready for the model's answer, with at most one BOS in front.

    As in every engine, control tokens are recognised in the whole rendered text: a message that contains the text of
    one (such as `<|im_end|>`) yields that token. Whoever passes on text of strangers should remove them before.
    Errors as in `render`, and for a message with one of the two marks.
    """
    text = render(template, messages, bos_token=BOS_MARK, eos_token=EOS_MARK)
    for index, message in enumerate(messages):
        if _MARKS.search(message["content"] + message["role"]):
            raise InvalidRequestError(
                f"messages[{index}] holds U+FDD0 or U+FDD1, which are not characters.",
                field="messages",
                remedy="Remove them.",
            )
    return _with_one_bos(tokenizer, _encode_marked(tokenizer, text))


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Prompt ids of a plain text, BOS in front where the tokenizer wants one; control tokens as in `encode_chat`.

    Raises `InvalidRequestError` naming `prompt` where it is empty.
    """
    if not text:
        raise InvalidRequestError("prompt is empty; legal: a text.", field="prompt")
    return _with_one_bos(tokenizer, tokenizer.encode(text, parse_special=True))
