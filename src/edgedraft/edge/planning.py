"""From a request to a plan: prompt ids, limits and numbers, with everything refused that cannot be obeyed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from edgedraft.backends.base import Tokenizer
from edgedraft.backends.template import encode_chat, encode_prompt
from edgedraft.core.edge_settings import EdgeSessionSettings
from edgedraft.core.strategy import Strategy
from edgedraft.edge.drafter import DraftOrder
from edgedraft.edge.request import Request
from edgedraft.edge.runtime import LOCAL_NOTE, RequestPlan
from edgedraft.edge.text import check_stop
from edgedraft.errors import ContextLengthError, InvalidRequestError, UnsupportedError
from edgedraft.protocol.messages import Welcome
from edgedraft.types import SESSION_ID_BYTES, Exactness, ModelInfo, Rule

_EXACT_BY_RULE = {Rule.RATIO: Exactness.DISTRIBUTION, Rule.RANK: Exactness.LOSSY}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """The model whose text the answer is to be: the target, or the draft where it works alone.

    `role` names it in errors. `rules` is None where nothing is judged, `welcome` where there is no cloud.
    """

    role: str
    template: str
    context_length: int
    eos_ids: frozenset[int]
    exact: Exactness
    exactness_note: str
    max_pending_tokens: int
    assist_lead_tokens: int
    rules: Sequence[Rule] | None
    welcome: Welcome | None = None

    @classmethod
    def of_cloud(cls, welcome: Welcome) -> TextModel:
        return cls(
            role="target",
            template=welcome.chat_template,
            context_length=welcome.limits.context_length,
            eos_ids=frozenset(welcome.fingerprint.eos_ids),
            exact=welcome.exactness.exactness,
            exactness_note=welcome.exactness.depends_on,
            max_pending_tokens=welcome.limits.max_pending_tokens,
            assist_lead_tokens=welcome.limits.assist_lead_tokens,
            rules=welcome.limits.rules,
            welcome=welcome,
        )

    @classmethod
    def of_draft(cls, info: ModelInfo, tokenizer: Tokenizer, template: str) -> TextModel:
        return cls(
            role="draft model",
            template=template,
            context_length=info.context_length,
            eos_ids=frozenset(info.eos_ids) | frozenset(tokenizer.eos_ids),
            exact=Exactness.LOSSY,
            exactness_note=LOCAL_NOTE,
            max_pending_tokens=1,
            assist_lead_tokens=1,
            rules=None,
        )


def plan_request(
    request: Request,
    strategy: Strategy,
    model: TextModel,
    tokenizer: Tokenizer,
    draft: ModelInfo | None,
    *,
    silence_s: float,
    notices: Sequence[str] = (),
) -> RequestPlan:
    """Raises `ContextLengthError` where the prompt leaves no room for a token, `UnsupportedError` and
    `InvalidRequestError` naming the field. An answer that would pass the context is cut to it, with a notice.
    """
    _check_rule(strategy, model)
    prompt_ids = _prompt_ids(request, model, tokenizer)
    max_tokens, cut = _fitting(len(prompt_ids), request.max_tokens, model)
    sampling = request.sampling()
    _check_ids("logit_bias", sampling.logit_bias, tokenizer)
    _check_ids("stop_ids", request.stop_ids, tokenizer)
    settings = EdgeSessionSettings(
        session_id=secrets.token_bytes(SESSION_ID_BYTES),
        prompt_ids=prompt_ids,
        max_tokens=max_tokens,
        sampling=sampling,
        strategy=strategy,
        eos_ids=model.eos_ids,
        stop_ids=frozenset(request.stop_ids),
        ignore_eos=request.ignore_eos,
        on_link_loss=request.link_loss(),
        draft_context_length=draft.context_length if draft is not None and strategy.uses_draft else None,
        max_pending_tokens=model.max_pending_tokens,
        assist_lead_tokens=model.assist_lead_tokens,
        silence_s=silence_s,
        logprobs=request.logprobs,
    )
    order = None
    if (
        strategy.uses_draft
        and draft is not None
        and (len(prompt_ids) < draft.context_length or not strategy.uses_cloud)
    ):
        order = DraftOrder(
            sampling=sampling,
            rule=strategy.rule,
            num_ids=tokenizer.num_ids,
            num_prompt=len(prompt_ids),
            stop_ids=settings.end_ids,
            reuse=strategy.uses_cloud,
        )
    return RequestPlan(
        settings=settings,
        stop=check_stop(request.stop),
        order=order,
        exact=model.exact if model.rules is None else _EXACT_BY_RULE.get(strategy.rule, model.exact),
        exactness_note=model.exactness_note,
        notices=[*notices, *cut],
        promised=model.welcome,
    )


def _prompt_ids(request: Request, model: TextModel, tokenizer: Tokenizer) -> list[int]:
    if request.prompt_ids is not None:
        _check_ids("prompt_ids", request.prompt_ids, tokenizer)
        return list(request.prompt_ids)
    if request.messages is not None:
        if not model.template:
            raise UnsupportedError(
                f"messages are given, but the {model.role} has no chat template.",
                field="messages",
                remedy="Send a plain prompt.",
            )
        return encode_chat(tokenizer, model.template, request.messages)
    prompt = request.prompt or ""
    if request.raw or not model.template:
        token_ids = encode_prompt(tokenizer, prompt)
    else:
        token_ids = encode_chat(tokenizer, model.template, [{"role": "user", "content": prompt}])
    if not token_ids:
        raise InvalidRequestError("prompt gives no token; legal: at least one.", field="prompt")
    return token_ids


def _fitting(num_prompt: int, max_tokens: int, model: TextModel) -> tuple[int, list[str]]:
    """How many tokens may follow the prompt, and what to say where that is fewer than asked for."""
    room = model.context_length - num_prompt
    if room < 1:
        raise ContextLengthError(
            f"the prompt has {num_prompt} tokens, but prompt and answer must fit the {model.role}'s context of "
            f"{model.context_length}.",
            field="prompt",
            remedy="Shorten the prompt, or use a model with a longer context.",
        )
    if max_tokens <= room:
        return max_tokens, []
    notice = (
        f"max_tokens was lowered from {max_tokens} to {room}: the prompt has {num_prompt} tokens and the "
        f"{model.role}'s context {model.context_length}."
    )
    return room, [notice]


def _check_rule(strategy: Strategy, model: TextModel) -> None:
    if model.rules is not None and strategy.rule not in model.rules:
        raise UnsupportedError(f"rule is '{strategy.rule}'; this cloud has: {', '.join(model.rules)}.", field="rule")
    if strategy.rule is Rule.RANK:
        raise UnsupportedError(
            "rule is 'rank', which judges logs that the edge owns; a text's log is the cloud's.",
            field="rule",
            remedy="Use rule 'match' or 'ratio'.",
        )


def _check_ids(field: str, token_ids: Sequence[int] | dict[int, float], tokenizer: Tokenizer) -> None:
    for token_id in token_ids:
        if not 0 <= token_id < tokenizer.num_ids:
            raise InvalidRequestError(
                f"{field} holds id {token_id}; legal: 0 to {tokenizer.num_ids - 1}, the vocabulary.", field=field
            )
