"""What ctypes believes of structs, constants and functions is what the headers say: by the script that derives it, and by the compiler."""
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import rows

import kvgrid
from kvgrid import _abi

SCRIPT = os.path.join(rows.ROOT, "launch", "python", "abi.py")


def kind_of(made):
    """The probe's letter and size of a ctypes type."""
    if made is None:
        return "v0"
    if issubclass(made, (ctypes._Pointer, ctypes._CFuncPtr, ctypes.c_void_p, ctypes.c_char_p)):
        return "p8"
    if issubclass(made, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        return "s%d" % ctypes.sizeof(made)
    if made in (ctypes.c_float, ctypes.c_double):
        return "f%d" % ctypes.sizeof(made)
    signed = made(-1).value if made is not ctypes.c_char else b"i"
    return "%s%d" % ("i" if signed in (-1, b"i") else "u", ctypes.sizeof(made))


class Derived(unittest.TestCase):
    def test_the_file_is_what_the_script_makes_of_the_headers_now(self):
        made = subprocess.run([sys.executable, SCRIPT], stdout=subprocess.PIPE, check=True).stdout.decode()
        with open(_abi.__file__, encoding="utf-8") as file:
            self.assertTrue(file.read() == made, "the headers have changed: launch/python/abi.py --write")

    def test_every_function_of_the_headers_is_in_the_library(self):
        missing = [name for name in _abi.FUNCTIONS if not kvgrid.lib.has(name)]
        if kvgrid.lib.has("kvg_dev_cuda"):
            self.assertEqual(missing, [])
        else:
            self.assertNotIn("kvg_grid_create", missing)
            for name in missing:
                self.assertTrue(any(word in name for word in ("cuda", "_launch", "_ref", "comm_board", "on_devices")), name)

    def test_every_function_of_the_library_is_in_the_module(self):
        nm = shutil.which("nm")
        if nm is None:
            self.skipTest("no nm here")
        text = subprocess.run([nm, "-D", "--defined-only", kvgrid.lib.path], stdout=subprocess.PIPE, check=True).stdout.decode()
        names = {line.split()[-1].split("@")[0] for line in text.splitlines()}
        private = {"kvg_fail", "kvg_assert_failed", "kvg_calloc", "kvg_free", "kvg_strdup", "kvg_fault_hit", "kvg_clock_ns", "kvg_clock_relax"}
        self.assertEqual({name for name in names if name.startswith("kvg_")} - private - set(_abi.FUNCTIONS), set())


class Compiled(unittest.TestCase):
    """The same facts from the compiler: sizes, offsets, values, initial bytes, and each function's kinds of arguments."""
    @classmethod
    def setUpClass(cls):
        compiler = os.environ.get("CXX") or shutil.which("c++")
        if not compiler:
            raise unittest.SkipTest("no C++ compiler here")
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "probe.cpp"), os.path.join(folder, "probe")
            with open(source, "wb") as file:
                file.write(subprocess.run([sys.executable, SCRIPT, "--probe"], stdout=subprocess.PIPE, check=True).stdout)
            environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            subprocess.run([compiler, "-std=c++17", "-Wno-invalid-offsetof", "-I", os.path.join(rows.BUILD, "include"), source, "-o", program], check=True,
                           env=environment)
            text = subprocess.run([program], stdout=subprocess.PIPE, check=True, env=environment).stdout.decode()
        cls.facts = [json.loads(line) for line in text.splitlines()]

    def of(self, what, least):
        found = [fact[1:] for fact in self.facts if fact[0] == what]
        self.assertGreaterEqual(len(found), least)
        return found

    def test_constants(self):
        for name, value in self.of("constant", 120):
            self.assertEqual(_abi.CONSTANTS[name], value, name)

    def test_sizes_and_offsets_of_every_struct(self):
        for name, size in self.of("struct", 80):
            self.assertEqual(ctypes.sizeof(_abi.STRUCTS[name]), size, name)
        fields = dict((name, dict(made._fields_)) for name, made in _abi.STRUCTS.items())
        for struct, name, offset, size, kind in self.of("field", 500):
            made = getattr(_abi.STRUCTS[struct], name)
            self.assertEqual((made.offset, made.size), (offset, size), "%s.%s" % (struct, name))
            if kind[0] != "s":
                self.assertEqual(kind_of(fields[struct][name]), kind, "%s.%s" % (struct, name))

    def test_initial_values(self):
        for name, text in self.of("initial", 10):
            made = getattr(kvgrid, name[len("KVG_"):])()
            self.assertEqual(bytes(made).hex(), text, name)

    def test_arguments_and_results_of_every_function(self):
        for name, result, *arguments in self.of("function", 300):
            made_result, made_arguments = _abi.FUNCTIONS[name]
            self.assertEqual([kind_of(made_result)] + [kind_of(made) for made in made_arguments], [result] + arguments, name)


if __name__ == "__main__":
    rows.main()
