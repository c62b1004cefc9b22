"""A kernel thread is refused by name. A container has none in sight: then this cannot run."""

import os
import unittest

import harness


def kernel_thread():
    facts = harness.status(2)
    return 2 if facts.get("Name") == "kthreadd" and "VmSize" not in facts else None


class KernelThread(harness.Case):
    @unittest.skipIf(kernel_thread() is None, "process 2 is not a kernel thread here (a container?)")
    def test_kernel_thread(self):
        result = harness.run("-d", "5", "-o", self.path("profile"), "-p", 2)
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, "kernel thread", "2")
        self.assertLess(result.seconds, 4)
        self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")


if __name__ == "__main__":
    harness.main()
