"""Which port of somebody else's unit is what: read from JSON, and checked against the format and the module."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

from .sources import Port

__all__ = ["Control", "PortMap", "Slice"]

# The bench leaves the unit so long to empty itself, and takes it to hang if nothing comes for 1000 clocks.
MAX_LATENCY = 400
_KEYS = ("clock", "reset", "latency", "handshake", "enable", "parameters", "constants", "operands", "results")
_HANDSHAKE = ("in_valid", "in_ready", "out_valid", "out_ready")
_NAME = re.compile(r"[A-Za-z_][\w$]*")


@dataclasses.dataclass(frozen=True)
class Slice:
    """Bits of a port: `width` ones from `offset` on; or, if `whole`, a port of just this width."""

    port: str
    width: int
    offset: int = 0
    whole: bool = True


@dataclasses.dataclass(frozen=True)
class Control:
    """A port of one bit that is active when it is high, or low."""

    port: str
    active_low: bool = False


@dataclasses.dataclass(frozen=True)
class PortMap:
    """What the ports of a module mean; ``docs/verification.md`` describes the JSON.

    Attributes
    ----------
    clock : str or None
    reset, enable : Control or None
    latency : int
        Registers between operands and result.
    steady : bool
        Whether the latency is always just this, and operands are taken in every clock; if not, it is the longest.
    handshake : dict of str to str
        Ports by ``in_valid``, ``in_ready``, ``out_valid``, ``out_ready``; empty if there is none.
    parameters, constants : dict
        Of the module, and what its other inputs are held at.
    operands : dict of str to tuple of Slice
        Of each word the parts, the lowest first.
    word : tuple of Slice
        Of the result.
    flags : dict of str to Slice
        Those that the module has.
    """

    clock: str | None
    reset: Control | None
    latency: int
    steady: bool
    handshake: dict[str, str]
    enable: Control | None
    parameters: dict[str, int | str]
    constants: dict[str, int]
    operands: dict[str, tuple[Slice, ...]]
    word: tuple[Slice, ...]
    flags: dict[str, Slice]

    @classmethod
    def read(cls, file: Path, format: LNSFormat) -> PortMap:
        """Return the map in a file of JSON.

        Raises
        ------
        ValueError
            It cannot be read, or is no such map; the message names the value and what was wanted.
        """
        try:
            found = json.loads(Path(file).read_text(encoding="utf-8"), object_pairs_hook=_object)
        except OSError as error:
            raise ValueError(f"{str(file)!r} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{str(file)!r} must be a map of ports in JSON: {error}") from None
        try:
            return _Reader(format).map(found)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    def check(self, module: str, ports: Mapping[str, Port]) -> None:
        """Raise a ValueError if the map does not fit the ports that a module has."""
        inputs, outputs = _Directions(module, ports, "input"), _Directions(module, ports, "output")
        controls = {"clock": self.clock, "reset": self.reset and self.reset.port}
        controls |= {"enable": self.enable and self.enable.port}
        controls |= {key: self.handshake.get(key) for key in ("in_valid", "out_ready")}
        for what, port in controls.items():
            if port is not None:
                inputs.take(what, Slice(port, 1))
        for name, word in self.operands.items():
            for part in word:
                inputs.take(f"operand {name}", part)
        for port, value in self.constants.items():
            inputs.hold(port, value)
        for port, free in inputs.free.items():
            if free:
                bits = f"{free.bit_count()} bits of the" if free.bit_count() < ports[port].width else "the"
                raise ValueError(f"nothing drives {bits} input {port} of {module}; constants may")
        for what in ("in_ready", "out_valid"):
            if what in self.handshake:
                outputs.take(what, Slice(self.handshake[what], 1))
        for part in self.word:
            outputs.take("result word", part)
        for name, part in self.flags.items():
            outputs.take(f"flag {name}", part)
        for port, found in ports.items():
            if found.direction == "inout":
                raise ValueError(f"the port {port} of {module} is an inout, which a unit cannot have")


class _Directions:
    """The ports of a module that have one direction, and which of their bits nothing is connected to."""

    def __init__(self, module: str, ports: Mapping[str, Port], direction: str):
        self._module = module
        self._ports = ports
        self._direction = direction
        self.free = {
            name: (1 << port.width) - 1 for name, port in self._ports.items() if port.direction == self._direction
        }

    def take(self, what: str, part: Slice) -> None:
        """Connect something."""
        width = self._width(what, part.port)
        if part.whole and part.width != width:
            raise ValueError(
                f"{what} has {part.width} bits, but the port {part.port} of {self._module} has {width}"
                + (f'; a part of it is {{"port": "{part.port}", "offset": 0}}' if width > part.width else "")
            )
        if part.offset + part.width > width:
            raise ValueError(
                f"{what} is bits {part.offset + part.width - 1} to {part.offset} of the port {part.port} of "
                f"{self._module}, which has {width}"
            )
        bits = ((1 << part.width) - 1) << part.offset
        if self._direction == "input" and bits & ~self.free[part.port]:
            raise ValueError(f"{what} is in bits of the port {part.port} that something else is in as well")
        self.free[part.port] &= ~bits

    def hold(self, port: str, value: int) -> None:
        """Hold what is left of a port."""
        width = self._width("a constant", port)
        if value >> width:
            raise ValueError(f"the constant {value} does not fit the {width} bits of the port {port}")
        if not self.free[port] or value & ~self.free[port]:
            raise ValueError(f"the constant {value} of the port {port} has bits where something else is")
        self.free[port] = 0

    def _width(self, what: str, port: str) -> int:
        if port not in self._ports:
            raise ValueError(
                f"{what} must be a port of {self._module}, which has {', '.join(self._ports) or 'none'}, not {port!r}"
            )
        if port not in self.free:
            raise ValueError(f"{what} must be an {self._direction} of {self._module}, but {port} is none")
        return self._ports[port].width


class _Reader:
    """From JSON to a map."""

    def __init__(self, format: LNSFormat):
        self._format = format

    def map(self, found: Any) -> PortMap:
        found = self._keys("a map of ports", found, _KEYS, required=("latency", "operands", "results"))
        latency, steady = self._latency(found["latency"])
        handshake = self._handshake(found.get("handshake"))
        results = self._keys("results", found["results"], ("word", "flags"), required=("word",))
        clock = None if found.get("clock") is None else self._name("clock", found["clock"])
        reset, enable = (self._control(key, found.get(key)) for key in ("reset", "enable"))
        if clock is None and (latency or handshake or enable):
            raise ValueError("a map without a clock must have latency 0, and neither handshake nor enable")
        if handshake and reset is None:
            raise ValueError("a handshake needs a reset, after which nothing may come out that went in before")
        if handshake and enable is not None:
            raise ValueError("a map must have a handshake or an enable, not both")
        if (handshake or enable) and not latency:
            raise ValueError("a unit without registers, of latency 0, can have neither handshake nor enable")
        if not steady and "out_valid" not in handshake:
            raise ValueError("without a handshake the latency must be a number of clocks, not a longest one")
        operands = {
            self._name("an operand", name): self._word(f"operand {name}", place)
            for name, place in self._object("operands", found["operands"]).items()
        }
        if not operands:
            raise ValueError("operands must name at least one")
        return PortMap(
            clock=clock,
            reset=reset,
            latency=latency,
            steady=steady,
            handshake=handshake,
            enable=enable,
            parameters=self._parameters(found.get("parameters", {})),
            constants={
                self._name("a constant", port): self._integer(f"the constant of {port}", value)
                for port, value in self._object("constants", found.get("constants", {})).items()
            },
            operands=operands,
            word=self._word("word", results["word"]),
            flags=self._flags(results.get("flags")),
        )

    def _latency(self, value: Any) -> tuple[int, bool]:
        steady = not isinstance(value, dict)
        if not steady:
            value = self._keys("latency", value, ("max",), required=("max",))["max"]
        latency = self._integer("latency", value)
        if latency > MAX_LATENCY:
            raise ValueError(f"latency must be at most {MAX_LATENCY}, not {latency}")
        return latency, steady

    def _handshake(self, value: Any) -> dict[str, str]:
        if value is None:
            return {}
        value = self._keys("handshake", value, _HANDSHAKE, required=("in_valid", "out_valid"))
        found = {key: self._name(key, port) for key, port in value.items()}
        if "out_ready" in found and "in_ready" not in found:
            raise ValueError("a unit whose results can be made to wait must make operands wait: in_ready is missing")
        return found

    def _control(self, what: str, value: Any) -> Control | None:
        if value is None:
            return None
        if isinstance(value, str):
            return Control(self._name(what, value))
        value = self._keys(what, value, ("port", "active"), required=("port",))
        if value.get("active", "high") not in ("high", "low"):
            raise ValueError(f"active of {what} must be high or low, not {value['active']!r}")
        return Control(self._name(what, value["port"]), value.get("active") == "low")

    def _word(self, what: str, value: Any) -> tuple[Slice, ...]:
        if isinstance(value, dict) and "port" not in value:
            value = self._keys(what, value, ("sign", "field"), required=("sign", "field"))
            field = self._slice(f"field of {what}", value["field"], self._format.log_bits)
            return field, self._slice(f"sign of {what}", value["sign"], 1)
        return (self._slice(what, value, self._format.width),)

    def _flags(self, value: Any) -> dict[str, Slice]:
        if value is None:
            return {}
        if isinstance(value, dict) and "port" not in value:
            value = self._keys("flags", value, FLAGS)
            return {name: self._slice(f"flag {name}", value[name], 1) for name in FLAGS if name in value}
        whole = self._slice("flags", value, len(FLAGS))
        return {name: Slice(whole.port, 1, whole.offset + bit, whole=False) for bit, name in enumerate(FLAGS)}

    def _slice(self, what: str, value: Any, width: int) -> Slice:
        if isinstance(value, str):
            return Slice(self._name(what, value), width)
        value = self._keys(what, value, ("port", "offset"), required=("port", "offset"))
        offset = self._integer(f"offset of {what}", value["offset"])
        return Slice(self._name(what, value["port"]), width, offset, whole=False)

    def _parameters(self, value: Any) -> dict[str, int | str]:
        for name, given in self._object("parameters", value).items():
            self._name("a parameter", name)
            if type(given) not in (int, str) or (isinstance(given, str) and not re.fullmatch(r'[^"\\\n]*', given)):
                raise ValueError(f"the parameter {name} must be a whole number or a plain text, not {given!r}")
        return value

    def _name(self, what: str, value: Any) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ValueError(f"{what} must be a name of Verilog, not {value!r}")
        return value

    def _integer(self, what: str, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise ValueError(f"{what} must be a whole number from 0 on, not {value!r}")
        return value

    def _object(self, what: str, value: Any) -> dict:
        if not isinstance(value, dict):
            self._refuse(what, "an object", value)
        return value

    def _keys(self, what: str, value: Any, known: Collection[str], required: Collection[str] = ()) -> dict:
        keys = set(value) if isinstance(value, dict) else None
        if keys is None or not keys <= set(known) or not keys >= set(required):
            must = f", among them {', '.join(required)}" if required and len(required) < len(known) else ""
            shown = list(value) if isinstance(value, dict) else value
            self._refuse(
                what,
                f"{'a port or ' if known == ('port', 'offset') else ''}an object with {', '.join(known)}{must}",
                shown,
            )
        return value

    def _refuse(self, what: str, wanted: str, value: Any) -> NoReturn:
        raise ValueError(f"{what} must be {wanted}, not {value!r}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, which may not say a thing twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(
            f"the key {next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))!r} "
            "is there twice"
        )
    return found
