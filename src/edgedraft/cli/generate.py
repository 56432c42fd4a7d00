"""`edgedraft generate`: one prompt, one answer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgedraft.cli import options
from edgedraft.cli.asking import ask, edge_client, prompt_text
from edgedraft.cli.render import print_json
from edgedraft.edge.request import Request
from edgedraft.errors import InvalidRequestError
from edgedraft.types import OnLinkLoss

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt; '-' reads it from stdin.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Write on past the target's own end of text.")]
Raw = Annotated[bool, typer.Option("--raw", help="Send the prompt as it is, without the chat template.")]

Logprobs = Annotated[bool, typer.Option("--logprobs", help="With --json: add the log-probability of each token.")]


def generate(
    prompt: Prompt,
    draft: options.Draft = options.DEFAULT_DRAFT,
    draft_threads: options.DraftThreads = None,
    tokenizer: options.Tokenizer = None,
    url: options.Url = None,
    token: options.Token = None,
    tls_ca: options.TlsCa = None,
    on_link_loss: options.OnLoss = OnLinkLoss.WAIT,
    strategy: options.StrategyName = None,
    objective: options.Objective = "latency",
    draft_length: options.DraftLength = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    ignore_eos: IgnoreEos = False,
    system: options.System = None,
    raw: Raw = False,
    show_tokens: options.ShowTokens = False,
    logprobs: Logprobs = False,
    as_json: options.Json = False,
) -> None:
    """Write one answer: the text goes to stdout, notices and a one-line account to stderr.

    With --json stdout gets one object instead: text, token_ids, finish_reason, usage, strategy, exact, accounting, ...
    """
    request: dict[str, Any] = {
        **_prompt_fields(prompt_text(prompt), system, raw=raw),
        "strategy": strategy,
        "objective": options.objective_value(objective),
        "draft_length": draft_length,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": tuple(stop or ()),
        "ignore_eos": ignore_eos,
        "on_link_loss": on_link_loss,
        "logprobs": logprobs,
    }
    if logprobs and not as_json:
        raise InvalidRequestError(
            "logprobs is given without json; legal: both.",
            field="logprobs",
            remedy="Add --json: text has no place for them.",
        )
    Request(**request)  # refuse what cannot be obeyed before any model is loaded
    client = edge_client(
        url=url,
        token=token,
        tls_ca=tls_ca,
        draft=draft,
        draft_threads=draft_threads,
        tokenizer=tokenizer,
        strategy=strategy,
    )
    with client:
        if as_json:
            print_json(client.generate(**request).to_dict())
        else:
            ask(client, request, show_tokens=show_tokens)


def _prompt_fields(text: str, system: str | None, *, raw: bool) -> dict[str, Any]:
    if system is None:
        return {"prompt": text, "raw": raw}
    if raw:
        raise InvalidRequestError(
            "raw and system are both given; legal: one of them.",
            field="system",
            remedy="A raw prompt has no roles: write the system message into it.",
        )
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}


def register(app: typer.Typer) -> None:
    app.command(
        epilog=options.examples(
            'edgedraft generate "Why is the sky blue?" --draft demo:draft --show-tokens',
            'edgedraft generate "Name three colours." --strategy cloud-only --tokenizer demo:target',
            'edgedraft generate "A poem." --temperature 0.8 --seed 7 --json',
            "cat notes.txt | edgedraft generate - --draft lookup --tokenizer demo:target",
        )
    )(generate)
