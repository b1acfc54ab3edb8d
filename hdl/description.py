"""What somebody else's bench must know of a unit's Verilog: ports, fields, latency, format. Data, and as a comment."""

from __future__ import annotations

import importlib.metadata
import inspect
import textwrap
from collections.abc import Iterable, Mapping

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data, wiring

from xlnstorch.formats import LNSFormat
from xlnstorch.observe import FLAGS

from .bus import AxiLite, AxiStream
from .bus.fields import Field, fields_of
from .convert import FixedLayout, FloatLayout
from .layouts import PADDING, FlagsLayout, WordLayout
from .unit import Unit
from .verilog import VERILATOR_WARNINGS

__all__ = ["describe", "write_header"]

_PORTS = {
    "clk": "clock; everything happens at its rising edge",
    "rst": "reset, synchronous, active high; empties the unit",
    "i__payload": "operands",
    "i__valid": "operands are offered",
    "i__ready": "operands that are offered are taken at the next clock edge",
    "o__payload": "results",
    "o__valid": "a result is offered; it stays until it is taken",
    "o__ready": "a result that is offered is taken at the next clock edge",
    "aclk": "clock; everything happens at its rising edge",
    "aresetn": "reset, synchronous, active low; empties everything",
    "irq": "interrupt, high as long as an enabled bit of IRQ_STATUS is set",
}
_CHANNELS = {
    "s_axis_": "AXI4-Stream of operands",
    "m_axis_": "AXI4-Stream of results",
    "s_axi_aw": "AXI4-Lite, write address",
    "s_axi_w": "AXI4-Lite, write data",
    "s_axi_b": "AXI4-Lite, write response",
    "s_axi_ar": "AXI4-Lite, read address",
    "s_axi_r": "AXI4-Lite, read data",
}


def describe(top: Unit | AxiStream | AxiLite, name: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the description of the Verilog of `top`, as an object of JSON.

    Parameters
    ----------
    top : Unit, AxiStream or AxiLite
    name : str
        Of the top module.
    parameters : mapping
        What the unit was made with, beside its format.

    Returns
    -------
    dict
        ``schema`` is 1, and rises when a key changes its meaning or goes. Offsets and widths are in bits. What the keys
        are is in ``docs/verilog.md``.
    """
    unit = top if isinstance(top, Unit) else top.unit
    description = {
        "schema": 1,
        "version": importlib.metadata.version("lns-coverify"),
        "tools": {tool: importlib.metadata.version(tool) for tool in ("amaranth", "pyosys")},
        "module": name,
        "unit": unit.name,
        "summary": _summary(type(unit)),
        "parameters": {key: _plain(value) for key, value in parameters.items()},
        "format": _describe_format(unit.format),
        "operations": list(unit.operations),
        "flags": list(FLAGS) if "flags" in unit.o.payload.shape().members else [],
        "latency": top.latency if isinstance(top, Unit | AxiStream) else unit.latency,
        "throughput": "one result a clock",
        "bus": None if isinstance(top, Unit) else top.bus,
        "ports": _ports(top),
    }
    if signatures := _signatures(unit):
        description["signatures"] = signatures
    if "last" in unit.i.payload.shape().members:
        description["throughput"] = "up to one payload a clock; one result for each that is the last"
    if isinstance(top, Unit):
        description["operands"] = _stream("i__payload", fields_of(top.i.payload.shape()), unit)
        description["results"] = _stream("o__payload", fields_of(top.o.payload.shape()), unit)
    elif isinstance(top, AxiStream):
        description["operands"] = _stream("s_axis_tdata", top.operands.places, unit)
        description["results"] = _stream("m_axis_tdata", top.results.places, unit)
    else:
        description["depth"] = top.depth
        description["registers"] = _registers(top)
    return description


def _plain(value: object) -> object:
    """Return the value of a parameter as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, int | str) else str(value)


def _summary(described: type) -> str:
    """Return the first paragraph of a docstring as plain text."""
    return " ".join(inspect.getdoc(described).split("\n\n")[0].split()).replace("`", "").replace("\\", "")


