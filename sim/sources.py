"""Somebody else's Verilog as one text that needs no other file, and what Yosys says of the ports of a module in it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .simulators import TOP

__all__ = ["Port", "Sources"]

# Modules around the design that it must not have as well: that of the gates, and that of the batch runner.
_TAKEN = (TOP, "lanes")
_MAX_INCLUDES = 100
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<include>`include\s+"(?P<included>[^"\n]*)")
    |(?P<string>"(?P<quoted>(?:\\.|[^"\\\n])*)")
    |(?P<directive>`(?:define|undef|ifn?def|elsif)\s+\w+|`\w+)
    |(?P<number>'[sS]?[bodhBODH]\s*[\w?]+)
    |\\(?P<escaped>\S+)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<other>\d[\w$]*|\n)""",
    re.VERBOSE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Port:
    """A port of a module: its direction, "input", "output" or "inout", and its width."""

    direction: str
    width: int


class Sources:
    """Verilog files, or SystemVerilog as far as Yosys reads it, as one text.

    Files that they include are put in, where they are found; strings that name a file beside the source become its
    whole path, so that ``$readmemh`` finds it, and its content a part of what identifies the text. Where the design
    calls anything by a name that a module around it has, ``top`` or ``lanes``, it is called otherwise in the text.

    Parameters
    ----------
    files : sequence of Path
        In the order in which a compiler should read them.
    include : sequence of Path
        Folders in which included files are looked for, after that of the including one.
    define : mapping of str to str
        Macros.

    Attributes
    ----------
    text : str

    Raises
    ------
    ValueError
        A file that cannot be read, or files that include each other without end.
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        include: Sequence[Path] = (),
        define: Mapping[str, str] | None = None,
    ):
        self.files = [Path(file) for file in files]
        self._include = [Path(folder) for folder in include]
        self._origins: list[tuple[str, int]] = []  # file and line of each line of the text
        self._parts: list[str] = []
        self._tables: dict[str, str] = {}
        self._includes = 0
        define = define or {}
        for name, value in define.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or "\n" in value:
                raise ValueError(f"a macro must be NAME or NAME=VALUE, of one line, not {f'{name}={value}'!r}")
        texts = {file: _read(file) for file in self.files}
        self._names = self._renamed("".join([*texts.values(), *define.values()]))
        for name, value in define.items():
            self._put(Path(f"the macro {name}"), f"`define {name} {value}\n")
        for file, text in texts.items():
            self._put(file, text)
            self._add("\n", (str(file), text.count("\n") + 1))
        for file, digest in self._tables.items():
            self._add(f"// {digest} {file}\n", (file, 1))
        self.text = "".join(self._parts)

    def name(self, name: str) -> str:
        """Return what the text calls something that the files call `name`."""
        return self._names.get(name, name)

    def ports(self, module: str, parameters: Mapping[str, int | str] | None = None) -> dict[str, Port]:
        """Return the ports of a module, of these values of its parameters.

        Raises
        ------
        ValueError
            There is no such module or parameter, or one that it is made of is missing, or what Yosys does not read;
            the message has what it said.
        """
        job = {"module": self.name(module), "parameters": {self.name(k): v for k, v in (parameters or {}).items()}}
        with tempfile.TemporaryDirectory(prefix="lns-") as name:
            source, result = Path(name, "dut.v"), Path(name, "ports.json")
            source.write_text(self.text, encoding="utf-8")
            files = {"source": str(source), "around": str(Path(name, "around.v")), "result": str(result)}
            Path(name, "job.json").write_text(json.dumps({**job, **files}))
            # In a process of its own: Yosys ends its process where it finds an error.
            command = [sys.executable, "-m", "sim._ports", str(Path(name, "job.json"))]
            # And there, since a folder "sim" where the user is would be another package.
            done = subprocess.run(command, cwd=name, capture_output=True, text=True, errors="replace", check=False)
            found = json.loads(result.read_text()) if result.is_file() else {}
        original = {new: old for old, new in self._names.items()}
        if "modules" in found and job["module"] not in found["modules"]:
            there = ", ".join(original.get(module, module) for module in found["modules"]) or "none"
            raise ValueError(f"{self._shown} must have the module {module}; it has {there}")
        if "ports" not in found:
            raise ValueError(f"{self._shown} cannot be read: {self._message(done.stdout + done.stderr, str(source))}")
        return {original.get(name, name): Port(**port) for name, port in found["ports"].items()}

    @property
    def _shown(self) -> str:
        return ", ".join(map(str, self.files))

    def _message(self, log: str, source: str) -> str:
        """Return the error in a log of Yosys, with the file and the line that the user knows."""
        lines = [line for line in log.splitlines() if "ERROR:" in line] or log.splitlines()[-1:] or ["no message"]
        place, _, message = lines[0].rpartition("ERROR:")
        for old, new in self._names.items():
            message = re.sub(rf"\b{new}\b", old, message)
        # After a place there may be others, of included text; ours is the one in the file that was read.
        if line := re.search(rf"{re.escape(source)}:(\d+)", place):
            file, number = self._origins[min(int(line[1]), len(self._origins)) - 1]
            return f"{file}:{number}: {message.strip()}"
        return message.strip()

    # The text ----------------------------------------------------------------------------------------------------

    def _add(self, text: str, origin: tuple[str, int]) -> None:
        """Add text; each of its line ends finishes a line, of which the last that began counts."""
        self._parts.append(text)
        file, line = origin
        self._origins += [(file, line + offset) for offset in range(text.count("\n"))]

    def _put(self, file: Path, text: str) -> None:
        line, place = 1, 0
        for token in _TOKEN.finditer(text):
            between = text[place : token.start()]
            self._add(between, (str(file), line))
            line, place = line + between.count("\n"), token.end()
            included = self._found(file, token["included"]) if token["include"] else None
            if included is None:
                self._add(self._changed(file, token), (str(file), line))
            else:
                self._includes += 1
                if self._includes > _MAX_INCLUDES:
                    raise ValueError(f"{file}:{line}: more than {_MAX_INCLUDES} files are included")
                self._put(included, _read(included))
            line += token[0].count("\n")
        self._add(text[place:], (str(file), line))

    def _found(self, file: Path, name: str) -> Path | None:
        """Return the included file; None, so that Yosys decides whether it matters, if it is in no folder."""
        candidates = [folder / name for folder in (file.parent, *self._include)]
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _changed(self, file: Path, token: re.Match) -> str:
        """Return what stands for a token in the text."""
        if token["escaped"]:
            return f"\\{self.name(token['escaped'])}"
        if token["name"]:
            return self.name(token["name"])
        if token["quoted"] and (table := file.parent.absolute() / token["quoted"]).is_file():
            self._tables[str(table)] = hashlib.sha256(table.read_bytes()).hexdigest()
            return f'"{table}"'
        return token[0]

    @staticmethod
    def _renamed(text: str) -> dict[str, str]:
        names = {}
        for name in _TAKEN:
            new = f"{name}_of_dut"
            while new in text:
                new += "_"
            names[name] = new
        return names


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{str(file)!r} cannot be read: {error.strerror}") from None
