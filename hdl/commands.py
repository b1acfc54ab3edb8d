"""The subcommand ``lns verilog``. What it needs is imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xlnstorch.cli import CommandError, add_format_options, format_of
from xlnstorch.files import check_writable, replacing
from xlnstorch.parameters import split_names

if TYPE_CHECKING:
    import torch

    from .bus import AxiLite, AxiStream
    from .unit import Unit

__all__ = ["Verilog"]


class Verilog:
    """``lns verilog``: a unit as Verilog for somebody else's design."""

    help = "write a unit as self-contained Verilog, with a description for programs beside it"
    description = """Write an arithmetic unit as self-contained Verilog-2001, which Icarus Verilog, Verilator and Yosys
read, and beside it a .json that names ports, fields, latency and format. `lns verilog UNIT --help` lists the options,
those of the unit's own parameters included.

Exit status: 0 done; 2 usage."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments; the options depend on the unit, and are parsed when it is known."""
        parser.add_argument("unit", metavar="UNIT", help="such as multiply; a wrong name lists all")
        parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="-o FILE and others, see above")

    def run(self, args: argparse.Namespace) -> int:
        """Write the files."""
        import hdl

        if args.unit not in hdl.UNITS:
            raise CommandError(f"unit must be one of {', '.join(hdl.UNITS)}, not {args.unit!r}")
        unit_class = hdl.UNITS[args.unit]
        options = _parser(args.unit, unit_class).parse_args(args.options)
        name = options.name or f"lns_{re.sub(r'[^0-9A-Za-z_]', '_', args.unit)}"
        _check_name(name)
        target = _check_output(options.output)
        try:
            unit = _make_unit(unit_class, options)
            top = _add_bus(unit, options)
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error

        from .description import describe, write_header

        given = {key: getattr(options, key) for key in _parameters(unit_class)}
        # What None stands for is known to the unit.
        parameters = {key: getattr(unit, key, None) if value is None else value for key, value in given.items()}
        description = describe(top, name, parameters)
        if target is None and options.json:
            sys.stdout.write(json.dumps(description) + "\n")
            return 0
        text = f"{write_header(description)}{hdl.to_verilog(top, name)}/* verilator lint_restore */\n"
        if target is None:
            sys.stdout.write(text)
            return 0
        found = json.dumps(description, indent=1) + "\n"
        _write({target: text, target.with_suffix(".json"): found})
        if options.json:
            sys.stdout.write(json.dumps(description) + "\n")
        return 0


# Options -----------------------------------------------------------------------------------------------------------


def _parser(name: str, unit_class: type[Unit]) -> argparse.ArgumentParser:
    from .bus import BUSES

    summary = inspect.getdoc(unit_class).split("\n\n")[0]
    parser = argparse.ArgumentParser(
        prog=f"lns verilog {name}", description=f"Write as Verilog: {summary}", allow_abbrev=False
    )
    add_format_options(parser)
    parser.add_argument("--bus", metavar="NAME", help=f"{' or '.join(BUSES)} around the unit (default: none)")
    parser.add_argument("--depth", type=int, metavar="N", help="payloads in each FIFO of axi-lite (default: 16)")
    parser.add_argument("--name", metavar="TOP", help="of the top module (default: lns_ and the unit)")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="a .v file, or - for Verilog on standard output"
    )
    parser.add_argument("--json", action="store_true", help="print the description; with -o - instead of the Verilog")
    own = parser.add_argument_group("parameters of the unit")
    for key, parameter in _parameters(unit_class).items():
        kind, default = parameter.annotation.removesuffix(" | None"), parameter.default
        shown = "" if default in (None, parameter.empty) else f" (default: {_text(default)})"
        common = {"dest": key, "required": default is parameter.empty, "default": default}
        common["help"] = _documented(unit_class, key) + shown
        option = f"--{key.replace('_', '-')}"
        if kind == "bool":
            own.add_argument(option, action=argparse.BooleanOptionalAction, **common)
        else:
            metavar = {"int": "N", _NAMES: "NAME+NAME"}.get(kind, "NAME")
            own.add_argument(option, type=_KINDS[kind], metavar=metavar, **common)
    return parser


