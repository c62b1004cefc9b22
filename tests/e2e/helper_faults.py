"""A program that handles its own faults sees no difference when the helper has taken over its signals: not in what its handlers get, not in
what it reads back, and not in how it ends."""

import os
import re
import subprocess
import unittest

import harness

LIBRARY = harness.program("libfaulter_preload.so")
CASES = (13 * 2 + 6 * 3) * 13 * 2  # kinds by sigaction and raw, some of them in three ways more; faults; before and after
# What the kernel has is ours where the library was loaded late: the program's own reading meets that, and nothing else does.
READ = re.compile(r"^  (reads back|set|before:) .*\n", re.MULTILINE)


class Faults(unittest.TestCase):
    maxDiff = 4000

    def run_cases(self, *arguments, **environment):
        result = subprocess.run([harness.program("faulter"), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=100,
                                env={**os.environ, **environment}, check=True)
        return result.stdout.decode()

    def check_plain(self, output):
        """It is what it is to show, and each case ends by itself."""
        cases = re.split(r"^case ", output, flags=re.MULTILINE)[1:]
        self.assertEqual(len(cases), CASES)
        ends = re.compile(r" (ended code (1 status 0|2 status (7|11))|status (0|7|b)(, last signal .*)?)\n\Z")
        for case in cases:
            self.assertRegex(case, ends)
        deaths = {case.split()[3] for case in cases if re.search(r"code 2|status [7b]", case)}
        self.assertEqual(len(deaths), 13, deaths)
        self.assertGreater(output.count("  handler 2 "), 200)
        self.assertGreater(output.count("back from the nested one"), 20)
        self.assertGreater(output.count("1000 faults, 1000 calls"), 20)

    def check_same(self, one, other):
        if one == other:
            return
        for left, right in zip(re.split(r"^(?=case )", one, flags=re.MULTILINE), re.split(r"^(?=case )", other, flags=re.MULTILINE)):
            self.assertEqual(left, right)
        self.fail("one ends early")

    def check(self, *arguments):
        plain = self.run_cases(*arguments)
        self.check_plain(plain)
        with self.subTest("preloaded"):
            self.check_same(plain, self.run_cases(*arguments, LD_PRELOAD=LIBRARY, FAULTER_LIBRARY=LIBRARY))
        with self.subTest("loaded late"):
            self.check_same(READ.sub("", plain), READ.sub("", self.run_cases(*arguments, FAULTER_LIBRARY=LIBRARY)))

    def test_wait_status(self):
        self.check()

    def test_last_signal(self):
        """What a core would say: the last signal's siginfo, and where the thread was."""
        self.check("traced")


if __name__ == "__main__":
    harness.main()
