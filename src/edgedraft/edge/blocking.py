"""The blocking client: the asynchronous one on an event loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

from edgedraft.backends.base import BackendOptions, DraftBackend, Tokenizer
from edgedraft.config import EdgeConfig
from edgedraft.edge.answer import Answer, Piece
from edgedraft.edge.client import DEFAULT_DRAFT, AnswerStream, AsyncEdgeClient
from edgedraft.edge.loop_thread import LoopThread
from edgedraft.edge.request import RequestOptions
from edgedraft.protocol.messages import Welcome

_T = TypeVar("_T")


class BlockingAnswerStream:
    """Pieces of an answer as a plain iterator. Ending the loop early cancels the request.

    for piece in (stream := client.stream("Why is the sky blue?")):
        print(piece.text, end="")
    print(stream.answer.finish_reason)
    """

    def __init__(self, client: EdgeClient, stream: AnswerStream) -> None:
        self._client = client
        self._stream = stream
        self._entered = False

    def __iter__(self) -> Iterator[Piece]:
        if self._entered:
            yield from self._pieces()
        else:
            with self:
                yield from self._pieces()

    def _pieces(self) -> Iterator[Piece]:
        while (piece := self._client.run(_next_piece(self._stream))) is not None:
            yield piece

    def __enter__(self) -> Self:
        self._entered = True
        self._client.run(self._stream.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the request now; the answer so far has finish reason 'cancelled'. Nothing where the client is closed."""
        self._client.post(self._stream.cancel)

    @property
    def answer(self) -> Answer:
        """The whole answer, once the iteration has ended."""
        return self._stream.answer


class EdgeClient(LoopThread):
    """An edge for code without asyncio; arguments and requests as in `AsyncEdgeClient`.

        with EdgeClient(draft="demo:draft") as client:
            print(client.generate("Why is the sky blue?").text)

    May be used from several threads at once. Ctrl-C while a request is waited for cancels the request.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        draft: str | DraftBackend | None = DEFAULT_DRAFT,
        tokenizer: str | Tokenizer | None = None,
        token: str | None = None,
        tls_ca: Path | str | None = None,
        config: EdgeConfig | None = None,
        draft_options: BackendOptions | None = None,
        chat_template: str | None = None,
    ) -> None:
        self._client = AsyncEdgeClient(
            url,
            draft=draft,
            tokenizer=tokenizer,
            token=token,
            tls_ca=tls_ca,
            config=config,
            draft_options=draft_options,
            chat_template=chat_template,
        )
        super().__init__(self._client, EdgeClient)

    def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Answer:
        """Answer a prompt or `messages=`; see `AsyncEdgeClient.generate`."""
        return self.run(self._client.generate(prompt, **options))

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> BlockingAnswerStream:
        """The same, piece by piece; see `BlockingAnswerStream`. Checks the request at once."""
        return BlockingAnswerStream(self, self._client.stream(prompt, **options))

    def connect(self) -> Welcome:
        """Reach the cloud and compare vocabularies; what the cloud says of itself."""
        return self.run(self._client.connect())

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in use, which is also the target's."""
        return self._client.tokenizer


async def _next_piece(stream: AnswerStream) -> Piece | None:
    return await anext(stream, None)