def _describe_format(format: LNSFormat) -> dict[str, object]:
    return {
        "name": format.name,
        "width": format.width,
        "int_bits": format.int_bits,
        "frac_bits": format.frac_bits,
        "bias": format.bias,
        "specials": format.specials,
        "adder": format.adder.name,
        "accumulator": format.accumulator.name,
        "value": _value(format),
    }


def _value(format: LNSFormat) -> str:
    """Return the value of a word as a formula."""
    others = f", or NaN with sign 1; field {format.max_field} is infinite" if format.specials else ""
    return f"(-1)^sign * 2^((field - {format.bias}) / {1 << format.frac_bits}); field 0 is zero{others}"


def _ports(top: wiring.Component) -> list[dict[str, object]]:
    ports = [] if "aclk" in top.signature.members else [("clk", "input", 1), ("rst", "input", 1)]
    for path, member, _ in top.signature.flatten(top):
        direction = "input" if member.flow is wiring.In else "output"
        ports.append(("__".join(map(str, path)), direction, Shape.cast(member.shape).width))
    return [
        {"name": name, "direction": direction, "width": width, "meaning": _port_meaning(name)}
        for name, direction, width in ports
        if width
    ]


def _port_meaning(name: str) -> str:
    if name in _PORTS:
        return _PORTS[name]
    return _CHANNELS[max((prefix for prefix in _CHANNELS if name.startswith(prefix)), key=len)]


def _stream(port: str, fields: Iterable[Field], unit: Unit) -> dict[str, object]:
    return {"port": port, "fields": [_describe_field(field, unit) for field in fields]}


def _registers(top: AxiLite) -> list[dict[str, object]]:
    """Return the registers; those of operands and results with the field that they hold bits of, from `low` on."""
    found = []
    for register in top.map.registers.values():
        row = register.to_json()
        for held in (top.map.operands, top.map.results):
            if register.name in held:
                field, low = held[register.name]
                row["field"] = {**_describe_field(field, top.unit), "low": low}
                del row["field"]["offset"]  # of the payload, which the bus does not show
        found.append(row)
    return found


def _signatures(unit: Unit) -> dict[str, object]:
    """Return what each operation takes and gives, where that is not the same for all; none if it is."""
    whole = (dict(unit.operands()), dict(unit.results()))
    if all((unit.operands_of(each), unit.results_of(each)) == whole for each in unit.operations):
        return {}
    results = fields_of(unit.o.payload.shape())
    found = {}
    for operation in unit.operations:
        taken = fields_of(data.StructLayout(unit.operands_of(operation)))
        found[operation] = {
            "operands": [{**_describe_field(field, unit), "offset": 0} for field in taken],
            "results": [],
        }
        for field in fields_of(data.StructLayout(unit.results_of(operation))):
            around = next(each for each in results if each.offset <= field.offset < each.offset + each.width)
            if field.name != PADDING and type(field.shape) is not FlagsLayout:
                place = {"in": around.name, "offset": field.offset - around.offset}
                found[operation]["results"].append({**_describe_field(field, unit), **place})
    return found


def _describe_field(field: Field, unit: Unit) -> dict[str, object]:
    shape: ShapeLike = field.shape
    found = {"name": field.name, "offset": field.offset, "width": field.width, "meaning": _meaning(field, unit)}
    if isinstance(shape, data.StructLayout):
        found["parts"] = [
            {"name": name, "offset": part.offset, "width": part.width} for name, part in shape if part.width
        ]
    if type(shape) is WordLayout and _value(shape.word_format) != _value(unit.format):
        own = shape.word_format
        found |= {"int_bits": own.int_bits, "frac_bits": own.frac_bits, "bias": own.bias, "value": _value(own)}
    if isinstance(shape, FixedLayout):
        found |= {"frac_bits": shape.frac_bits, "signed": shape.signed, "value": f"integer * 2^{-shape.frac_bits}"}
    if isinstance(shape, FloatLayout):
        found["dtype"] = str(shape.dtype).removeprefix("torch.")
    return found


