"""How a caption looks: its text on stdout while it is written, and on stderr all there is to say about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from edgedraft.backends.base import Tokenizer
from edgedraft.caption.caption import Caption
from edgedraft.caption.captioner import CaptionStream
from edgedraft.caption.excerpt_captions import ExcerptCaption
from edgedraft.caption.voice_activity import Check
from edgedraft.cli.asking import TokenPainter
from edgedraft.cli.render import CAPTION_TOKEN_NAMES, TOKEN_STYLES, err_console, legend, out_console
from edgedraft.edge.answer import Piece

BAR_CHARACTERS = 24
MIN_FULL_BAR_NATS = 0.7
"""A bar is full at the highest entropy of its caption, or here where all are low: ln 2, an even choice of two."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Screen:
    """Where captions appear. `names`: each gets a heading, for there are several recordings. `console`: for all."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        names: bool = False,
        show_tokens: bool = False,
        show_entropy: bool = False,
        console: Console | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._names = names
        self._show_tokens = show_tokens
        self._show_entropy = show_entropy
        self._out, self._err = console or out_console(), console or err_console()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """A line on stderr while something goes on; none where stderr is no terminal."""
        if not self._err.is_terminal:
            yield
            return
        with self._err.status(Text(f"{what} ...")):
            yield

    def note(self, text: str) -> None:
        self._err.print(Text.assemble(("note: ", "yellow"), text))

    def begin(self, name: str, found: Check) -> None:
        """What the recording is like, and its name above its captions."""
        for notice in found.notices:
            self.note(f"{name}: {notice}" if self._names else notice)
        if self._names and found.has_speech:
            self._out.print(f"{name}:", style="bold")

    async def write(self, stream: CaptionStream, before: str = "") -> Caption:
        """Show a caption while it is written, with a line end after it, also where an error breaks it off.

        `before`: what stands before it on its line.
        """
        painter = TokenPainter(self._tokenizer) if self._show_tokens else None
        begun = False
        try:
            async for piece in stream:
                if not begun and piece.text.strip():
                    self._out.print(before, end="")
                begun = self._piece(piece, painter, begun=begun)
        finally:
            if begun:
                self._out.print()
        if not begun:
            self._out.print(before.rstrip())
        return stream.caption

    def _piece(self, piece: Piece, painter: TokenPainter | None, *, begun: bool) -> bool:
        text = Text(piece.text, end="") if painter is None else painter.paint(piece)
        if not begun:  # a caption begins with its first letter, as `Caption.text` does
            num_blanks = len(text.plain) - len(text.plain.lstrip())
            text = Text(end="").append_text(text.divide([num_blanks])[-1]) if num_blanks else text
        self._out.print(text, end="")
        self._out.file.flush()
        return begun or bool(text.plain)

    def say(self, caption: Caption) -> None:
        """What is to be said of one caption: legend, bars, notices, account."""
        tokens = caption.answer.tokens
        if self._show_tokens:
            self._err.print(legend((token.kind for token in tokens), CAPTION_TOKEN_NAMES))
        if self._show_entropy:
            for bar in entropy_bars(caption, self._tokenizer):
                self._err.print(bar)
        for notice in caption.answer.notices:
            self.note(notice)
        for line in account_lines(caption):
            self._err.print(line, style="dim")

    def say_used(self, excerpts: Sequence[ExcerptCaption], seconds: float) -> None:
        """Which of the `seconds` of a recording were captioned, and which were not, unless all were, at once."""
        if len(excerpts) == 1 and excerpts[0].end_s - excerpts[0].start_s >= seconds:
            return
        used = [f"{each.start_s:.1f} to {each.end_s:.1f}" for each in excerpts if each.caption is not None]
        unused = [f"{each.start_s:.1f} to {each.end_s:.1f}" for each in excerpts if each.caption is None]
        self._err.print(f"seconds used: {', '.join(used) or 'none'}", style="dim")
        if unused:
            self._err.print(f"no speech found, nothing sent: {', '.join(unused)} s", style="dim")


def entropy_bars(caption: Caption, tokenizer: Tokenizer) -> Iterator[Text]:
    """A line a token: nats, bar, the token in its colour. The draft saw no entropy where the cloud wrote alone."""
    tokens = caption.answer.tokens
    full = max([MIN_FULL_BAR_NATS, *(token.entropy or 0.0 for token in tokens)])
    for token in tokens:
        shown = tokenizer.token_bytes(token.token_id).decode(errors="replace") or "(end)"
        nats = "     -" if token.entropy is None else f"{token.entropy:6.3f}"
        bar = _bar((token.entropy or 0.0) / full)
        yield Text.assemble(f"{nats} {bar:<{BAR_CHARACTERS}} ", (shown, TOKEN_STYLES[token.kind]))


def _bar(share: float) -> str:
    eighths = round(share * BAR_CHARACTERS * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def account_lines(caption: Caption) -> list[str]:
    """What left the device; how much was verified; how long it took."""
    return [left_line(caption), tokens_line(caption), time_line(caption)]


def left_line(caption: Caption) -> str:
    account = caption.account
    audio = f"{account.seconds:.2f} s of audio"
    if not account.called_cloud:
        return f"{audio} · nothing left this device"
    if not account.bytes_up:  # the connection itself may have got through, and with it the token
        return f"{audio} · the cloud was called, but no features and no text left this device"
    sent = "no features"
    if account.feature_bytes:
        sent = f"{account.features}: {account.feature_bytes:,} bytes, {account.share_of_pcm:.1%} of the waveform's"
    total = f"{account.bytes_up:,} bytes up in its messages, {account.bytes_down:,} down"
    return f"{audio} · left this device: {sent} · {total}".replace("%", " %")


def tokens_line(caption: Caption) -> str:
    account = caption.account
    parts = [f"{account.num_tokens} tokens"]
    if account.verified_share is None:
        return f"{parts[0]}, all written by the cloud"
    parts.append(f"{account.verified_share:.1%} of the draft verified".replace("%", " %"))
    parts.append(f"{_count(account.num_cloud_calls, 'cloud call')}, {_count(account.num_corrections, 'correction')}")
    if account.ids_per_token:
        parts.append(f"{account.ids_per_token:.2f} ids sent a token")
    if account.num_unverified:
        parts.append(f"{account.num_unverified} unverified: no verdict came")
    return " · ".join(parts)


def time_line(caption: Caption) -> str:
    account, answer = caption.account, caption.answer
    parts = [f"first token after {account.ttft_s:.2f} s"] if account.ttft_s is not None else []
    alone = f", the draft alone about {account.draft_alone_s:.2f}" if account.draft_alone_s and account.bytes_up else ""
    parts += [f"all after {account.total_s:.2f} s{alone}", f"{answer.strategy}, exact: {answer.exact}"]
    return " · ".join([*parts, f"finish: {answer.finish_reason}"])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
