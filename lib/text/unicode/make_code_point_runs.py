#!/usr/bin/env python3
"""Writes the four *.inc files of this folder: what the Python package `tokenizers` thinks of
every code point, found by asking it, as its parts follow four different versions of Unicode.

    make_code_point_runs.py TABLES_RS

TABLES_RS is src/tables.rs of the Rust crate unicode-segmentation 1.13: the classes of grapheme
clusters are the one thing that the package cannot be asked for.
"""
import pathlib
import re
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

LIMIT = 0x110000
POINTS = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf "
              "Co").split()
GRAPHEME = ("Any CR LF Control L V T LVT Extend ZWJ SpacingMark Prepend InCB_Consonant "
            "Extended_Pictographic Regional_Indicator").split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari".split()
FLAGS = ("space numeric word punctuation dropped combining nonspacing decomposes "
         "decomposes_compatibly reorders linker cluster_extend").split()


def marked(points):
    marks = bytearray(LIMIT)
    for c in points:
        marks[c] = 1
    return marks


def covered(pre_tokenizer):
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str(TEXT):
        yield from POINTS[begin:end]


def matches(pattern):
    return marked(covered(pre_tokenizers.Split(Regex(pattern), "removed", invert=True)))


def removed_by(pre_tokenizer):
    kept = marked(covered(pre_tokenizer))
    return marked(c for c in POINTS if not kept[c])


def changed_by(normalizer, around="", into=None):
    found = []
    for c in POINTS:
        text = around + chr(c) + around
        out = normalizer.normalize_str(text)
        if out != text if into is None else out == into:
            found.append(c)
    return marked(found)


def numerics():
    text = "".join("a" + chr(c) for c in POINTS)
    parts = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(text)
    return marked(POINTS[a // 2] for _, (a, b) in parts if b - a == 1 and a % 2 == 1)


def words():
    text = "".join("a" + chr(c) + "\n" for c in POINTS)
    parts = pre_tokenizers.Whitespace().pre_tokenize_str(text)
    return marked(POINTS[a // 3] for _, (a, b) in parts if a % 3 == 0 and b - a == 2)


def reordered():
    nfd = normalizers.NFD()
    found = []
    for c in POINTS:
        if nfd.normalize_str(chr(c)) != chr(c):
            continue
        for text in ("a" + chr(c) + "\u0334", "a\u0345" + chr(c)):
            if nfd.normalize_str(text) != text:
                found.append(c)
                break
    return marked(found)


def rust_table(source, name):
    body = re.search(f"const {name}: " + r"[^=]*= &\[(.*?)\];", source, re.S).group(1)
    row = r"\('((?:\\u\{[0-9a-f]+\})|[^'])',\s*'((?:\\u\{[0-9a-f]+\})|[^'])'(?:,\s*(\w+))?\)"
    for low, high, value in re.findall(row, body):
        yield tuple(int(x[3:-1], 16) if x[0] == "\\" else ord(x) for x in (low, high)) + (value,)


def clusters(source):
    classes = [0] * LIMIT
    for low, high, value in rust_table(source, "grapheme_cat_table"):
        value = {"LV": "LVT"}.get(value[3:], value[3:])  # every 28th of the syllables is an LV
        for c in range(low, high + 1):
            classes[c] = GRAPHEME.index(value)
    return classes


def bert(**chosen):
    rest = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**rest, **chosen})


def flags(source):
    nfd_changes = changed_by(normalizers.NFD())
    linkers = re.search(r"fn is_incb_linker.*?matches!\(c,(.*?)\)", source, re.S).group(1)
    linkers = {int(x, 16) for x in re.findall(r"\\u\{([0-9A-Fa-f]+)\}", linkers)}
    extends = marked(c for low, high, _ in rust_table(source, "InCB_Extend_table")
                     for c in range(low, high + 1))
    return {
        "space": removed_by(pre_tokenizers.WhitespaceSplit()),
        "numeric": numerics(),
        "word": words(),
        "punctuation": removed_by(pre_tokenizers.Punctuation("removed")),
        "dropped": changed_by(bert(clean_text=True), "a", "aa"),
        "combining": changed_by(normalizers.StripAccents(), "a", "aa"),
        "nonspacing": changed_by(bert(strip_accents=True), "a", "aa"),
        "decomposes": nfd_changes,
        "decomposes_compatibly": changed_by(normalizers.NFKD()),
        "reorders": reordered(),
        "linker": marked(linkers),
        "cluster_extend": extends,
    }


def write(path, head, numbers):
    lines, line = [], "   "
    for number in numbers:
        if len(line) + len(number) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {number},"
    path.write_text(f"// {head}\n" + "\n".join(lines + [line]) + "\n")


def lower_case_runs():
    lowercase = normalizers.Lowercase()
    pairs = [(c, out) for c in POINTS if (out := lowercase.normalize_str(chr(c))) != chr(c)]
    longer = [(c, out) for c, out in pairs if len(out) > 1]
    assert longer == [(0x130, "i\u0307")], longer
    runs = []
    for c, out in pairs:
        if len(out) > 1:
            continue
        shift = ord(out) - c
        if runs and runs[-1][3] == shift:
            first, last, step, _ = runs[-1]
            if (first == last and c - last <= 2) or c - last == step:
                runs[-1] = (first, c, c - last, shift)
                continue
        runs.append((c, c, 1, shift))
    return runs


def script_runs():
    for script in SCRIPTS:
        marks = matches(r"\p{%s}+" % script)
        begin = 0
        for c in range(1, LIMIT + 1):
            if c == LIMIT or marks[c] != marks[begin]:
                if marks[begin]:
                    yield f'{{"{script}", 0x{begin:X}, 0x{c - 1:X}}}'
                begin = c


def main():
    source = pathlib.Path(sys.argv[1]).read_text()
    folder = pathlib.Path(__file__).parent
    category = [0] * LIMIT
    for index, name in enumerate(CATEGORIES):
        marks = matches(r"\p{%s}+" % name)
        for c in POINTS:
            if marks[c]:
                category[c] = index
    grapheme = clusters(source)
    marks = flags(source)
    values = []
    for c in range(LIMIT):
        value = category[c] | grapheme[c] << 5
        for bit, name in enumerate(FLAGS):
            value |= marks[name][c] << (9 + bit)
        values.append(value)
    runs, begin = [], 0
    for c in range(1, LIMIT + 1):
        if c == LIMIT or values[c] != values[begin]:
            runs.append((c - begin, values[begin]))
            begin = c
    classes = sorted({value for _, value in runs})
    print(len(runs), "runs", len(classes), "classes")
    write(folder / "code_point_classes.inc", "Made by make_code_point_runs.py.",
          [f"0x{value:X}" for value in classes])
    write(folder / "code_point_runs.inc", "Made by make_code_point_runs.py: length, class.",
          [f"{length}, {classes.index(value)}" for length, value in runs])
    write(folder / "script_runs.inc", "Made by make_code_point_runs.py.", list(script_runs()))
    write(folder / "lower_case_runs.inc",
          "Made by make_code_point_runs.py: first, last, step, what is added.",
          [f"{{0x{a:X}, 0x{b:X}, {step}, {shift}}}" for a, b, step, shift in lower_case_runs()])


main()
