"""The design space of adders: for each its errors, and what it takes on each device."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import operator
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import hdl
import xlnstorch
from hdl.gaussian import datapath_of
from sim.simulators import BuildFailed
from xlnstorch import LNSFormat, cache
from xlnstorch.adders import ADDERS, Adder, AdderQuality, Exact, measure
from xlnstorch.checks import integer_between

from . import flow
from .flow import Device, Implementation, memory_bits, to_rtlil, tool_versions
from .runner import Runner

__all__ = ["ROMS", "Point", "Result", "area", "candidates", "explore", "front", "points_of"]

#: Where an adder's tables can be kept.
ROMS = ("block", "luts")

# Parameters worth comparing; any other adder is there once, as it is by default.
_VARIANTS: dict[str, list[dict]] = {
    "mitchell": [{"corrections": corrections} for corrections in (0, 1, 2)],
    "piecewise": [
        *({"degree": degree, "error": error} for degree in (1, 2) for error in (0.5, 1.0, 2.0, 4.0)),
        *({"degree": degree, "singularity": "logarithm"} for degree in (1, 2)),
    ],
}
# The ROM of an adder that always gives the nearest integer doubles with each fraction bit. The exact one's, at 12 bits,
# has 2**17 entries; made of LUTs, at 8 bits, it is 1,100 of them and takes a minute of synthesis, place and route. That
# of a piecewise one is as practical in LUTs, and not worth the trouble above 10 bits.
_MAX_EXACT_FRAC_BITS = 12
_MAX_NEAREST_FRAC_BITS = 10
_MAX_LUTS_FRAC_BITS = 8


@dataclasses.dataclass(frozen=True)
class Point:
    """A design: the adder of a format, and where its tables are kept: one of :data:`ROMS`."""

    format: LNSFormat
    rom: str = "block"

    def __post_init__(self) -> None:
        if self.rom not in ROMS:
            raise ValueError(f"rom must be one of {', '.join(ROMS)}, not {self.rom!r}")

    def __str__(self) -> str:
        return f"{self.format.adder.name}, {self.rom}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What is known of a point.

    Attributes
    ----------
    point : Point
    rom_bits : int or None
        Of all its tables. This, and what follows, is None if the adder has no gates.
    multipliers : tuple of (int, int) or None
        Widths of the operands of each.
    latency : int or None
        Of the unit that adds and subtracts, in clocks.
    quality : AdderQuality or None
        Its errors, in units of the last place.
    devices : dict
        By the name of the device what the unit takes there.
    reason : str or None
        Why there are no gates.
    """

    point: Point
    rom_bits: int | None = None
    multipliers: tuple[tuple[int, int], ...] | None = None
    latency: int | None = None
    quality: AdderQuality | None = None
    devices: dict[str, Implementation] = dataclasses.field(default_factory=dict)
    reason: str | None = None


def candidates(format: LNSFormat) -> list[Adder]:
    """Return the adders that are worth comparing in a format, out of :data:`~xlnstorch.adders.ADDERS`."""
    adders = []
    for name, kind in ADDERS.items():
        for parameters in _VARIANTS.get(name, [{}]):
            try:
                adder = kind(**parameters)
                dataclasses.replace(format, adder=adder)
            except ValueError:  # the format cannot have it
                continue
            most = _MAX_EXACT_FRAC_BITS if isinstance(adder, Exact) else _MAX_NEAREST_FRAC_BITS
            if format.frac_bits <= most or not _always_nearest(adder):
                adders.append(adder)
    return adders


def points_of(format: LNSFormat, adders: Iterable[Adder] | None = None, rom: str | None = None) -> list[Point]:
    """Return the points of some adders, or of all candidates.

    Parameters
    ----------
    rom : {"block", "luts"}
        By default both, but block RAM alone for ROMs so large that making them of LUTs takes more than a minute.

    Raises
    ------
    ValueError
        `rom` is neither, or the format cannot have one of the adders.
    """
    points = []
    for adder in candidates(format) if adders is None else adders:
        with_adder = dataclasses.replace(format, adder=adder)
        slow = format.frac_bits > _MAX_LUTS_FRAC_BITS and _always_nearest(adder)
        points += [Point(with_adder, where) for where in ([rom] if rom is not None else ROMS[:1] if slow else ROMS)]
    return list(dict.fromkeys(points))


def _always_nearest(adder: Adder) -> bool:
    return isinstance(adder, Exact) or getattr(adder, "error", None) == 0.5


