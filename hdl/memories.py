"""Where tables are kept: in block RAM, or in lookup tables."""

from __future__ import annotations

__all__ = ["check_rom", "rom_attributes"]


def check_rom(rom: str) -> str:
    """Return where tables are to be kept, if it is a place for them; else raise ValueError."""
    if rom not in ("block", "luts"):
        raise ValueError(f"rom must be 'block' or 'luts', not {rom!r}")
    return rom


def rom_attributes(rom: str) -> dict[str, str]:
    """Return the attributes of a memory that tell Yosys to keep it there."""
    return {"rom_style": "block" if check_rom(rom) == "block" else "logic"}
