"""From PTX, the assembly of NVIDIA's devices, to C that does the same on the host, instruction by instruction.

Only instructions that give the same bits everywhere are known. So translating is a check, too: what a compiler made
with a wrong option, or from an inexact function, is refused. See https://docs.nvidia.com/cuda/parallel-thread-execution.
"""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from emulation.instructions import BOUNDS, C_TYPES, EXACT, Form

_ENTRY = re.compile(r"\.entry\s+(\w+)\(([^)]*)\)([^{]*)\{\n(.*?)\n\}", re.DOTALL)
_MOST_THREADS = re.compile(r"\.maxntid\s+(\d+)")  # of a block; along x, or in all
_CALLED = re.compile(r"\.func\s+(?:\(([^)]*)\)\s*)?(\w+)\s*\(([^)]*)\)\s*\{\n(.*?)\n\}", re.DOTALL)
_NAME = re.compile(r"(\w+)(?:\[\d+\])?\s*(?:,|$)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+8\s+\.b8|\.[ub]64)\b.*?(\w+)(?:\[(\d+)\])?\s*(?:,|$)", re.MULTILINE)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)")
_LOCAL = re.compile(r"\.(?:local|param)\s+(?:\.align\s+(\d+)\s+)?\.b(\d+)\s+(\w+)(?:\[(\d+)\])?")
_CALL = re.compile(r"call(?:\.uni)?\s+(?:\(\s*(\w+)\s*\),\s*)?(\w+)(?:,\s*\(([^)]*)\))?")
_GUARDED = re.compile(r"(?:@(!?)%(\w+)\s+)?(\S+)\s*(.*)")
_OPERANDS = re.compile(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+")
_ADDRESS = re.compile(r"\[(%?\w+)(?:\+(-?\d+))?\]")
_MEMORY = re.compile(r"(ld|st)(?:\.(global|local|param))?(?:\.nc)?(?:\.v([24]))?\.([busf]\d+)")
_COUNT = re.compile(r"atom(?:\.relaxed\.gpu)?(?:\.global)?\.add\.u64")
_BARRIER = re.compile(r"(?:bar|barrier)\.(sync|red\.or\.pred)")
_PLACES = {f"%tid.{axis}": f"self->{axis}" for axis in "xyz"}
_PLACES |= {"%ntid.x": "WIDTH", "%ntid.y": "parts", "%ntid.z": "tiles", "%ctaid.x": "block"}
_MOST_BARRIERS = 100  # of a function


class NotExactError(Exception):
    """PTX has an instruction that is not known to give the same bits everywhere."""


def translate(ptx: str, allow: Mapping[str, Form] | None = None) -> dict[str, str]:
    """Return each kernel of PTX in C, by name, after the functions of PTX; `runtime.c` has everything else they need.

    allow: Instructions to be executed beside those that are exact, such as `instructions.FUSED`.

    Raises:
        NotExactError: An instruction is unknown, because it is not exact or because no kernel has needed it yet.
    """
    forms = {**EXACT, **(allow or {})}
    entries, called = _ENTRY.findall(ptx), _CALLED.findall(ptx)
    if not entries:
        raise NotExactError("expected PTX that has kernels")
    heads = {name: _head(name, _NAME.findall(f"{result},{head}")) for result, name, head, _ in called}
    functions = "".join(f"{head};\n" for head in heads.values())
    for number, (_, name, _, body) in enumerate(called, 1):
        functions += _Function(name, heads[name], forms, heads, barriers=_MOST_BARRIERS * number).definition(body)
    kernels = {}
    for name, head, limits, body in entries:
        # Parameters are words of 64 bits, or structures of several words, and lie end to end.
        words = {parameter: -(-int(size or 8) // 8) for parameter, size in _PARAMETER.findall(head)}
        places = dict(zip(words, itertools.accumulate(words.values(), initial=0), strict=False))
        kernel = _Function(name, f"void {name}(void)", forms, heads, places).definition(body)
        sizes = ", ".join(map(str, [*words.values(), 0]))
        most = _MOST_THREADS.search(limits)
        facts = f"const int {name}_parameters[] = {{{sizes}}}, {name}_most_threads = {most[1] if most else 0};\n"
        kernels[name] = f"{functions}{facts}{kernel}"
    return kernels


def _head(name: str, parameters: list[str]) -> str:
    """Return the head of a function that kernels call: it gets the places of its result, if any, and its arguments."""
    return f"static void {name}({', '.join(f'char *{parameter}' for parameter in parameters) or 'void'})"


@dataclass
class _Function:
    """A function of PTX that is being translated. Its registers become variables that hold bits.

    head: Its head in C. called: The functions that it may call. parameters: The places of a kernel's parameters,
    in words; None for another function. barriers: The number of the last barrier.
    registers: [name without %] -> type.
    """

    name: str
    head: str
    forms: Mapping[str, Form]
    called: Collection[str]
    parameters: Mapping[str, int] | None = None
    registers: dict[str, str] = field(default_factory=dict)
    barriers: int = 0

    def definition(self, body: str) -> str:
        """Return the function in C."""
        lines = "\n".join(line for statement in _statements(body) for line in self._lines(statement))
        return f"{self.head}\n{{\n{lines}\n}}\n"

    def _lines(self, statement: str) -> Iterator[str]:
        if statement in "{}":
            yield statement
        elif statement.endswith(":"):
            yield f"{_label(statement[:-1])}:;"
        elif found := _REGISTERS.fullmatch(statement):
            yield from self._declarations(*found.groups())
        elif found := _LOCAL.fullmatch(statement):
            alignment, bits, name, count = found.groups()
            size = int(bits) // 8
            yield f"_Alignas({alignment or size}) char {name}[{size * int(count or 1)}];"
        elif not statement.startswith((".pragma", ".loc ")):
            negation, guard, opcode, operands = _GUARDED.fullmatch(statement).groups()
            condition = f"if ({negation}v_{guard}) " if guard else ""
            count = "" if opcode.startswith("ld.param") else "COUNT "  # machine code has parameters as operands
            yield f"{count}{condition}{{ {self._instruction(statement, opcode, _OPERANDS.findall(operands))} }}"

    def _declarations(self, kind: str, names: str) -> Iterator[str]:
        for name in names.split(","):
            stem, _, count = name.strip().strip("%>").partition("<")
            numbers = [f"{stem}{i}" for i in range(int(count))] if count else [stem]
            self.registers.update(dict.fromkeys(numbers, kind))
            yield f"{_held(kind)} {', '.join(f'v_{number} = 0' for number in numbers)};"

    def _instruction(self, statement: str, opcode: str, operands: list[str]) -> str:
        if form := self.forms.get(opcode) or (BOUNDS.get(opcode) if operands and _is_number(operands[-1]) else None):
            packed = next((i for i, operand in enumerate(operands) if operand[0] == "{"), None)
            return self._compute(form, operands) if packed is None else self._pack(form, operands, packed)
        if found := _MEMORY.fullmatch(opcode):
            return self._move(statement, operands, *found.groups())
        if _BARRIER.fullmatch(opcode):
            return self._barrier(operands)
        if (found := _CALL.search(statement)) and found[2] in self.called:
            result, name, arguments = found.groups("")
            return f"{name}({', '.join(_OPERANDS.findall(f'{result},{arguments}'))});"
        if _COUNT.fullmatch(opcode):
            return self._count(statement, *operands)
        if opcode in ("bra", "bra.uni", "ret"):
            return f"goto {_label(operands[0])};" if operands else "return;"
        raise NotExactError(f"{self.name}: `{statement}` is not known to give the same bits everywhere")

    def _compute(self, form: Form, operands: list[str]) -> str:
        sources = zip("abcd", form.sources, operands[1:], strict=False)
        named = " ".join(f"const {C_TYPES[t]} {name} = {self._value(source, t)};" for name, t, source in sources)
        return f"{named} {self._set(operands[0], form.result, form.expression)}"

    def _pack(self, form: Form, operands: list[str], packed: int) -> str:
        """Copy between a register and several that are as wide together."""
        parts = _OPERANDS.findall(operands[packed].strip("{}"))
        whole, size = self._variable(operands[1 - packed]), int(form.result[1:]) // 8 // len(parts)
        named = ((i, part) for i, part in enumerate(parts) if part != "_")
        places = [(f"(char *)&{whole} + {i * size}", f"&{self._variable(part)}") for i, part in named]
        return " ".join(f"memcpy({a if packed else b}, {b if packed else a}, {size});" for a, b in places)

    def _move(self, statement: str, operands: list[str], way: str, space: str, vector: str, t: str) -> str:
        """Load, or store, one number or several."""
        address, numbers = operands if way == "st" else operands[::-1]
        several = _OPERANDS.findall(numbers.strip("{}"))
        size = int(vector or 1) * int(t[1:]) // 8
        place = self._address(address)
        if space not in ("local", "param"):
            place = f'ACCESS({place}, {size}, {int(way == "st")}, "{statement}")'
        if way == "st":
            moves = (f"m[{i}] = {self._value(number, t)};" for i, number in enumerate(several))
        else:
            moves = (self._set(number, t, f"m[{i}]") for i, number in enumerate(several))
        return f"{C_TYPES[t]} *m = (void *)({place}); {' '.join(moves)}"

    def _count(self, statement: str, result: str, address: str, value: str) -> str:
        """Add to a number, of which several threads may be taking."""
        place = f'ACCESS({self._address(address)}, 8, COUNTS, "{statement}")'
        number = f"uint64_t *m = (void *)({place}); const uint64_t before = *m; *m += {self._value(value, 'u64')};"
        return f"{number} {self._set(result, 'u64', 'before')}"

    def _barrier(self, operands: list[str]) -> str:
        """Wait at a barrier, which has a name, a small number. With three operands, it also combines the votes."""
        self.barriers += 1
        result, name, vote = operands if len(operands) == 3 else ("", *operands, "")
        call = f"barrier({self.barriers}, {name}, {self._value(vote, 'pred') if vote else 0});"
        return f"{self._variable(result)} = {call}" if result else call

    def _address(self, operand: str) -> str:
        base, offset = _ADDRESS.fullmatch(operand).groups()
        return f"{self._value(base, 'u64')} + {offset or 0}ll"

    def _variable(self, register: str) -> str:
        return f"v_{register.removeprefix('%')}"

    def _value(self, operand: str, t: str) -> str:
        """Return an operand as a C expression of type t."""
        if operand in _PLACES:
            return _PLACES[operand]
        if _is_number(operand):
            bits = f"0x{operand[2:]}ull"
            return f"as_{t}({bits})" if t[0] == "f" else bits
        if operand.lstrip("-")[0].isdigit():
            return f"({C_TYPES[t]}){operand.rstrip('U')}{'ll' if operand[0] == '-' else 'ull'}"
        if operand[0] == "!":
            return f"!{self._variable(operand[1:])}"
        if operand[0] != "%":
            place = (self.parameters or {}).get(operand)
            return f"(uint64_t)(uintptr_t){operand if place is None else f'&arguments[{place}]'}"
        return f"as_{t}({self._variable(operand)})" if t[0] == "f" else f"({C_TYPES[t]}){self._variable(operand)}"

    def _set(self, register: str, t: str, expression: str) -> str:
        value = f"({C_TYPES[t]})({expression})"  # a register that is wider than t is filled up with t's sign
        return f"{self._variable(register)} = {f'bits_of_{t}({value})' if t[0] == 'f' else value};"


def _statements(body: str) -> Iterator[str]:
    """Yield instructions, declarations, labels and braces; a call may be several lines long."""
    code = ""
    for line in body.splitlines():
        code = " ".join([*code.split(), *line.partition("//")[0].split()])
        if not code.startswith(("call", "@")) or code.endswith(";"):
            yield from filter(None, (part.strip() for part in code.split(";")))
            code = ""


def _is_number(operand: str) -> bool:
    """Return whether an operand is a float that the instruction holds."""
    return operand[:2] in ("0f", "0d")


def _label(name: str) -> str:
    """Return a label without the number of its kernel, so that equal kernels of different sources are compiled once."""
    return f"at_{name.rpartition('_')[2]}"


def _held(kind: str) -> str:
    """Return the C type that holds the bits of a register."""
    return "int" if kind == "pred" else f"uint{kind[1:]}_t"
