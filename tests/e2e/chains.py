"""Exact stacks: every sample of a run is judged by the chains of frames that its program can have.

A chain is written root first, "main;outer;spin". Each frame is a regular expression; with "?" in front the frame may be
missing, with "*" it may occur any number of times. A sample may be at any function of a chain (the program calls and returns), so
its stack is the beginning of one. What start-up code lies above `main` is free.
"""

import collections
import re

import harness
from harness import Target

START = r"(?:(?:_start|__libc_start\w*|\[libc\.so\.6\]);){0,3}"
MODES = ("auto", "fp", "dwarf")
# Of programs without frame pointers: where only some code has them, the chain of frame pointers leaves the other out.
MODES_OF = {"fp": MODES, "nofp": ("auto", "dwarf")}
GUESSING_OF = {"fp": ("auto", "fp"), "nofp": ("auto",)}  # the modes that go on where there is no unwind information
BUILDS = ("fp", "nofp")


def one_frame(frame):
    """The expression of a frame; each frame of a stack that is judged has a semicolon behind it."""
    if frame[0] in "?*":
        return f"(?:(?:{frame[1:]});){frame[0]}"
    return f"(?:{frame});"


def whole(frames, root=START):
    """The expression of a stack that is all of the chain."""
    return re.compile(root + "".join(map(one_frame, frames)))


def beginnings(frames, root=START):
    """The expressions of the stacks that end at one of the chain's frames."""
    return [whole((*frames[:end], frames[end].lstrip("?")), root) for end in range(len(frames))]


def text(stack):
    return "".join(f"{frame};" for frame in stack[1:])


def unseen(profile, chains, root):
    """The chains that no sample has whole."""
    stacks = [text(stack) for stack in profile.stacks]
    return [chain for chain in chains if not any(whole(chain.split(";"), root).fullmatch(stack) for stack in stacks)]


class Case(harness.Case):
    def sample(self, target, *options, pid=None, rate=1000, at_least=60):
        """A profile of a program that is past its beginning, with enough samples however slow the machine is."""
        pid = pid or target.pid
        first = harness.cpu_ns(pid)
        harness.wait_until(lambda: harness.cpu_ns(pid) > first + 20_000_000, "it is past its beginning")
        seconds = 0.05 + 1.2 * at_least / rate
        merged = harness.Profile("")
        merged.stacks = collections.Counter()
        for self.runs in range(1, 20):
            profile, self.stats, _ = self.attach(pid, "-r", rate, "-d", seconds, *options)
            # On a machine at its limit a thread may not get to the stop that the last ticks asked for; that is told as a failure.
            late = self.stats["samples_failed"].get("timeout", 0)
            failed = {stack: count for stack, count in profile.stacks.items() if stack[1:] == ("[failed]",)}
            self.assertEqual(sum(failed.values()), late, self.stats["samples_failed"])
            merged.stacks.update({stack: count for stack, count in profile.stacks.items() if stack not in failed})
            merged.total += profile.total - late
            if merged.total >= at_least:
                break
        self.assertGreaterEqual(merged.total, at_least)
        return merged

    def assert_chains(self, profile, *chains, rare=(), cut=(), root=START, seen=True):
        """Every sample is one of the chains or, only with its root cut off, one of `cut`; all but rare chains were seen whole."""
        self.assert_right(profile, *chains, *rare, cut=cut, root=root)
        if seen:
            self.assertEqual(unseen(profile, chains, root), [], f"not seen in\n{profile}")

    def assert_right(self, profile, *chains, cut, root):
        allowed = [one for chain in chains for one in beginnings(chain.split(";"), root)]
        allowed += [whole(chain.split(";"), r"\[truncated\];") for chain in cut]
        wrong = {stack: count for stack, count in profile.stacks.items() if not any(one.fullmatch(text(stack)) for one in allowed)}
        if wrong:
            lines = "".join(f"\n{count:6d} {text(stack)[:1000]}" for stack, count in wrong.items())
            self.fail(f"{sum(wrong.values())} of {profile.total} samples are wrong:{lines[:5000]}")

    def check(self, command, *chains, modes=MODES, at_least=60, rare=(), cut=(), first=(), root=START, seen=True):
        """The same in several unwind modes, each a subtest. The command is a program and its arguments, with blanks.

        `first`: like `cut`, but of the first samples of a run only, from which the sampler learns what to copy.
        """
        with Target(*command.split()) as target:
            for mode in modes:
                with self.subTest(command=command, mode=mode):
                    self.check_mode(target, mode, chains, at_least, 
                                    {"rare": rare, "cut": cut, "first": first, "root": root, "seen": seen})

    def sample_without_first(self, target, mode, at_least, first):
        profile = self.sample(target, "--unwind", mode, at_least=at_least)
        short = [whole(chain.split(";"), r"\[truncated\];") for chain in first]
        found = {stack: count for stack, count in profile.stacks.items() if any(one.fullmatch(text(stack)) for one in short)}
        self.assertLessEqual(sum(found.values()), 3 * self.runs, found)
        for stack, count in found.items():
            del profile.stacks[stack]
            profile.total -= count
        return profile

    def check_mode(self, target, mode, chains, at_least, expected):
        first = expected.pop("first")
        profile = self.sample_without_first(target, mode, at_least, first)
        # Where a busy machine lets samples fall is not even: a chain that is not there yet gets more of them.
        for _ in range(5):
            self.assert_chains(profile, *chains, **{**expected, "seen": False})
            if not expected["seen"] or not unseen(profile, chains, expected["root"]):
                return
            more = self.sample_without_first(target, mode, at_least, first)
            profile.stacks.update(more.stacks)
            profile.total += more.total
        self.assert_chains(profile, *chains, **expected)