def _parameters(unit_class: type[Unit]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a unit, beside its format, that a command line can give."""
    return {
        name: parameter
        for name, parameter in inspect.signature(unit_class).parameters.items()
        if name != "format" and parameter.annotation.removesuffix(" | None") in (*_KINDS, "bool")
    }


def _documented(unit_class: type[Unit], key: str) -> str:
    """Return what a unit's docstring says of a parameter, for argparse."""
    found = re.search(rf"^{key} : .*\n((?:    .*\n?)+)", inspect.getdoc(unit_class), re.MULTILINE)
    text = " ".join(found[1].split()).rstrip(".") if found else "see the unit"
    return text.replace("%", "%%").replace("`", "")


def _dtype(text: str) -> torch.dtype:
    import torch

    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise argparse.ArgumentTypeError(f"must be a dtype such as float16, not {text!r}")
    return found


def _text(value: object) -> str:
    """Return a value of a parameter as a command line gives it."""
    return "+".join(value) or "none" if isinstance(value, tuple) else str(value).removeprefix("torch.")


_NAMES = "tuple[str, ...]"
# By what a unit says of its parameter.
_KINDS: dict[str, Callable[[str], object]] = {"int": int, "str": str, "torch.dtype": _dtype, _NAMES: split_names}


def _make_unit(unit_class: type[Unit], options: argparse.Namespace) -> Unit:
    return unit_class(format=format_of(options), **{key: getattr(options, key) for key in _parameters(unit_class)})


def _add_bus(unit: Unit, options: argparse.Namespace) -> Unit | AxiStream | AxiLite:
    from .bus import BUSES, AxiLite

    if options.bus is not None and options.bus not in BUSES:
        raise ValueError(f"bus must be one of {', '.join(BUSES)}, not {options.bus!r}")
    if options.depth is not None and options.bus != AxiLite.bus:
        raise ValueError(f"--depth is for --bus {AxiLite.bus} only")
    if options.bus is None:
        return unit
    return BUSES[options.bus](unit, **({} if options.depth is None else {"depth": options.depth}))


# Files -------------------------------------------------------------------------------------------------------------

# Words that Verilog-2001 keeps for itself, and that somebody may think of as a name.
_RESERVED = frozenset(
    """always and assign begin buf case casex casez cell config deassign default defparam design disable edge else end
    endcase endconfig endfunction endgenerate endmodule endprimitive endspecify endtable endtask event for force
    forever fork function generate genvar if ifnone incdir include initial inout input instance integer join large
    liblist library localparam macromodule medium module nand negedge nmos nor not notif0 notif1 or output parameter
    pmos posedge primitive pull0 pull1 pulldown pullup real realtime reg release repeat scalared showcancelled signed
    small specify specparam strong0 strong1 supply0 supply1 table task time tran tri tri0 tri1 triand trior trireg
    unsigned use vectored wait wand weak0 weak1 while wire wor xnor xor""".split()
)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _RESERVED:
        raise CommandError(f"name must be letters, digits and _, and no word of Verilog, not {name!r}")


def _check_output(output: str) -> Path | None:
    """Return the file to write, None for standard output."""
    if output == "-":
        return None
    target = Path(os.path.realpath(output))  # what a link names is replaced, not the link
    check_writable(output, [".v"])
    check_writable(target.with_suffix(".json"))
    return target


def _write(texts: Mapping[Path, str]) -> None:
    """Write files; they appear, or are replaced, only when all of each is there."""
    with contextlib.ExitStack() as stack:
        for target, text in texts.items():
            stack.enter_context(replacing(target)).write_text(text, encoding="utf-8")
