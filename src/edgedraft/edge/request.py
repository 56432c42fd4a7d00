"""What a caller may ask for, checked before any work begins."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict

from edgedraft.core.strategy import Strategy
from edgedraft.edge.text import check_stop, check_text
from edgedraft.errors import InvalidRequestError, UnsupportedError
from edgedraft.protocol.messages import MAX_LOGIT_BIASES, MAX_STOP_IDS
from edgedraft.schedule.catalogue import strategy_named
from edgedraft.tune.choice import Objective
from edgedraft.types import OnLinkLoss, SamplingParams

DEFAULT_MAX_TOKENS = 256


class RequestOptions(TypedDict, total=False):
    """Options of `generate` and `stream`; what is absent has the default that `Request` shows."""

    messages: Sequence[Mapping[str, str]] | None
    prompt_ids: Sequence[int] | None
    raw: bool
    strategy: str | Strategy | None
    objective: str | float
    draft_length: int | None
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    n: int
    logit_bias: Mapping[int, float]
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    stop: str | Sequence[str]
    stop_ids: Sequence[int]
    ignore_eos: bool
    on_link_loss: str | OnLinkLoss
    logprobs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; names and meanings as in OpenAI and vLLM where they have them.

    Exactly one of `prompt`, `messages` and `prompt_ids`. A prompt goes into the target's chat template as the user's
    message unless `raw`. `strategy`: a name or a `Strategy`; None is 'auto', or 'cloud-only' without a draft. A named
    strategy's numbers follow what is measured, a `Strategy` keeps its own. `objective`: what strategies 'auto' and
    'flow' save: 'latency', 'cost' (target passes), or the seconds that one target pass may cost to save.
    `draft_length`: tokens per draft, strategy 'vanilla' only. `seed`: None draws one, which the answer reports.
    `stop_ids` end the answer like an end-of-sequence id. `logprobs`: each token brings its log-probability, the
    target's after bias and penalties, before temperature and truncation. Raises `InvalidRequestError` naming the first
    bad field.
    """

    prompt: str | None = None
    messages: Sequence[Mapping[str, str]] | None = None
    prompt_ids: Sequence[int] | None = None
    raw: bool = False
    strategy: str | Strategy | None = None
    objective: str | float = "latency"
    draft_length: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    logit_bias: Mapping[int, float] | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: str | Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    on_link_loss: str | OnLinkLoss = OnLinkLoss.WAIT
    logprobs: bool = False

    @classmethod
    def of(cls, prompt: str | None, options: Mapping[str, Any]) -> Self:
        """A request from keyword arguments; an unknown one is refused by name."""
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                raise InvalidRequestError(
                    f"'{name}' is no field of a request.", field=name, remedy=f"There are: {', '.join(sorted(known))}."
                )
        return cls(**{"prompt": prompt, **options})

    def __post_init__(self) -> None:
        self._check_prompt()
        for name in ("max_tokens", "top_k", "n"):
            _require_number(name, getattr(self, name), int)
        for name in ("draft_length", "seed"):
            if getattr(self, name) is not None:
                _require_number(name, getattr(self, name), int)
        for name in _FLOAT_FIELDS:
            _require_number(name, getattr(self, name), float)
        for name in ("raw", "ignore_eos", "logprobs"):
            if not isinstance(value := getattr(self, name), bool):
                raise InvalidRequestError(f"{name} is {type(value).__name__}; legal: true or false.", field=name)
        if self.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens is {self.max_tokens}; legal: 1 or more.", field="max_tokens")
        if self.n != 1:
            raise UnsupportedError(
                f"n is {self.n}; legal: 1.",
                field="n",
                remedy="Send the request once for each answer, with other seeds.",
            )
        check_stop(self.stop)
        _require_ids("stop_ids", self.stop_ids)
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise InvalidRequestError(
                f"stop_ids has {len(self.stop_ids)} ids; legal: at most {MAX_STOP_IDS}.", field="stop_ids"
            )
        self.link_loss()
        self.sampling()
        self.chosen_strategy(has_draft=True)
        self.chosen_objective()

    def _check_prompt(self) -> None:
        given = [name for name in ("prompt", "messages", "prompt_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidRequestError(
                f"prompt, messages and prompt_ids: {len(given)} are given; legal: exactly one.", field="prompt"
            )
        if self.prompt is not None:
            check_text("prompt", self.prompt)
        elif self.messages is not None:
            _require_messages(self.messages)
        else:
            _require_ids("prompt_ids", self.prompt_ids)
        if not getattr(self, given[0]):
            raise InvalidRequestError(f"{given[0]} is empty; legal: at least one token.", field=given[0])

    def sampling(self) -> SamplingParams:
        """The parameters as they travel. A seed drawn here has 53 bits, which every reader of JSON keeps."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=secrets.randbits(53) if self.seed is None else self.seed,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=_checked_bias({} if self.logit_bias is None else self.logit_bias),
        )

    def chosen_strategy(self, *, has_draft: bool) -> Strategy:
        """The strategy to use on an edge with or without a draft model."""
        named = self.strategy
        if named is None:
            drafting = "auto" if self.draft_length is None else "vanilla"
            named = drafting if has_draft or self.draft_length is not None else "cloud-only"
        if isinstance(named, str):
            numbers = {} if self.draft_length is None else {"draft_length": self.draft_length}
            strategy = strategy_named(named, **numbers)
        elif not isinstance(named, Strategy):
            raise InvalidRequestError(
                f"strategy is {type(named).__name__}; legal: a name or a Strategy.", field="strategy"
            )
        elif self.draft_length is not None:
            raise InvalidRequestError("draft_length goes with strategy 'vanilla' by name only.", field="draft_length")
        else:
            strategy = named
        if self.logprobs and not strategy.uses_cloud:
            raise UnsupportedError(
                f"logprobs are the target's, and strategy '{strategy.name}' does without it.",
                field="logprobs",
                remedy="Use another strategy, or leave logprobs out.",
            )
        if strategy.uses_draft and not has_draft:
            raise InvalidRequestError(
                f"strategy is '{strategy.name}', which needs a draft model, and this edge has none.",
                field="strategy",
                remedy="Open the client with draft=SPEC (--draft), or use strategy 'cloud-only'.",
            )
        return strategy

    def chosen_objective(self) -> Objective:
        """What is to be saved, where the strategy leaves a choice."""
        objective = Objective.of(self.objective)
        if objective != Objective() and self.strategy not in (None, "auto", "flow"):
            name = self.strategy.name if isinstance(self.strategy, Strategy) else self.strategy
            raise InvalidRequestError(
                f"objective is '{self.objective}', but strategy '{name}' leaves nothing to choose.",
                field="objective",
                remedy="It goes with strategies 'auto' and 'flow'.",
            )
        return objective

    def link_loss(self) -> OnLinkLoss:
        try:
            return OnLinkLoss(self.on_link_loss)
        except ValueError:
            raise InvalidRequestError(
                f"on_link_loss is '{self.on_link_loss}'; legal: {', '.join(OnLinkLoss)}.", field="on_link_loss"
            ) from None


_FLOAT_FIELDS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def _require_number(name: str, value: object, kind: type[int] | type[float]) -> None:
    legal = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, legal):
        raise InvalidRequestError(
            f"{name} is {type(value).__name__}; legal: {'a whole number' if kind is int else 'a number'}.", field=name
        )


def _required_list(name: str, value: object, of: str) -> Sequence[object]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidRequestError(f"{name} is {type(value).__name__}; legal: a list of {of}.", field=name)
    return value


def _require_ids(name: str, value: object) -> None:
    ids = _required_list(name, value, "token ids")
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise InvalidRequestError(f"{name} holds something else than token ids.", field=name)


def _require_messages(value: object) -> None:
    """The kinds only: what a message must hold is checked where the template meets it."""
    for index, message in enumerate(_required_list("messages", value, "messages")):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(
                f"messages[{index}] is {type(message).__name__}; legal: a mapping with role and content.",
                field="messages",
            )
        for key in ("role", "content"):
            if isinstance(message.get(key), str):
                check_text(f"messages[{index}].{key}", message[key])


def _checked_bias(logit_bias: Mapping[int, float]) -> dict[int, float]:
    """Ids may come as strings, as JSON has them."""
    if not isinstance(logit_bias, Mapping):
        raise InvalidRequestError(
            f"logit_bias is {type(logit_bias).__name__}; legal: a mapping from id to number.", field="logit_bias"
        )
    if len(logit_bias) > MAX_LOGIT_BIASES:
        raise InvalidRequestError(
            f"logit_bias has {len(logit_bias)} ids; legal: at most {MAX_LOGIT_BIASES}.", field="logit_bias"
        )
    try:
        return {int(token_id): float(bias) for token_id, bias in logit_bias.items()}
    except (OverflowError, TypeError, ValueError):
        raise InvalidRequestError("logit_bias holds something else than id: number.", field="logit_bias") from None
