#!/usr/bin/env python3
"""Derives kvgrid/_abi.py (constants, structs, functions for ctypes) from the public headers, so that they cannot drift apart.

    abi.py            prints what _abi.py must be
    abi.py --write    writes it
    abi.py --probe    prints a C++17 program that asks the compiler for the same facts: sizes, offsets, values, kinds of arguments

tests/python/test_abi.py runs both and compares. The headers are those that pp/kvgrid.h and kernels/kvgrid_cuda.h include; the latter's
functions are in a library that was built with CUDA alone.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kvgrid", "_abi.py")
OPENING = ("pp/kvgrid.h", "kernels/kvgrid_cuda.h")
FOLDERS = ("runtime", "tp", "pp", "kernels")

SCALARS = {
    "void": None, "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float", "double": "c_double",
    "size_t": "c_size_t", "int8_t": "c_int8", "int16_t": "c_int16", "int32_t": "c_int32", "int64_t": "c_int64",
    "uint8_t": "c_uint8", "uint16_t": "c_uint16", "uint32_t": "c_uint32", "uint64_t": "c_uint64", "uintptr_t": "c_size_t",
}


class Headers:
    """What the headers declare, in the order in which they declare it."""

    def __init__(self):
        self.paths = {}       # NAME.h -> path below the root
        self.order = []
        self.constants = {}   # KVG_X -> value
        self.initials = {}    # KVG_X_INIT -> (struct, [text of each value])
        self.enums = []
        self.opaque = []      # structs and unions that have been named
        self.fields = {}      # struct or union -> [(name, type)]
        self.unions = set()
        self.aliases = {}     # typedef'd pointer or function pointer -> type
        self.functions = {}   # name -> (result, [arguments], variadic)
        self.fallible = []    # functions that answer a KvgStatus
        for folder in FOLDERS:
            for place, _, names in os.walk(os.path.join(ROOT, folder)):
                for name in names:
                    if name.endswith(".h"):
                        self.paths[name] = os.path.join(place, name)
        for path in OPENING:
            self.read(os.path.basename(path))

    def read(self, name):
        if name in self.order or name == "export.h":
            return
        with open(self.paths[name], encoding="utf-8") as file:
            text = file.read()
        for included in re.findall(r"#include <kvgrid/(\w+\.h)>", text):
            self.read(included)
        self.order.append(name)
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = text.replace("\\\n", " ")
        for define in re.findall(r"^#define (KVG_\w+) +(.+)$", text, flags=re.M):
            self.define(*define)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        text = re.sub(r"KVG_(BEGIN|END)_DECLS|__extension__|__attribute__\(\(.*?\)\)\)|\bconst\b", " ", text)
        for statement in statements(text):
            self.declare(" ".join(statement.split()))

    def define(self, name, text):
        text = text.strip()
        if text.startswith("{"):
            values = split_top(text[1:-1])
            self.initials[name] = (re.match(r"sizeof\((\w+)\)", values[0]).group(1), values[1:])
        else:
            self.constants[name] = self.number(text)

    def number(self, text):
        text = re.sub(r"\((size_t|u?int\d*_t)\)", "", text)
        text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
        return eval(text, {"__builtins__": {}}, dict(self.constants))  # numbers, shifts and earlier constants alone

    def declare(self, statement):
        if statement.startswith("static inline"):
            return
        if statement.startswith("KVG_API"):
            return self.function(statement[len("KVG_API"):].strip())
        match = re.match(r"(?:typedef )?enum (\w+ )?\{(.*)\} ?(\w*)$", statement)
        if match:
            return self.enumerate(match.group(3), match.group(2))
        match = re.match(r"typedef (struct|union) (\w+ )?\{(.*)\} ?(\w+)$", statement)
        if match:
            return self.structure(match.group(1), match.group(4), match.group(3))
        match = re.match(r"(?:typedef )?struct (\w+)( \w+)?$", statement)
        if match:
            return self.name_struct(match.group(1))
        match = re.match(r"typedef (.*)$", statement)
        if match and "(*" in statement:
            name, kind = self.pointer_to_function(match.group(1))
            self.aliases[name] = kind
            return
        match = re.match(r"typedef void ?\* ?(\w+)$", statement)
        if match:
            self.aliases[match.group(1)] = "c_void_p"
            return
        raise SystemExit("abi.py cannot read: " + statement)

    def enumerate(self, name, body):
        value = -1
        for item in split_top(body):
            key, _, text = item.partition("=")
            value = self.number(text) if text else value + 1
            self.constants[key.strip()] = value
        if name:
            self.enums.append(name)

    def name_struct(self, name):
        if name not in self.opaque:
            self.opaque.append(name)

    def structure(self, kind, name, body):
        self.name_struct(name)
        fields = []
        for inner in re.findall(r"union \{(.*?)\} (\w+);", body):
            self.structure("union", name + "_" + inner[1], inner[0])
            self.unions.add(name + "_" + inner[1])
        body = re.sub(r"union \{.*?\} (\w+);", lambda found: "%s_%s %s;" % (name, found.group(1), found.group(1)), body)
        for line in split_top(body, ";"):
            fields += self.field(line)
        if kind == "union":
            self.unions.add(name)
        self.fields[name] = fields

    def field(self, line):
        if "(*" in line:
            return [self.pointer_to_function(line)]
        first, *others = split_top(line)
        base = re.match(r"((?:struct )?\w+) ?", first)
        made = []
        for text in [first[base.end():]] + others:
            match = re.match(r"(\**) ?(\w+) ?(?:\[(.*)\])?$", text.strip().replace("* ", "*"))
            kind = self.kind(base.group(1) + " " + match.group(1))
            if match.group(3) is not None:
                kind = "%s * %d" % (kind, self.number(match.group(3)) if match.group(3) else 0)
            made.append((match.group(2), kind))
        return made

    def pointer_to_function(self, text):
        match = re.match(r"(.*?)\(\* ?(\w+)\) ?\((.*)\)$", text)
        return match.group(2), "CFUNCTYPE(%s)" % ", ".join([str(self.kind(match.group(1)))] + self.arguments(match.group(3)))

    def function(self, text):
        match = re.match(r"(.*?)(\w+) ?\((.*)\)$", text)
        result, name, arguments = match.groups()
        self.functions[name] = (self.kind(result), self.arguments(arguments.replace(", ...", "")), arguments.endswith("..."))
        if result.strip() == "KvgStatus":
            self.fallible.append(name)

    def arguments(self, text):
        made = []
        for argument in split_top(text):
            if argument == "void":
                continue
            pointer = "*" if "[" in argument else ""
            argument = re.sub(r"\[.*?\]", "", argument)
            match = re.match(r"((?:struct )?\w+)([ *]*)(\w*)$", argument)
            made.append(self.kind(match.group(1) + match.group(2) + pointer))
        return made

    def kind(self, text):
        stars = text.count("*")
        base = text.replace("*", "").replace("struct ", "").strip()
        if stars and base == "void":
            made, stars = "c_void_p", stars - 1
        elif stars and base == "char":
            made, stars = "c_char_p", stars - 1
        elif base in SCALARS:
            made = SCALARS[base]
        elif base in self.enums:
            made = "c_int"
        elif base in self.aliases:
            made = base
        else:
            self.name_struct(base)
            made = base
        for _star in range(stars):
            made = "POINTER(%s)" % made
        return made


def statements(text):
    """Cuts at ';' outside braces; what follows a function's body begins a new statement."""
    depth, current = 0, ""
    for character in text:
        current += character
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and current.lstrip().startswith("static inline"):
                yield current
                current = ""
        elif character == ";" and depth == 0:
            if current.strip(" ;\n"):
                yield current.strip(" ;\n")
            current = ""


