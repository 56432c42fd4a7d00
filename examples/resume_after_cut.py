"""Cut the link in the middle of an answer and get the same text all the same.

The client talks to the cloud through a small relay on this machine, which resets the connection twice.
Start a cloud first, then run this beside it:

    edgedraft cloud --model demo:target --deterministic
    python examples/resume_after_cut.py
"""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from edgedraft import EdgeClient
from edgedraft.testing import running_link

CUT_AFTER_TOKENS = (8, 24)


def undisturbed(prompt: str, *, draft: str, url: str, max_tokens: int) -> str:
    with EdgeClient(url, draft=draft) as client:
        return client.generate(prompt, max_tokens=max_tokens).text


def with_cuts(prompt: str, *, draft: str, url: str, max_tokens: int) -> str:
    cloud = urlsplit(url)
    cuts = list(CUT_AFTER_TOKENS)
    num_tokens = 0
    with (
        running_link(cloud.hostname or "127.0.0.1", cloud.port or 80) as link,
        EdgeClient(f"ws://{link.host}:{link.port}{cloud.path}", draft=draft) as client,
    ):
        # One question at a time, so that much of the answer is still to come when the link is cut.
        stream = client.stream(prompt, max_tokens=max_tokens, strategy="vanilla")
        for piece in stream:
            print(piece.text, end="", flush=True)
            num_tokens += piece.num_tokens
            if cuts and num_tokens >= cuts[0]:
                del cuts[0]
                print(" [cut] ", end="", flush=True)
                link.cut()
        print(f"\n\nreconnects: {stream.answer.accounting['num_reconnects']}, exact: {stream.answer.exact}")
        return stream.answer.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="Write a Python function that reverses a string.")
    parser.add_argument("--draft", default="demo:draft", help="model spec of the draft")
    parser.add_argument("--url", default="ws://127.0.0.1:8765/v1/edgedraft", help="address of the cloud, ws:// only")
    parser.add_argument("--max-tokens", type=int, default=60)
    arguments = parser.parse_args()
    where = {"draft": arguments.draft, "url": arguments.url}
    disturbed = with_cuts(arguments.prompt, **where, max_tokens=arguments.max_tokens)
    same = disturbed == undisturbed(arguments.prompt, **where, max_tokens=arguments.max_tokens)
    print(f"the same text as without cuts: {'yes' if same else 'no'}")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