def explore(
    points: Sequence[Point],
    devices: Sequence[Device] = (),
    *,
    seed: int = 1,
    jobs: int = 1,
    force: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Result]:
    """Measure points; what is known from an earlier run is read from the cache folder.

    Points without tables are the same for every `rom`, so only the first of them is kept.

    Parameters
    ----------
    points : sequence of Point
    devices : sequence of Device
        Where to synthesize, place and route.
    seed : int
        Of place and route, 0 to 2**31 - 1.
    jobs : int
        Processes for that.
    force : bool
        Measure again what is known.
    progress : callable
        Called, now and then from other threads, with how many steps are done, how many there are, and what the last
        one found or, where their number stays the same, what is going on.

    Raises
    ------
    TypeError, ValueError
        `seed` or `jobs` is out of its range.
    ToolMissing
    BuildFailed
        A program failed. The other points are finished, and kept, before.
    """
    seed, jobs = integer_between("seed", seed, 0, (1 << 31) - 1), integer_between("jobs", jobs, 1, 1024)
    flow.require_tools(devices)
    each = max(1, len(devices))
    steps = _Steps(len(points) * each, progress)
    results: dict[str, Result] = {}
    futures = {}
    # On an interrupt the runner, which is left first, ends its processes, and then the pool has nothing to wait for.
    with ThreadPoolExecutor(jobs) as pool, Runner() as runner:
        exploration = _Exploration(seed, _Kept(force), steps, pool, runner)
        for point in points:
            result, digest = exploration.measure(point)
            key = f"{point.format.adder.name}, {digest or point.rom}"  # two adders may have the same gates
            if key in results:
                steps.drop(each)
                continue
            results[key] = result
            for device in [] if result.reason else devices:
                futures[key, device.name] = exploration.implement(point, digest, device)
            if result.reason or not devices:
                steps.finish(f"{point}: {result.reason or f'{result.rom_bits:,} bits of ROM'}", each)
        failures = []
        for (key, name), future in futures.items():
            try:
                results[key].devices[name] = future.result()
            except BuildFailed as failure:
                failures.append(f"{results[key].point}: {failure}")
    if failures:
        raise BuildFailed("\n".join(failures))
    return list(results.values())


class _Steps:
    """How many steps are done; tells `progress`, one thread at a time."""

    def __init__(self, total: int, progress: Callable[[int, int, str], None] | None):
        self._lock = threading.Lock()
        self._done, self._total = 0, total
        self._progress = progress or (lambda *_: None)

    def start(self, text: str) -> None:
        self.finish(text, 0)

    def finish(self, text: str, count: int = 1) -> None:
        with self._lock:
            self._done += count
            self._progress(self._done, self._total, text)

    def drop(self, count: int) -> None:
        with self._lock:
            self._total -= count


class _Kept:
    """What earlier runs, or where `fresh` only this one, have found out, by all that it depends on."""

    def __init__(self, fresh: bool):
        self._known: set[str] | None = set() if fresh else None

    def find(self, kind: str, parts: list) -> dict | None:
        key = cache.digest(parts)
        return cache.load(f"fpga/{kind}", key) if self._known is None or key in self._known else None

    def keep(self, kind: str, parts: list, value: dict) -> None:
        key = cache.digest(parts)
        cache.store(f"fpga/{kind}", key, value)
        if self._known is not None:
            self._known.add(key)

    def find_or(self, kind: str, parts: list, compute: Callable[[], dict]) -> dict:
        found = self.find(kind, parts)
        if found is None:
            found = compute()
            self.keep(kind, parts, found)
        return found


