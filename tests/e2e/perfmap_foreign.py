"""A perf map that belongs to another user is not believed. Making one needs root."""

import os
import unittest

import harness
from harness import Target


class ForeignMap(harness.Case):
    @unittest.skipIf(os.getuid() != 0, "giving a file to another user needs root")
    def test_foreign_owner(self):
        change = harness.set_uid(65534)
        with Target("jit", "absent", preexec_fn=change) as target:
            path = f"/tmp/perf-{target.pid}.map"
            try:
                with open(path, "w", encoding="ascii") as file:
                    for name in ("jit_outer", "jit_middle", "jit_inner"):
                        file.write(f"{target.facts[name]} {target.facts['size']} {name}\n")
                for owner, leaf in ((65533, "[anon]"), (65534, "jit_inner_[j]"), (0, "jit_inner_[j]")):
                    with self.subTest(owner=owner):
                        os.chown(path, owner, owner)
                        profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.4")
                        self.assert_share(profile, profile.leaf(leaf), 0.98)
            finally:
                os.unlink(path)


if __name__ == "__main__":
    harness.main()
