"""Yardsticks beside every result: the linear bound, and what the target takes alone.

**Linear bound.** The least time in which a linear draft can bring a recorded text to the edge, if the target never
writes by itself. For each token after the first that the edge holds:

* a right draft token costs `draft_s`, or an asking round trip where that is quicker;
* a wrong one costs an asking round trip: nobody but the target knows the token, and the target learns what stands
  before it from the edge;
* the last token costs an asking round trip, since a draft token counts only once its verdict is there.

An *asking round trip* is a one-token `Draft` up, a target pass, a `Commit` down: both messages' start-ups, their bytes
at the link's (highest) rate, the link's round trip, and a pass over no draft token. Not counted, so that the bound
stays one: jitter, queueing, prefill, opening the session, and in regime `paper` the 0.29 MB of a token (there the
bound is loose: half of the tokens or more could travel as bare guesses). Draft jitter is counted at its mean.

With acceptance a this is `a * draft_s + (1 - a) * round_trip_s` per token, over the runs that the text really has.
`assist` and hedging may go below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgedraft.bench.scenario import Scenario

# The smallest with frame headers: a question without ids up, a `Commit` of one small id without timings down.
ASKING_UP_BYTES = 17
ASKING_DOWN_BYTES = 15


def asking_round_trip_s(scenario: Scenario) -> float:
    """Least seconds from sending a one-token question to holding the answer."""
    link = scenario.link
    bytes_s = ASKING_UP_BYTES / link.bytes_per_s("up") + ASKING_DOWN_BYTES / link.bytes_per_s("down")
    fixed_ms = link.startup_ms + link.down_startup_ms + link.rtt_ms + scenario.cloud.step_ms
    return fixed_ms * 1e-3 + bytes_s


def linear_bound_s(right: Sequence[bool], *, draft_s: float, round_trip_s: float) -> float:
    """Least seconds for one text. `right`: for each of its tokens, whether the draft's choice is the target's."""
    num_right = sum(right[:-1])
    num_asked = len(right) - num_right
    return num_right * min(draft_s, round_trip_s) + num_asked * round_trip_s


def bound_ms(scenario: Scenario, rights: Sequence[Sequence[bool]]) -> float:
    """The linear bound of a cell, milliseconds per token; sums over its texts before dividing.

    `rights`: `linear_bound_s`'s for each text, cut to `max_tokens`.
    """
    round_trip_s = asking_round_trip_s(scenario)
    cut = [list(right[: scenario.max_tokens]) for right in rights]
    total_s = sum(linear_bound_s(each, draft_s=scenario.edge.draft_s, round_trip_s=round_trip_s) for each in cut)
    return 1e3 * total_s / sum(map(len, cut))


def cloud_only_ms(scenario: Scenario) -> float:
    """Milliseconds that the target takes for a token when it writes alone; the link's part is left out."""
    return scenario.cloud.step_ms
