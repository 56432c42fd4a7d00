"""Scenarios: which texts, which edge, which cloud, which link. Written in TOML; a `[grid]` table expands into cells."""

from __future__ import annotations

import copy
import difflib
import enum
import hashlib
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

import msgspec

from edgedraft.errors import InvalidRequestError

BUILT_IN = "edgedraft.bench.data"
MAX_CELLS = 5_000
MAX_MS = 600_000.0
"""Ten minutes for a single step, message or way; what a replayed model may be told too."""
MIN_MBIT_PER_S = 1e-3
MIN_CHANGE_S = 0.01
MAX_TOKENS, MAX_TEXTS, MAX_EDGES, MAX_SEEDS, MAX_BATCH_SESSIONS = 1_000_000, 1_000_000, 64, 1_000, 256
_BITS_PER_MBIT = 1e6
_NO_PAPER_NUMBERS = "chat"


class Dataset(enum.StrEnum):
    """Which of the recorded texts."""

    CODE = "code"
    MATHS = "maths"
    CHAT = "chat"


class Regime(enum.StrEnum):
    """What travels for a draft token: `paper` its whole distribution, `ids` its id."""

    PAPER = "paper"
    IDS = "ids"


class Device(enum.StrEnum):
    """Edge devices of the paper's scenarios 1 to 3."""

    LAPTOP = "laptop"
    PHONE = "phone"
    IOT = "iot"


class Settings(enum.StrEnum):
    """Where a strategy's numbers come from: the paper, or a search on this very cell."""

    PAPER = "paper"
    TUNED = "tuned"


# Draft time per token. The laptop's is the paper's own; the others follow from its tables (45 % and 20 % of the clock).
DRAFT_MS: Mapping[Device, float] = {Device.LAPTOP: 36.0, Device.PHONE: 70.0, Device.IOT: 145.0}


def _require(field: str, value: object, legal: bool, rule: str) -> None:
    if not legal:
        raise InvalidRequestError(f"{field} is {value}; legal: {rule}.", field=field)


def _require_time(field: str, value: float) -> None:
    _require(field, value, 0 <= value <= MAX_MS, f"0 to {MAX_MS:.0f} milliseconds")


def _require_count(field: str, value: int, most: int) -> None:
    _require(field, value, 1 <= value <= most, f"1 to {most}")


def _refuse_both(first: str, second: str, remedy: str) -> None:
    raise InvalidRequestError(
        f"{first} and {second} are both given, and contradict each other.", field=first, remedy=remedy
    )


class Edge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edge. Exactly one of `device` and `draft_ms`, which is milliseconds per draft token; `jitter` is relative."""

    device: Device | None = None
    draft_ms: float | None = None
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.device is not None and self.draft_ms is not None:
            _refuse_both("edge.draft_ms", "edge.device", "Give one; a device is a draft time with a name.")
        if self.device is None and self.draft_ms is None:
            raise InvalidRequestError(
                "edge has neither device nor draft_ms.", field="edge.draft_ms", remedy='Give one: device = "laptop".'
            )
        _require_time("edge.draft_ms", self.draft_s * 1e3)
        _require("edge.jitter", self.jitter, 0 <= self.jitter < 1, "0 to below 1, a share of the draft time")

    @property
    def draft_s(self) -> float:
        return (DRAFT_MS[self.device] if self.device is not None else self.draft_ms or 0.0) / 1e3


class Cloud(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cloud. A target pass takes `step_ms`, and `per_draft_ms` more for each draft id that it judges."""

    step_ms: float
    per_draft_ms: float = 0.0
    per_session_ms: float = 0.0
    max_batch_sessions: int = 1

    def __post_init__(self) -> None:
        for field in ("step_ms", "per_draft_ms", "per_session_ms"):
            _require_time(f"cloud.{field}", getattr(self, field))
        # A pass that takes no time leaves nothing to compare.
        _require("cloud.step_ms", self.step_ms, self.step_ms > 0, f"above 0, at most {MAX_MS:.0f} milliseconds")
        _require_count("cloud.max_batch_sessions", self.max_batch_sessions, MAX_BATCH_SESSIONS)


