"""Stacks: deep chains in every build and unwind mode, recursion, signal handlers, depth limits, stripped programs."""

import collections

import harness
from harness import Target

LEVELS = tuple(f"level_{n}" for n in range(1, 21))
CHAIN = ("main", *LEVELS, "leaf_spin")
BUILDS = ("chain_fp", "chain_nofp", "chain_nopie", "chain_static", "chain_static_pie")


class Chains(harness.Case):
    def assert_exact(self, profile, name):
        """Every sample is comm;<start-up code>;main;level_1;…;leaf_spin, but for the two or three before main got there."""
        self.assertEqual(set(profile.threads()), {harness.comm(name)})
        self.assert_share(profile, profile.ending(*CHAIN), 0.98)
        whole = profile.count(lambda stack: stack[1:][-len(CHAIN):] == CHAIN and "[truncated]" not in stack
                              and stack[1:].count("main") == 1 and len(stack) <= len(CHAIN) + 6)
        self.assert_share(profile, whole, 0.98)

    def chain(self, name, mode):
        with Target(name) as target:
            profile, stats, _ = self.attach(target.pid, "-r", "250", "-d", "0.6", "--unwind", mode)
            harness.assert_healthy(target.pid, "R")
        self.assert_exact(profile, name)
        self.assert_caught(profile.total, stats)
        self.assertEqual(sum(stats["samples_failed"].values()), 0, stats)
        return profile

    def test_auto(self):
        for name in BUILDS:
            with self.subTest(build=name):
                self.chain(name, "auto")

    def test_dwarf(self):
        for name in BUILDS:
            with self.subTest(build=name):
                self.chain(name, "dwarf")

    def test_fp(self):
        for name in BUILDS:
            with self.subTest(build=name):
                self.chain(name, "fp")

    def test_fp_and_dwarf_agree(self):
        fp = self.chain("chain_fp", "fp").from_frame("main")
        dwarf = self.chain("chain_nofp", "dwarf").from_frame("main")
        self.assertEqual(set(fp), {CHAIN})
        self.assertEqual(set(fp), set(dwarf))

    def test_frames_by(self):
        """The statistics say which way the frames were found."""
        with Target("chain_fp") as target:
            _, stats, _ = self.attach(target.pid, "-r", "250", "-d", "0.5", "--unwind", "fp")
            self.assertGreater(stats["frames_by"]["fp"], stats["frames"] * 0.5)
            _, stats, _ = self.attach(target.pid, "-r", "250", "-d", "0.5", "--unwind", "dwarf")
            self.assertEqual(stats["frames_by"]["fp"], 0)

    def test_stripped(self):
        """Code without a name is the file's name, in every frame, and never a neighbour's."""
        with Target("chain_stripped") as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.6")
        whole = 0
        for stack, count in profile.stacks.items():
            own = collections.Counter(stack[1:])["[chain_stripped]"]
            self.assertNotIn("main", stack)
            self.assertFalse({"leaf_spin", "_init", "_fini", *LEVELS} & set(stack))
            if stack[-len(CHAIN):] == ("[chain_stripped]",) * len(CHAIN) and own in (len(CHAIN), len(CHAIN) + 1):
                whole += count
        self.assert_share(profile, whole, 0.98)


class Depth(harness.Case):
    def test_recursion(self):
        for mode in ("auto", "fp", "dwarf"):
            for depth in (1, 200, 1000):
                with self.subTest(mode=mode, depth=depth), Target("recurse", depth) as target:
                    profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "0.5", "--unwind", mode)
                    expected = ("main", *("recurse",) * depth, "recurse_leaf")
                    exact = profile.count(lambda stack, expected=expected: stack[-len(expected):] == expected
                                          and stack[1:].count("recurse") == len(expected) - 2)
                    self.assert_caught(profile.total, stats)
                    self.assertGreaterEqual(exact, profile.total - 2, f"{exact} of {profile.total} exact")

    def test_beyond_the_default_limit(self):
        """4096 innermost frames are kept."""
        with Target("recurse", 6000) as target:
            # The first copies are too small, until one is unwound: at a low rate a busy machine has the time for it.
            profile, stats, _ = self.attach(target.pid, "-r", "25", "-d", "1.5")
            harness.assert_healthy(target.pid, "R")
        expected = ("recurse", "[truncated]", *("recurse",) * 4095, "recurse_leaf")
        self.assert_caught(profile.total, stats)
        self.assertGreaterEqual(profile.stacks.get(expected, 0), profile.total - 2, [len(stack) for stack in profile.stacks])
        for stack in profile.stacks:
            self.assertEqual(stack[:3] + (stack[-1],), ("recurse", "[truncated]", "recurse", "recurse_leaf"))
        self.assertEqual(stats["samples_truncated"], profile.total)

    def test_max_depth(self):
        with Target("chain_nofp") as target:
            for depth in (1, 2, 10):
                with self.subTest(depth=depth):
                    profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "0.4", "--max-depth", depth)
                    expected = ("chain_nofp", "[truncated]", *CHAIN[-depth:])
                    self.assertEqual(set(profile.stacks), {expected})
                    self.assertEqual(stats["samples_truncated"], profile.total)

    def test_max_depth_that_is_enough(self):
        with Target("chain_nofp") as target:
            profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "0.4", "--max-depth", "100")
        self.assertEqual(stats["samples_truncated"], 0)
        self.assertEqual(set(profile.from_frame("main")), {CHAIN})


class SignalHandlers(harness.Case):
    def in_order(self, profile, frames):
        def test(stack):
            rest = iter(stack[1:])
            return "[truncated]" not in stack and stack[-1] == frames[-1] and all(frame in rest for frame in frames)
        return profile.count(test)

    def handler(self, how, mode, frames):
        with Target("sighandler", how) as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 20_000_000, "it is past its beginning")
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5", "--unwind", mode)
        self.assert_share(profile, self.in_order(profile, frames), 0.98)

    def test_raised(self):
        for mode in ("auto", "fp", "dwarf"):
            with self.subTest(mode=mode):
                self.handler("raise", mode, ("main", "raise_signal", "handler", "handler_spin"))

    def test_anywhere_in_a_loop(self):
        for mode in ("auto", "fp", "dwarf"):
            with self.subTest(mode=mode):
                self.handler("async", mode, ("main", "interrupted_work", "handler", "handler_spin"))

    def test_stack_of_its_own(self):
        """What lies on the other stack is copied, too."""
        for mode in ("auto", "fp", "dwarf"):
            with self.subTest(mode=mode):
                self.handler("altstack", mode, ("main", "interrupted_work", "handler", "handler_spin"))


if __name__ == "__main__":
    harness.main()
