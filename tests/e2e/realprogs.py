"""Real programs: xz, python3 and node, as Debian builds them."""

import os
import random
import re

import harness

NODE_SCRIPT = """
function innerLoop(n) { let x = 1; for (let i = 0; i < n; i++) { x = (x * 31 + i) % 65521; } return x; }
function middleStep(n) { return innerLoop(n) + innerLoop(n + 1); }
function outerWork(end) { let x = 0; while (Date.now() < end) { x += middleStep(20000); } return x; }
outerWork(Date.now() + SECONDS * 1000);
"""

PYTHON_SCRIPT = """
import time
def work(end):
    total = 0
    while time.monotonic() < end:
        total += sum(i * i % 7 for i in range(2000))
    return total
work(time.monotonic() + 2)
"""


class RealPrograms(harness.Case):
    def check(self, profile):
        """Stacks reach their root, code has names."""
        self.assertGreater(profile.total, 50)
        whole = profile.count(lambda stack: "[truncated]" not in stack and "[failed]" not in stack)
        self.assert_share(profile, whole, 0.97)
        unknown = profile.containing("[unknown]")
        self.assertLess(unknown / profile.total, 0.02, profile)

    def test_xz(self):
        generator = random.Random(1)
        words = [generator.randbytes(generator.randrange(2, 12)) for _ in range(3000)]
        path = self.write("data", b"".join(generator.choices(words, k=900000)))
        with open(os.devnull, "wb") as null:
            command = ["/usr/bin/xz", "-6", "-T2", "-k", "-c", path]
            profile, _, _ = self.launch(["-r", "250", "-d", "2.5"], command, limit=60, stdout=null)
        self.check(profile)
        self.assertGreater(profile.share(profile.matching("^lzma_|liblzma")), 0.5, profile)

    def test_python(self):
        script = self.write("work.py", PYTHON_SCRIPT.encode())
        profile, _, _ = self.launch(["-r", "250"], ["/usr/bin/python3", script])
        self.check(profile)
        self.assertGreater(profile.share(profile.matching("_PyEval_EvalFrameDefault|^\\[python3")), 0.9, profile)

    def test_node(self):
        script = self.write("work.js", NODE_SCRIPT.replace("SECONDS", "2.5").encode())
        try:
            profile, _, _ = self.launch(["-r", "250"], ["/usr/bin/node", "--perf-basic-prof", script], cwd=self.directory)
        finally:
            for name in os.listdir("/tmp"):
                if name.startswith("perf-") and self.is_ours(os.path.join("/tmp", name)):
                    os.unlink(os.path.join("/tmp", name))
        self.check(profile)
        # V8 may inline these into one another, so any of them will do; what it interprets carries V8's own names.
        named = profile.count(lambda stack: re.search(r"(innerLoop|middleStep|outerWork).*_\[j\]$", stack[-1]) is not None
                              and stack[1] != "[truncated]" and any("v8::internal::Execution::" in frame for frame in stack))
        self.assert_share(profile, named, 0.7)

    def is_ours(self, path):
        """Whether a perf map is of the node that this test ran: it names the script's directory."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return self.directory in file.read()
        except OSError:
            return False


if __name__ == "__main__":
    harness.main()
