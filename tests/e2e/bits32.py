"""A 32-bit program: right names, or a clear refusal; never wrong names, a hang or a harmed target."""

import os
import unittest

import harness
from harness import Target, program


def reason():
    """Why a 32-bit program cannot run here, or None."""
    if not os.path.exists(program("spin32")):
        return "as and ld cannot make 32-bit programs"
    try:
        with Target("spin32", wait=False) as target:
            harness.read_line(target.process.stdout, 5)
    except (OSError, AssertionError) as error:
        return f"the kernel does not run 32-bit programs ({error})"
    return None


@unittest.skipIf(reason(), reason())
class Bits32(harness.Case):
    def check(self, result):
        if result.status == 0:
            found = harness.read_profile(self.path("profile"))
            for stack in found.stacks:
                if stack[0] == "spin32":
                    self.assertIn(stack[1:], {("_start", "spin32"), ("[truncated]", "spin32"), ("[failed]",)}, found)
        else:
            self.assertIn("32-bit", result.err)

    def test_attach(self):
        with Target("spin32") as target:
            result = harness.run("-r", "200", "-d", "0.5", "-o", self.path("profile"), "-p", target.pid)
            self.assertIn(result.status, (0, 1), result)
            self.check(result)
            harness.assert_healthy(target.pid, "R")

    def test_exec_from_64_bit(self):
        """What was sampled before the exec stays right."""
        script = f"'{program('exiter')}' exit 0 0.5; exec '{program('spin32')}'"
        with harness.Sampler("-r", "200", "-d", "1.2", "-o", self.path("profile"), "--", "sh", "-c", script) as sampler:
            pid = None
            try:
                harness.wait_until(lambda: os.path.exists(self.path("profile")), "the profile is there")
                found = harness.read_profile(self.path("profile"))
                self.assertGreater(found.containing("exiter_spin"), 0, found)
                with open(f"/proc/{sampler.pid}/task/{sampler.pid}/children", encoding="ascii") as children:
                    pid = int(children.read().split()[0])
                self.assertEqual(harness.status(pid)["Name"], "spin32")
                harness.assert_healthy(pid, "R")
            finally:
                if pid is not None:
                    os.kill(pid, 15)
            self.assertEqual(sampler.end().status, 128 + 15)


if __name__ == "__main__":
    harness.main()