def split_top(text, separator=","):
    depth, current, parts = 0, "", []
    for character in text:
        depth += character in "({" and 1 or 0
        depth -= character in ")}" and 1 or 0
        if character == separator and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    parts.append(current.strip())
    return [part for part in parts if part]


def initial(headers, struct, values):
    """{"field": value} of an _INIT macro, zeros and NULLs left out."""
    names = [name for name, _ in headers.fields[struct]][1:]
    made = {}
    for name, text in zip(names, values):
        if text.startswith("{"):
            assert not any(headers.constants.get(word, word) not in ("0", 0) for word in re.findall(r"\w+", text)), text
            continue
        if text == "NULL":
            continue
        value = float(text.rstrip("f")) if "." in text else headers.number(text)
        if value != 0:
            made[name] = value
    return made


def module(headers):
    lines = ['"""Written by launch/python/abi.py from the public headers: do not edit."""',
             "from ctypes import (CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int8, c_int16, c_int32, c_int64, c_size_t,",
             "                    c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)", "",
             "from ._struct import Structure, Union", "",
             'VERSION = "%d.%d.%d"' % tuple(headers.constants["KVG_VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH")), ""]
    lines += ["CONSTANTS = {"]
    lines += ['    "%s": %d,' % item for item in headers.constants.items()]
    lines += ["}", ""]
    for name in headers.opaque:
        lines += ["", "class %s(%s):" % (name, "Union" if name in headers.unions else "Structure"), "    pass", ""]
    lines.append("")
    done = set()
    for name, kind in headers.aliases.items():
        if kind == "c_void_p":
            lines.append("%s = %s" % (name, kind))
            done.add(name)
    for name, kind in headers.aliases.items():
        if name not in done:
            lines.append("%s = %s" % (name, kind))
    for name, fields in headers.fields.items():
        lines.append("%s._fields_ = [" % name)
        lines += ['    ("%s", %s),' % field for field in fields]
        lines.append("]")
    lines += ["", "STRUCTS = {"]
    lines += ['    "%s": %s,' % (name, name) for name in headers.fields]
    lines += ["}", "", "TYPES = {  # all, those that are only pointed to as well"]
    lines += ['    "%s": %s,' % (name, name) for name in headers.opaque + list(headers.aliases)]
    lines += ["}", "", "INITIALS = {  # the _INIT macros: what is not zero, beside size"]
    for name, (struct, values) in headers.initials.items():
        lines.append('    "%s": ("%s", %r),' % (name, struct, initial(headers, struct, values)))
    lines += ["}", "", "FUNCTIONS = {  # result, arguments"]
    for name, (result, arguments, _) in headers.functions.items():
        lines.append('    "%s": (%s, [%s]),' % (name, result, ", ".join(arguments)))
    lines += ["}", "", "FALLIBLE = {  # those that answer a KvgStatus"]
    lines += ['    "%s",' % name for name in headers.fallible]
    lines += ["}", ""]
    return "\n".join(lines)


