"""Stream an answer as it becomes final, and say how it came about.

Start a cloud first, then run this beside it:

    edgedraft cloud --model demo:target
    python examples/stream_text.py "Why is the sky blue?"
"""

from __future__ import annotations

import argparse
import asyncio

from edgedraft import AsyncEdgeClient


async def stream(prompt: str, *, draft: str, url: str | None, max_tokens: int) -> None:
    async with AsyncEdgeClient(url, draft=draft) as client:
        async with client.stream(prompt, max_tokens=max_tokens, stop=["\n\n\n"]) as stream:
            async for piece in stream:
                print(piece.text, end="", flush=True)
        answer = stream.answer

    figures = answer.accounting
    print(f"\n\n{answer.usage.completion_tokens} tokens, finish reason {answer.finish_reason}, exact: {answer.exact}")
    print(f"{figures['num_accepted']} of {figures['num_drafted']} draft tokens accepted", end=", ")
    print(f"{figures['num_target_passes']} target passes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="Why is the sky blue?")
    parser.add_argument("--draft", default="demo:draft", help="model spec of the draft")
    parser.add_argument("--url", help="address of the cloud; default: EDGEDRAFT_URL, else this machine")
    parser.add_argument("--max-tokens", type=int, default=80)
    arguments = parser.parse_args()
    asyncio.run(stream(arguments.prompt, draft=arguments.draft, url=arguments.url, max_tokens=arguments.max_tokens))


if __name__ == "__main__":
    main()
