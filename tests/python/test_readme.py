"""The program of launch/python/README.md runs and prints what stands there."""
import os
import subprocess
import sys
import unittest

import rows

rows.numpy_or_skip()


def block(language, first):
    """The first block of the page fenced as `language` whose first line begins with `first`."""
    with open(os.path.join(rows.ROOT, "launch", "python", "README.md"), encoding="utf-8") as file:
        for part in file.read().split("\n```%s\n" % language)[1:]:
            text = part.split("\n```")[0] + "\n"
            if text.startswith(first):
                return text
    raise AssertionError("launch/python/README.md has no block of %s that begins with %r" % (language, first))


class Readme(unittest.TestCase):
    def test_the_program_prints_what_the_page_says(self):
        program = block("python", "import os")
        self.assertIn("import kvgrid", program)
        command, said = block("console", "$ PYTHONPATH=launch/python ").split("\n", 1)
        self.assertEqual(command, "$ PYTHONPATH=launch/python python3 engine.py")
        made = subprocess.run([sys.executable, "-c", program], cwd=rows.ROOT, env=dict(os.environ, PYTHONPATH="launch/python"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual((made.returncode, made.stdout.decode()), (0, said))


if __name__ == "__main__":
    rows.main()
