"""Write letter_tables.cpp beside this file from Python's own knowledge of Unicode (3.11 has
Unicode 14): python3.11 make_letters.py
"""

import pathlib
import sys
import unicodedata

POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(holds):
    """(first, last, stride 1 or 2) of the code points for which HOLDS, above ASCII."""
    points = [ord(c) for c in POINTS if ord(c) >= 0x80 and holds(c)]
    found, i = [], 0
    while i < len(points):
        best = i
        stride = 1
        for step in (1, 2):
            j = i
            while j + 1 < len(points) and points[j + 1] - points[j] == step:
                j += 1
            if j > best and (step == 1 or j - i >= 2):
                best, stride = max((best, stride), (j, step))
        found.append((points[i], points[best], stride))
        i = best + 1
    return found


def shifts(change):
    """(first, last, stride, delta) of the code points that CHANGE to one other."""
    moved = [(ord(c), ord(change(c)) - ord(c)) for c in POINTS
             if ord(c) >= 0x80 and len(change(c)) == 1 and change(c) != c]
    found, i = [], 0
    while i < len(moved):
        best, stride = i, 1
        for step in (1, 2):
            j = i
            while (j + 1 < len(moved) and moved[j + 1][0] - moved[j][0] == step
                   and moved[j + 1][1] == moved[i][1]):
                j += 1
            if j > best:
                best, stride = j, step
        found.append((moved[i][0], moved[best][0], stride, moved[i][1]))
        i = best + 1
    return found


def grown(change):
    """(code point, the text it becomes) where that has more than one."""
    return [(ord(c), change(c)) for c in POINTS if len(change(c)) > 1]


def rows(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 1 > 190:
            lines.append(line)
            line = "   "
        line += " " + item
    return "\n".join(lines + [line])


def table(kind, name, items):
    return f"constexpr {kind} {name}Table[] = {{\n{rows(items)}\n}};\n"


def numbers(item):
    return "{" + ", ".join(hex(n) if n > 9 else str(n) for n in item) + "},"


def texts(item):
    escaped = "".join(f"\\x{b:02X}" for b in item[1].encode())
    return f'{{{hex(item[0])}, "{escaped}"}},'


CLASSES = {
    "kUnprintable": lambda c: not c.isprintable(),
    "kAlpha": str.isalpha,
    "kDecimal": str.isdecimal,
    "kDigit": lambda c: c.isdigit() and not c.isdecimal(),
    "kNumeric": lambda c: c.isnumeric() and not c.isdigit(),
    "kLower": str.islower,
    "kUpper": str.isupper,
    "kCaseIgnorable": lambda c: unicodedata.category(c) in ("Mn", "Me", "Cf", "Lm", "Sk")
    or c in "\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a",
}
CASES = {"Upper": str.upper, "Lower": str.lower, "Title": str.title}


def main():
    assert sys.version_info[:2] == (3, 11), "the tables are those of Python 3.11"
    text = """// Written by make_letters.py from Python 3.11, Unicode 14: classes and cases above ASCII.
#include "text/chat_template/values/letter_tables.h"

namespace dslaunch::tokens::jinja {
namespace {

// clang-format off
"""
    for name, holds in CLASSES.items():
        text += table("PointRange", name, map(numbers, ranges(holds)))
    for name, change in CASES.items():
        text += table("PointShift", f"k{name}Shifts", map(numbers, shifts(change)))
        text += table("PointText", f"k{name}Texts", map(texts, grown(change)))
    text += "// clang-format on\n\n}  // namespace\n\nconst LetterTables& letter_tables() {\n"
    text += "    static constexpr LetterTables tables = {\n"
    names = list(CLASSES) + [f"k{name}{kind}" for name in CASES for kind in ("Shifts", "Texts")]
    for name in names:
        text += f"        {name}Table,\n"
    text += "    };\n    return tables;\n}\n\n}  // namespace dslaunch::tokens::jinja\n"
    (pathlib.Path(__file__).parent / "letter_tables.cpp").write_text(text)


main()
