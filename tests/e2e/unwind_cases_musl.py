"""Threads of programs with the C library musl, which has no unwind information of its own."""

import os
import unittest

import chains
import harness


class Threads(chains.Case):
    def check_ends(self, variant, root):
        name = f"threadends_musl_{variant}"
        if not os.path.exists(harness.program(name)):
            raise unittest.SkipTest(f"{name} was not built: there is no musl-gcc")
        self.check(name, "thread_fn;leaf", modes=("auto", "fp"), root=root)
        self.check(name, "thread_fn;leaf", modes=["dwarf"], root=rf"(?:\[truncated\];)?{root}")

    def test_static(self):
        self.check_ends("static", r"(?:__clone;)?(?:start;|start_c11;)")

    def test_dynamic(self):
        self.check_ends("dynamic", r"(?:\[(?:libc\.so|ld-musl[^;]*)\];){1,2}")


if __name__ == "__main__":
    harness.main()