class _Exploration:
    """Measures points, unless what it would find out is kept."""

    def __init__(self, seed: int, kept: _Kept, steps: _Steps, pool: ThreadPoolExecutor, runner: Runner):
        self._seed, self._kept, self._steps, self._pool, self._runner = seed, kept, steps, pool, runner
        # The last one made: its digest, and a process for each device, are wanted one after the other.
        self._last: tuple[Point, str] | None = None

    def measure(self, point: Point) -> tuple[Result, str | None]:
        """Return a result without devices, and the digest of its RTLIL.

        RTLIL takes seconds to make, and coefficients before it up to a minute, so the digest is kept too. Like the
        errors it depends on nothing but the sources.
        """
        self._steps.start(f"measuring {point}")
        sources = [repr(point.format), _sources(point.format.adder), importlib.metadata.version("amaranth")]
        gates = self._kept.find_or("gates", [*sources, point.rom], lambda: self._gates(point))
        if gates["reason"]:
            return Result(point, reason=gates["reason"]), None
        errors = self._kept.find_or("errors", sources, lambda: self._errors(point))
        result = Result(
            point,
            rom_bits=errors["rom_bits"],
            multipliers=tuple(map(tuple, errors["multipliers"])),
            latency=gates["latency"],
            quality=AdderQuality(**errors["quality"]),
        )
        return result, gates["digest"]

    def _gates(self, point: Point) -> dict:
        try:
            hdl.AddSubtract.check_format(point.format)
        except ValueError as error:
            return {"latency": None, "reason": str(error), "digest": None}
        unit = hdl.AddSubtract(format=point.format, rom=point.rom)
        self._last = point, to_rtlil(unit)
        return {"latency": unit.latency, "reason": None, "digest": cache.digest(self._last[1])}

    def _rtlil(self, point: Point) -> str:
        if self._last is None or self._last[0] != point:
            self._last = point, to_rtlil(hdl.AddSubtract(format=point.format, rom=point.rom))
        return self._last[1]

    def _errors(self, point: Point) -> dict:
        def progress(done: int, total: int) -> None:
            self._steps.start(f"measuring {point}: {done / total:.0%}")

        cost = point.format.adder.cost(point.format)
        quality = measure(point.format, progress=progress)
        return {"rom_bits": cost.rom_bits, "multipliers": cost.multipliers, "quality": dataclasses.asdict(quality)}

    def implement(self, point: Point, digest: str, device: Device) -> Future[Implementation]:
        """Return what the point takes on a device, in the future."""
        flow_digest = _file_digest(Path(flow.__file__))
        parts = [digest, dataclasses.asdict(device), self._seed, tool_versions(device), flow_digest]
        found = self._kept.find("implementations", parts)
        if found is None:
            rtlil = self._rtlil(point)  # here and not in the pool, whose threads an interrupt does not reach
            return self._pool.submit(self._implement, point, rtlil, device, parts)
        future = Future()
        future.set_result(Implementation(**found))
        self._report(point, device, future.result())
        return future

    def _implement(self, point: Point, rtlil: str, device: Device, parts: list) -> Implementation:
        bits, there = memory_bits(rtlil), device.block_rams * device.ram_bits
        if point.rom == "block" and bits > there:
            # Yosys would take many minutes to find that out.
            reason = f"{bits:,} bits of ROM do not fit into the {there:,} of its block RAM"
            found = Implementation(None, None, None, None, None, reason)
        else:
            found = self._runner.implement(rtlil, device, self._seed)
        self._kept.keep("implementations", parts, dataclasses.asdict(found))
        self._report(point, device, found)
        return found

    def _report(self, point: Point, device: Device, found: Implementation) -> None:
        clock = found.reason if found.mhz is None else f"{found.mhz:.0f} MHz"
        self._steps.finish(f"{point}, {device.name}: {clock}")


def _sources(adder: Adder) -> list[str]:
    """Return digests of all files that say what an adder computes and what its gates are."""
    makers = (*type(adder).__mro__[:-1], datapath_of.dispatch(type(adder)))
    try:
        files = {Path(inspect.getfile(maker)) for maker in makers}
    except (TypeError, OSError):  # typed at a prompt: nothing says whether it is the same again
        return [uuid.uuid4().hex]
    packages = [_package_digest(package.__path__[0]) for package in (xlnstorch, hdl)]
    return packages + sorted(_file_digest(file) for file in files if file.is_file())


@functools.cache
def _package_digest(folder: str) -> str:
    files = sorted(Path(folder).rglob("*.py"))
    return cache.digest([[str(file.relative_to(folder)), _file_digest(file)] for file in files])


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Comparing ---------------------------------------------------------------------------------------------------------


def front(results: Sequence[Result], device: Device | None = None) -> list[bool]:
    """Return for each result whether it is Pareto-optimal: none is as low in every cost, and lower in one.

    Parameters
    ----------
    results : sequence of Result
    device : Device
        The costs are the largest error and the area on this device, in LUT4; what could not be placed and routed is
        not optimal. By default they are the largest error, the ROM bits, and the bits of the multipliers, width times
        width.
    """
    costs = [_costs(result, device) for result in results]
    known = [cost for cost in costs if cost is not None]
    return [
        cost is not None and not any(other != cost and all(map(operator.le, other, cost)) for other in known)
        for cost in costs
    ]


def area(result: Result, device: Device) -> float | None:
    """Return the area of a result on a device in LUT4, other cells counted as :meth:`Device.area` does."""
    found = result.devices.get(device.name)
    return None if found is None or found.luts is None else device.area(found.luts, found.block_rams, found.dsps)


def _costs(result: Result, device: Device | None) -> tuple[float, ...] | None:
    if result.quality is None:
        return None
    if device is None:
        return result.quality.max, result.rom_bits, sum(a * b for a, b in result.multipliers)
    if result.devices[device.name].mhz is None:
        return None
    return result.quality.max, area(result, device)
