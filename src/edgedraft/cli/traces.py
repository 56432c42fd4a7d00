"""`edgedraft traces`: record what a draft and a target say of the same texts, and look at what was recorded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgedraft.backends.base import BackendOptions
from edgedraft.backends.recording import TracePrompt, read_prompts, record
from edgedraft.backends.registry import chat_template, open_draft, open_target, open_tokenizer
from edgedraft.backends.trace import (
    KindSummary,
    RecordedText,
    TraceHeader,
    check_writable,
    find_trace,
    read_trace,
    summarise,
    write_traces,
)
from edgedraft.cli import options
from edgedraft.cli.render import err_console, out_console, print_json, print_table, progress_bar, table
from edgedraft.errors import InvalidRequestError, ModelFileError, VocabularyMismatchError
from edgedraft.protocol.fingerprint import compare, fingerprint
from edgedraft.types import ModelInfo

DEFAULT_MAX_TOKENS = 192

app = typer.Typer(
    help="Record a draft and a target, and play them again with family 'replay'.",
    no_args_is_help=True,
    epilog=options.examples(
        "edgedraft traces record --target demo:target --draft demo:draft --prompts prompts.txt --out demo.jsonl.gz",
        "edgedraft traces show qwen25-coder-0.5b-to-1.5b",
    ),
)


@app.command(
    "record",
    epilog=options.examples(
        "edgedraft traces record --target demo:target --draft demo:draft --prompts prompts.txt --out demo.jsonl.gz",
        "edgedraft traces record --target demo:target --draft demo:draft --prompts code.jsonl --kind code "
        "--max-tokens 64 --out code.jsonl.gz --json",
    ),
)
def record_command(
    target: Annotated[str, typer.Option("--target", metavar="SPEC", help=f"Target model: {options.TARGET_FORMS}.")],
    draft: Annotated[str, typer.Option("--draft", metavar="SPEC", help="Draft model with the target's tokenizer.")],
    prompts: Annotated[
        Path,
        typer.Option("--prompts", metavar="FILE", help="One prompt a line; .jsonl: objects with prompt, id, kind."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write; .gz is gzipped.")],
    kind: Annotated[str | None, typer.Option("--kind", metavar="NAME", help="Kind of prompts that name none.")] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens of a text.")
    ] = DEFAULT_MAX_TOKENS,
    raw: Annotated[bool, typer.Option("--raw", help="Give prompts as they are, without the chat template.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE where it exists.")] = False,
    as_json: options.Json = False,
) -> None:
    """Record the target's greedy answers, with the draft's choice and confidence at each position.

    The file appears whole at the end. Play it with --draft replay:FILE and --model replay:FILE.
    """
    _check_out(out, prompts, overwrite=overwrite)
    found = read_prompts(prompts, kind)
    header, texts = _record(target, draft, found, max_tokens, raw=raw, as_json=as_json)
    write_traces(out, header, texts)
    _say(out, header, texts, as_json=as_json)


def _check_out(out: Path, prompts: Path, *, overwrite: bool) -> None:
    """Refuse, before hours of recording, what could not be written after them."""
    if os.path.exists(out) and not (overwrite and out.is_file()):
        reason, remedy = ("there already", "Give another name, or add --overwrite.")
        if not out.is_file():
            reason, remedy = ("no file that could be replaced", "Give another name.")
        raise InvalidRequestError(f"out {out} is {reason}.", field="out", remedy=remedy)
    if os.path.exists(out) and os.path.exists(prompts) and out.samefile(prompts):
        raise InvalidRequestError(f"out {out} is the file of prompts.", field="out", remedy="Give another name.")
    if not os.path.isdir(out.parent):
        raise ModelFileError(f"{out.parent} is not a directory.", remedy="Make it, or give another place.")
    check_writable(out)


def _record(
    target: str, draft: str, prompts: Sequence[TracePrompt], max_tokens: int, *, raw: bool, as_json: bool
) -> tuple[TraceHeader, list[RecordedText]]:
    tokenizer = open_tokenizer(target)
    difference = compare(fingerprint(open_tokenizer(draft)), fingerprint(tokenizer))
    if difference is not None:
        raise VocabularyMismatchError(
            f"draft and target cannot be recorded together: {difference.description}.",
            remedy="Use a draft with the target's own tokenizer.",
        )
    template = "" if raw else chat_template(target)
    with contextlib.ExitStack() as stack:
        target_model = open_target(target, BackendOptions(max_sessions=1))
        stack.callback(target_model.shutdown)
        draft_model = open_draft(draft, BackendOptions(num_ids=tokenizer.num_ids))
        stack.callback(draft_model.close)
        header = TraceHeader(
            target=_named(target_model.info),
            draft=_named(draft_model.info),
            vocab_size=tokenizer.num_ids,
            eos_ids=tuple(sorted({*target_model.info.eos_ids, *tokenizer.eos_ids})),
            max_tokens=max_tokens,
            note="" if template else "prompts without chat template",
        )
        texts = record(draft_model, target_model, tokenizer, prompts, max_tokens, chat_template=template)
        return header, list(_shown(texts, len(prompts), as_json=as_json))


def _named(info: ModelInfo) -> str:
    return f"{info.name} {info.quantisation}".strip()


def _shown(texts: Iterator[RecordedText], num_prompts: int, *, as_json: bool) -> Iterator[RecordedText]:
    """The same texts, counted on stderr: a bar on a terminal, one line elsewhere, nothing with --json."""
    if as_json:
        yield from texts
        return
    bar = progress_bar(in_bytes=False)
    if bar.disable:
        err_console().print(f"recording {num_prompts} texts ...")
    with bar:
        task = bar.add_task(f"recording {num_prompts} texts", total=num_prompts)
        for text in texts:
            bar.advance(task)
            yield text


@app.command(
    "show",
    epilog=options.examples(
        "edgedraft traces show qwen25-coder-0.5b-to-1.5b", "edgedraft traces show demo.jsonl.gz --json"
    ),
)
def show_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A recorded file, or a trace that comes with edgedraft.")],
    as_json: options.Json = False,
) -> None:
    """Show how often the draft was right, by kind of text.

    Right run: tokens that are right for each that is wrong. Second choice: how often it is right where the first is
    wrong.
    """
    path = find_trace(file)
    trace = read_trace(path)
    _say(path, trace.header, trace.texts, as_json=as_json)


def _say(path: Path, header: TraceHeader | None, texts: Sequence[RecordedText], *, as_json: bool) -> None:
    summaries = summarise(texts)
    if as_json:
        about = None if header is None else asdict(header)
        print_json({"path": str(path), "header": about, "kinds": [asdict(summary) for summary in summaries]})
        return
    columns = ("kind", "texts", "tokens", "acceptance", "right run", "second choice")
    print_table(table(path.name, columns, map(_row, summaries)))
    if header is not None:
        out_console().print(f"target {header.target}, draft {header.draft}, at most {header.max_tokens} tokens a text")


def _row(summary: KindSummary) -> tuple[str, ...]:
    return (
        summary.kind,
        str(summary.num_texts),
        str(summary.num_tokens),
        f"{summary.acceptance_rate:.3f}",
        "-" if summary.mean_right_run_tokens is None else f"{summary.mean_right_run_tokens:.1f}",
        "-" if summary.second_choice_rate is None else f"{summary.second_choice_rate:.3f}",
    )
