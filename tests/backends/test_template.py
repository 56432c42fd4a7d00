"""Chat templates: exactly one BOS, a sandbox, and errors that name the field and quote no prompt."""

from __future__ import annotations

import pytest

from edgedraft.backends.template import BOS_MARK, encode_chat, encode_prompt, render
from edgedraft.backends.toy_tokenizer import CHAT_TEMPLATE, ToyTokenizer
from edgedraft.errors import InvalidRequestError

SECRET = "the user's own words"
MESSAGES = [{"role": "user", "content": SECRET}]
BOS, EOS, IM_START, IM_END = range(256, 260)


def tokenizer(*, add_bos: bool = True, has_bos: bool = True) -> ToyTokenizer:
    made = ToyTokenizer(260)
    made.add_bos = add_bos
    if not has_bos:
        made.bos_id = None
    return made


def rendered(template: str, **options: bool) -> str:
    return render(template, MESSAGES, bos_token="<s>", eos_token="</s>", **options)


def test_template_is_applied() -> None:
    assert rendered(CHAT_TEMPLATE) == f"<s><|im_start|>user\n{SECRET}<|im_end|>\n<|im_start|>assistant\n"
    assert not rendered(CHAT_TEMPLATE, add_generation_prompt=False).endswith("assistant\n")


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize(
    "head",
    ["{{ bos_token }}", "<s>", "{{ bos_token }}<s>", "{{ bos_token + bos_token }}", ""],
    ids=["variable", "literal", "both", "double", "neither"],
)
def test_exactly_one_bos(head: str, add_bos: bool) -> None:
    token_ids = encode_chat(tokenizer(add_bos=add_bos), head + "{{ messages[0]['content'] }}", MESSAGES)
    assert token_ids.count(BOS) == (1 if head or add_bos else 0)
    assert token_ids[-len(SECRET) :] == list(SECRET.encode())


def test_tokenizer_without_bos_gets_none() -> None:
    token_ids = encode_chat(tokenizer(add_bos=False, has_bos=False), CHAT_TEMPLATE, MESSAGES)
    assert BOS not in token_ids
    assert token_ids[0] == IM_START


def test_control_tokens_of_the_template_become_ids() -> None:
    template = "<|im_start|>{{ messages[0]['content'] }}{{ eos_token }}<|im_end|>"
    assert encode_chat(tokenizer(), template, MESSAGES) == [BOS, IM_START, *SECRET.encode(), EOS, IM_END]


@pytest.mark.parametrize(("text", "expected"), [("hi", [BOS, 104, 105]), ("<s>hi", [BOS, 104, 105])])
def test_plain_prompt_has_one_bos(text: str, expected: list[int]) -> None:
    assert encode_prompt(tokenizer(), text) == expected
    assert encode_prompt(tokenizer(add_bos=False), "hi") == [104, 105]


def test_empty_prompt_is_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        encode_prompt(tokenizer(), "")
    assert caught.value.field == "prompt"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user"}],
        [{"content": "hi"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": f"{SECRET} {BOS_MARK}"}],
    ],
)
def test_bad_messages_are_named(messages: list[dict[str, str]]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        encode_chat(tokenizer(), CHAT_TEMPLATE, messages)
    assert caught.value.field == "messages"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "field", "said"),
    [
        ("", "chat_template", "is empty"),
        ("{% if %}", "chat_template", "line 1"),
        ("{{ messages[0].content + 1 }}", "chat_template", "TypeError"),
        ("{{ 1 / 0 }}", "chat_template", "ZeroDivisionError"),
        ("{{ nothing.here }}", "chat_template", "UndefinedError"),
        ("{{ raise_exception('only user and assistant take turns') }}", "messages", "take turns"),
        ("{{ raise_exception('bad: ' + messages[0].content) }}", "messages", "refused"),
        ("{{ ''.__class__.__mro__ }}", "chat_template", "SecurityError"),
        ("{{ messages.append(1) }}", "chat_template", "SecurityError"),
        ("{% for n in range(10000000) %}x{% endfor %}", "chat_template", "OverflowError"),
    ],
)
def test_bad_templates_are_named_and_quote_no_prompt(template: str, field: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as caught:
        rendered(template)
    assert caught.value.field == field
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for n in range(9) %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}", "01"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% if tools is none %}no tools{% endif %}", "no tools"),
        ("{{ strftime_now('%%') }}", "%"),
    ],
    ids=["loop controls", "json", "trimmed blocks", "generation", "no tools", "date"],
)
def test_what_published_templates_use(template: str, expected: str) -> None:
    assert rendered(template) == expected


def test_template_sees_copies_of_the_messages() -> None:
    messages = [{"role": "user", "content": "a"}]
    with pytest.raises(InvalidRequestError):
        render("{{ messages[0].update({'content': 'b'}) }}", messages, bos_token="", eos_token="")
    assert messages == [{"role": "user", "content": "a"}]