Range = tuple[float, float]


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The link. `startup_ms` (up) and `down_startup_ms` occupy it per message; half of `rtt_ms` passes each way.

    Rates in 10^6 bits per second, unlimited by default. A `*_range_*` in place of a rate: drawn evenly from it, again
    every `change_every_s`. Jitter is even in [0, `jitter_ms`] each way.
    """

    startup_ms: float = 0.0
    down_startup_ms: float = 0.0
    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    up_mbit_per_s: float | None = None
    down_mbit_per_s: float | None = None
    up_range_mbit_per_s: Range | None = None
    down_range_mbit_per_s: Range | None = None
    change_every_s: float | None = None

    def __post_init__(self) -> None:
        for field in ("startup_ms", "down_startup_ms", "rtt_ms", "jitter_ms"):
            _require_time(f"link.{field}", getattr(self, field))
        for way in ("up", "down"):
            self._check_rate(way)
        varies = self.up_range_mbit_per_s is not None or self.down_range_mbit_per_s is not None
        if varies != (self.change_every_s is not None):
            raise InvalidRequestError(
                "link.change_every_s and a range of rates go together; one is missing.",
                field="link.change_every_s",
                remedy="Give both, or a fixed rate.",
            )
        if self.change_every_s is not None:
            every_s = self.change_every_s
            legal = MIN_CHANGE_S <= every_s < math.inf
            _require("link.change_every_s", every_s, legal, f"{MIN_CHANGE_S} seconds or more")

    def _check_rate(self, way: str) -> None:
        rate, rates = getattr(self, f"{way}_mbit_per_s"), getattr(self, f"{way}_range_mbit_per_s")
        if rate is not None and rates is not None:
            _refuse_both(f"link.{way}_mbit_per_s", f"link.{way}_range_mbit_per_s", "Give a fixed rate or a range.")
        if rate is not None:
            _require(f"link.{way}_mbit_per_s", rate, rate >= MIN_MBIT_PER_S, f"{MIN_MBIT_PER_S} or more")
        if rates is not None:
            low, high = rates
            legal = MIN_MBIT_PER_S <= low <= high < math.inf
            rule = f"[lowest, highest], {MIN_MBIT_PER_S} or more"
            _require(f"link.{way}_range_mbit_per_s", list(rates), legal, rule)

    @property
    def varies(self) -> bool:
        return self.change_every_s is not None

    def bytes_per_s(self, way: str) -> float:
        """The fixed rate of `way` (up or down); of a range its highest."""
        rates: Range | None = getattr(self, f"{way}_range_mbit_per_s")
        rate: float | None = getattr(self, f"{way}_mbit_per_s")
        return _bytes_per_s(rates[1] if rates is not None else math.inf if rate is None else rate)

    def range_bytes_per_s(self, way: str) -> Range:
        """The range of `way`; of a fixed rate the rate twice."""
        rates: Range | None = getattr(self, f"{way}_range_mbit_per_s")
        fixed = self.bytes_per_s(way)
        return (fixed, fixed) if rates is None else (_bytes_per_s(rates[0]), _bytes_per_s(rates[1]))


def _bytes_per_s(mbit_per_s: float) -> float:
    return mbit_per_s * _BITS_PER_MBIT / 8


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell: everything that a run needs but the strategy. `seeds`: how many; they move what is random in the link
    and the edge. `settings`: with which numbers the strategies run that have any. `max_texts`: only the dataset's
    first ones. `edges`: so many share the cloud, each with its own link and its share of the texts. Raises
    `InvalidRequestError`.
    """

    name: str
    title: str
    dataset: Dataset
    regime: Regime
    edge: Edge
    cloud: Cloud
    link: Link
    strategies: tuple[str, ...]
    edges: int = 1
    max_tokens: int = 128
    max_texts: int | None = None
    seeds: int = 1
    settings: tuple[Settings, ...] = (Settings.TUNED,)

    def __post_init__(self) -> None:
        _require("name", "empty", bool(self.name.strip("/ ")), "a name")
        _require_count("edges", self.edges, MAX_EDGES)
        _require_count("max_tokens", self.max_tokens, MAX_TOKENS)
        if self.max_texts is not None:
            _require_count("max_texts", self.max_texts, MAX_TEXTS)
        _require_count("seeds", self.seeds, MAX_SEEDS)
        _require("strategies", "empty", bool(self.strategies), "at least one name")
        _require("settings", "empty", bool(self.settings), "'paper', 'tuned' or both")
        for field in ("strategies", "settings"):
            values = getattr(self, field)
            _require(field, ", ".join(values), len(set(values)) == len(values), "each name once")
        if Settings.PAPER in self.settings and self.dataset == _NO_PAPER_NUMBERS:
            raise InvalidRequestError(
                "settings has 'paper', but the paper has no numbers for dataset 'chat'.",
                field="settings",
                remedy='Use settings = ["tuned"].',
            )

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: two runs with equal digests ran the same cell."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


# -- reading ---------------------------------------------------------------------------------------------------------


def built_in_names() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _built_in().iterdir() if entry.name.endswith(".toml"))


def _built_in() -> Traversable:
    return resources.files(BUILT_IN).joinpath("scenarios")


def load_cells(names: Sequence[str], only: Mapping[str, str] | None = None) -> list[Scenario]:
    """The cells of each named scenario (one of ours, or a path to a TOML file), in order.

    `only`: keeps the cells in which a field (`dataset`, `link.rtt_ms`, ...) has that value. Raises
    `InvalidRequestError` where a name or field is unknown, a cell comes twice or nothing is left.
    """
    cells = [cell for name in names for cell in parse_cells(*_text_of(name))]
    for field, value in (only or {}).items():
        cells = [cell for cell in cells if _shown(_field_of(cell, field)) == value]
    if not cells:
        chosen = "".join(f" with {field}={value}" for field, value in (only or {}).items())
        raise InvalidRequestError(f"no cell{chosen} in: {', '.join(names) or 'nothing'}.", field="scenario")
    twice = {cell.name for cell in cells if sum(other.name == cell.name for other in cells) > 1}
    if twice:
        raise InvalidRequestError(
            f"cell {min(twice)} comes twice.", field="scenario", remedy="Name each scenario once."
        )
    return cells