def _meaning(field: Field, unit: Unit) -> str:
    if field.name == "op":
        return "opcode: the index in operations"
    if field.name in unit.results() and any(field.name not in unit.results_of(each) for each in unit.operations):
        return "what the operation gives, in the low bits, and zeros above it"
    if isinstance(field.shape, data.Layout):
        return getattr(field.shape, "meaning", "parts")
    return "one bit" if field.width == 1 else "signed integer" if field.signed else "unsigned integer"


def write_header(description: Mapping[str, object]) -> str:
    """Return what a reader of the Verilog wants to know, as comments, and what silences Verilator's warnings."""
    format = description["format"]
    lines = [
        f"{description['module']}: {description['summary']}",
        "",
        f"unit        {description['unit']}{_arguments(description['parameters'])}",
        f"format      {format['name']}: {format['width']} bits, sign above int_bits={format['int_bits']}, "
        f"frac_bits={format['frac_bits']}",
        f"            {format['value']}",
        f"adder       {format['adder']}",
        f"accumulator {format['accumulator']}",
        f"specials    {'infinities and NaN' if format['specials'] else 'no; results saturate'}",
        f"operations  {', '.join(f'{code} {name}' for code, name in enumerate(description['operations']))}",
        f"flags       {', '.join(f'bit {bit} {flag}' for bit, flag in enumerate(description['flags'])) or 'none'}",
        f"latency     {description['latency']} clocks",
        f"throughput  {description['throughput']}",
        f"bus         {description['bus'] or 'none: two streams with valid and ready'}",
        f"made by     lns-coverify {description['version']}",
        "",
        "ports",
        *(f"  {p['direction']:6} {_bits(p['width']):8} {p['name']:14} {p['meaning']}" for p in description["ports"]),
    ]
    for end in ("operands", "results"):
        if end in description:
            lines += ["", f"{end}, in {description[end]['port']}"]
            lines += [_field_line(field) for field in description[end]["fields"]]
    if "signatures" in description:
        lines += ["", "operations, in the low bits of these operands and results"]
        lines += [_signature_line(*each) for each in description["signatures"].items()]
    if "registers" in description:
        lines += ["", "registers, of 32 bits; each FIFO holds as many payloads as DEPTH says"]
        lines += [_register_line(register) for register in description["registers"]]
    comment = "\n".join(f"// {wrapped}".rstrip() for line in lines for wrapped in _wrapped(line))
    silenced = (f"// {reason}:\n/* verilator lint_off {name} */" for name, reason in VERILATOR_WARNINGS.items())
    return "\n".join([comment, "//", "/* verilator lint_save */", *silenced, "", ""])


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 110, subsequent_indent=" " * 12, break_long_words=False) or [""]


def _arguments(parameters: Mapping[str, object]) -> str:
    given = {
        name: "+".join(value) or "none" if isinstance(value, list) else value for name, value in parameters.items()
    }
    return "".join(f" {name}={value}" for name, value in given.items() if value is not None)


def _bits(width: int) -> str:
    return f"[{width - 1}:0]" if width > 1 else ""


def _field_line(field: Mapping[str, object]) -> str:
    low = field["offset"]
    bits = f"[{low + field['width'] - 1}:{low}]" if field["width"] > 1 else f"[{low}]"
    return f"  {bits:10} {field['name']:14} {_full_meaning(field)}"


def _signature_line(operation: str, signature: Mapping[str, list]) -> str:
    taken, given = (
        ", ".join(f"{field['name']}: {_full_meaning(field)}" for field in signature[end])
        for end in ("operands", "results")
    )
    return f"  {operation:14} {taken} -> {given}"


def _full_meaning(field: Mapping[str, object]) -> str:
    kind = f" {field['dtype']}" if "dtype" in field else ""
    value = f", {field['value']}" if "value" in field else ""
    return f"{field['meaning']}{kind}{value}"


def _register_line(register: Mapping[str, object]) -> str:
    line = f"  0x{register['offset']:03x} {register['access']:3} {register['name']:14} {register['meaning']}"
    return f"{line} ({_full_meaning(register['field'])})" if "field" in register else line