PROBE = r"""
#include <cstdio>
#include <type_traits>
#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>

// One letter and a size: i and u integers, f floats, p pointers, s structs, v void.
template <class T> static void kind(const char *before)
{
    using U = std::conditional_t<std::is_void_v<T>, char, T>;
    char letter = 's';
    if (std::is_void_v<T>) letter = 'v';
    else if (std::is_pointer_v<T>) letter = 'p';
    else if (std::is_floating_point_v<T>) letter = 'f';
    else if (std::is_enum_v<T>) letter = 'i';
    else if (std::is_integral_v<T>) letter = std::is_signed_v<T> ? 'i' : 'u';
    std::printf("%s\"%c%zu\"", before, letter, std::is_void_v<T> ? 0 : sizeof(U));
}
template <class R, class... A> static void function(const char *name, R (*)(A...))
{
    std::printf("[\"function\", \"%s\", ", name), kind<R>("");
    (kind<A>(", "), ...);
    std::printf("]\n");
}
template <class R, class... A> static void function(const char *name, R (*)(A..., ...))
{
    std::printf("[\"function\", \"%s\", ", name), kind<R>("");
    (kind<A>(", "), ...);
    std::printf("]\n");
}
static void bytes(const char *name, const void *from, size_t count)
{
    std::printf("[\"initial\", \"%s\", \"", name);
    for (size_t i = 0; i < count; i++) std::printf("%02x", ((const unsigned char *)from)[i]);
    std::printf("\"]\n");
}
template <class T> static void field(const char *struct_name, const char *name, size_t offset, size_t size)
{
    std::printf("[\"field\", \"%s\", \"%s\", %zu, %zu, ", struct_name, name, offset, size), kind<T>("");
    std::printf("]\n");
}
"""


def probe(headers):
    lines = [PROBE, "int main()", "{"]
    for name in headers.constants:
        lines.append('    std::printf("[\\"constant\\", \\"%s\\", %%lld]\\n", (long long)(%s));' % (name, name))
    for name, fields in headers.fields.items():
        if name in headers.unions:
            continue
        lines.append('    std::printf("[\\"struct\\", \\"%s\\", %%zu]\\n", sizeof(%s));' % (name, name))
        for field, kind in fields:
            if kind.endswith("* 0"):
                continue
            lines.append('    field<decltype(%s::%s)>("%s", "%s", __builtin_offsetof(%s, %s), sizeof(((%s *)0)->%s));' % (
                name, field, name, field, name, field, name, field))
    for name, (struct, _) in headers.initials.items():
        lines.append('    { static %s made = %s; bytes("%s", &made, sizeof made); }' % (struct, name, name))
    for name in headers.functions:
        lines.append('    function("%s", (decltype(&%s))nullptr);' % (name, name))
    return "\n".join(lines + ["}", ""])


def main(arguments):
    headers = Headers()
    if arguments == ["--write"]:
        with open(TARGET, "w", encoding="utf-8") as file:
            file.write(module(headers))
    elif arguments == ["--probe"]:
        sys.stdout.write(probe(headers))
    elif not arguments:
        sys.stdout.write(module(headers))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