def _text_of(name: str) -> tuple[str, str]:
    if name in built_in_names():
        return _built_in().joinpath(f"{name}.toml").read_text(encoding="utf-8"), name
    path = Path(name)
    if path.suffix != ".toml":
        near = difflib.get_close_matches(name, built_in_names(), 1) or built_in_names()
        raise InvalidRequestError(
            f"scenario is '{name}', which is none of ours.", field="scenario", remedy=f"There are: {', '.join(near)}."
        )
    try:
        return path.read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"scenario {name} cannot be read: {error}.", field="scenario") from error


def parse_cells(text: str, source: str) -> list[Scenario]:
    """The cells of one TOML text: one, or the product of the lists in its `[grid]` table, the first list slowest.

    A cell's name is the scenario's, and for each list the value in this cell. Raises `InvalidRequestError` naming
    `source` and the field.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"{source}: no TOML: {error}.", field="scenario") from error
    try:
        axes = list(_axes(table.pop("grid", {}), ()))
        _check_known(table, axes)
        size = math.prod(len(values) for _, values in axes)
        _require("grid", f"{size} cells", size <= MAX_CELLS, f"at most {MAX_CELLS} cells")
        chosen = itertools.product(*(values for _, values in axes))
        return [_cell(table, [path for path, _ in axes], values) for values in chosen]
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{source}: {error.message}", field=error.field, remedy=error.remedy) from error


Path_ = tuple[str, ...]


def _axes(grid: Any, path: Path_) -> Iterator[tuple[Path_, list[Any]]]:
    """Each list of the `[grid]` table with the path of the field that it fills."""
    field = ".".join(("grid", *path))
    if isinstance(grid, dict):
        for key, value in grid.items():
            yield from _axes(value, (*path, key))
    elif isinstance(grid, list) and grid and path:
        yield path, grid
    else:
        raise InvalidRequestError(f"{field} is {grid!r}; legal: a list of values.", field=field)


def _check_known(table: Mapping[str, Any], axes: Sequence[tuple[Path_, list[Any]]]) -> None:
    """Raises where a field is unknown, or has one value in its table and others in the grid."""
    given = list(_paths(table, ()))
    for path in given + [path for path, _ in axes]:
        _check_path(path)
    for path, _ in axes:
        if path == ("name",):
            raise InvalidRequestError("grid.name: a cell's name is the scenario's.", field="grid.name")
        for other in given:
            overlap = other == path[: len(other)] or path == other[: len(path)]
            if overlap and table.get(other[0]) != {}:
                _refuse_both(f"grid.{'.'.join(path)}", ".".join(other), "Give the value, or the list of values.")


def _paths(table: Mapping[str, Any], path: Path_) -> Iterator[Path_]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _paths(value, (*path, key)) if value else iter([(*path, key)])
        else:
            yield (*path, key)


_TABLES: Mapping[str, type[msgspec.Struct]] = {"edge": Edge, "cloud": Cloud, "link": Link}


def _check_path(path: Path_) -> None:
    known: Sequence[str] = Scenario.__struct_fields__
    if path[0] in _TABLES and len(path) == 2:
        known = _TABLES[path[0]].__struct_fields__
    elif len(path) == 1 and path[0] in known:
        return
    if path[-1] not in known or len(path) > 2 or (len(path) == 2 and path[0] not in _TABLES):
        near = difflib.get_close_matches(path[-1], known, 1)
        remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
        raise InvalidRequestError(f"unknown field {'.'.join(path)}.", field=".".join(path), remedy=remedy)


def _cell(table: Mapping[str, Any], paths: Sequence[Path_], values: Sequence[Any]) -> Scenario:
    filled = copy.deepcopy(dict(table))
    name = filled.get("name", "")
    _require("name", repr(name), isinstance(name, str), "a name")
    names = [name]
    for path, value in zip(paths, values, strict=True):
        place = filled
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
        names.append(_shown(value) if isinstance(value, str) else f"{path[-1]}={_shown(value)}")
    filled["name"] = "/".join(names)
    try:
        return msgspec.convert(filled, Scenario, strict=True)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidRequestError):
            raise error.__cause__ from None
        reason, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`") or "scenario"
        raise InvalidRequestError(f"{field}: {reason}.", field=field, remedy=_choices(field)) from error


def _choices(field: str) -> str:
    choices = {"dataset": Dataset, "regime": Regime, "edge.device": Device, "settings": Settings}
    names = choices.get(field.partition("[")[0])
    return f"There are: {', '.join(names)}." if names else ""


def _shown(value: object) -> str:
    """As a cell's name has it: a number in as few digits as tell it from others."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def _field_of(cell: Scenario, field: str) -> object:
    _check_path(cast("Path_", tuple(field.split("."))))
    value: object = cell
    for key in field.split("."):
        value = getattr(value, key)
    return value
