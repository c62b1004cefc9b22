"""Hard cases of unwinding: other stacks (coroutines, signals), ends of threads, vfork, code made at run time."""

import re

import chains
import harness
from chains import BUILDS, GUESSING_OF, MODES_OF
from harness import Target


class Coroutines(chains.Case):
    STACK = "co_outer;co_middle;co_leaf"

    def test_last_word_before_a_hole(self):
        for build in BUILDS:
            self.check(f"costacks_{build} edge", f"start_on_stack;{self.STACK}", root="", modes=MODES_OF[build])

    def test_back_to_the_main_stack(self):
        """What lies on the other stack is found, or the sample says that it is not whole."""
        for build in BUILDS:
            self.check(f"costacks_{build} back", f"main;leave_stack;run_on_stack;{self.STACK}", cut=[f"run_on_stack;{self.STACK}"],
                       modes=MODES_OF[build], seen=False)

    def assert_whole(self, profile, expression, cut):
        """All but the first samples of a run, for which more of the stack had to be copied; these say that they are not whole."""
        exact = profile.count(lambda stack: re.fullmatch(expression, chains.text(stack)))
        short = profile.count(lambda stack: re.fullmatch(cut, chains.text(stack)) and not re.fullmatch(expression, chains.text(stack)))
        self.assertEqual(exact + short, profile.total, [len(stack) for stack in profile.stacks])
        self.assertLessEqual(short, 3 * self.runs + profile.total // 20, [len(stack) for stack in profile.stacks])

    def test_growing(self):
        whole = r"start_on_stack;co_grow;(co_deep;)*(grow_leaf;)?"
        for build in BUILDS:
            with Target(f"costacks_{build}", "grow") as target:
                for mode in MODES_OF[build]:
                    with self.subTest(build=build, mode=mode):
                        profile = self.sample(target, "--unwind", mode, rate=200, at_least=40)
                        self.assert_whole(profile, whole, r"\[truncated\];(co_deep;)+(grow_leaf;)?")

    def test_neighbours_are_no_callers(self):
        """The root is __start_context, which has no name of its own in a stripped library, or nothing."""
        stack = rf"?__start_context|\[libc\.so\.6\];{self.STACK}"
        for build in BUILDS:
            self.check(f"costacks_{build} context", stack, root=r"(?:\[truncated\];)?", modes=MODES_OF[build])

    def test_deep_recursion(self):
        cut = r"\[truncated\];(recurse;)+recurse_leaf;"
        with Target("recurse", 5000) as target:
            for mode in chains.MODES:
                with self.subTest(mode=mode):
                    profile = self.sample(target, "--unwind", mode, "--max-depth", "6000", rate=100, at_least=20)
                    self.assert_whole(profile, chains.START + r"main;(recurse;){5000}recurse_leaf;", cut)
            profile = self.sample(target, rate=100, at_least=20)
            self.assert_whole(profile, r"\[truncated\];(recurse;){4095}recurse_leaf;", cut)
            self.assertGreaterEqual(self.stats["samples_truncated"], self.stats["samples"])


class Signals(chains.Case):
    """The kernel calls a handler from the interrupted instruction; between them lies what the handler returns to."""

    TRAPS = ("trap_first", "trap_after_push", "trap_last", "trap_call;trap_first")
    RETURN = r"?__restore_rt|\[libc\.so\.6\]"
    HANDLER = f"{RETURN};handler;handler_spin"
    NESTED = f"trap_first;{RETURN};handler;nest;trap_again;{RETURN};second_handler;handler_spin"
    MAIN = "main;run;deep_3;deep_2;deep_1"
    THREAD = "thread_fn;run;deep_3;deep_2;deep_1"
    THREAD_START = r"(?:(?:__?clone3?|start_thread|\[libc\.so\.6\]);){1,2}"

    def test_same_stack(self):
        for build in BUILDS:
            for trap in self.TRAPS:
                self.check(f"altstacks_{build} none {trap.split(';')[0]}", f"{self.MAIN};{trap};{self.HANDLER}",
                           modes=MODES_OF[build])
            self.check(f"altstacks_{build} none nested", f"{self.MAIN};{self.NESTED}", modes=MODES_OF[build])

    def test_same_stack_in_a_thread(self):
        for build in BUILDS:
            self.check(f"altstacks_{build} thread trap_first", f"{self.THREAD};trap_first;{self.HANDLER}", root=self.THREAD_START,
                       modes=MODES_OF[build])

    def check_other_stack(self, command, start, interrupted, **expected):
        """On a stack of its own: from the first samples on, where the other one lies is known."""
        if interrupted == "nested":
            self.check(command, f"{start};{self.NESTED}", first=[self.NESTED], **expected)
        else:
            innermost = interrupted.split(";")[-1]
            self.check(command, f"{start};{interrupted};{self.HANDLER}", first=[f"{innermost};{self.HANDLER}"], **expected)

    def test_inside_the_main_stack(self):
        """The handler's frames lie above those that it interrupted."""
        for build in BUILDS:
            self.check_other_stack(f"altstacks_{build} own trap_first", self.MAIN, "trap_first", modes=MODES_OF[build])
            self.check_other_stack(f"altstacks_{build} own nested", self.MAIN, "nested", modes=["auto"])

    def test_below_the_main_stack(self):
        for build in BUILDS:
            for trap in self.TRAPS:
                self.check_other_stack(f"altstacks_{build} low {trap.split(';')[0]}", self.MAIN, trap, modes=["auto"])
            self.check_other_stack(f"altstacks_{build} low nested", self.MAIN, "nested", modes=MODES_OF[build])

    def test_below_a_threads_stack(self):
        for build in BUILDS:
            self.check_other_stack(f"altstacks_{build} below trap_first", self.THREAD, "trap_first", root=self.THREAD_START,
                                   modes=MODES_OF[build])

    def test_above_a_threads_stack(self):
        for build in BUILDS:
            self.check_other_stack(f"altstacks_{build} above trap_last", self.THREAD, "trap_last", root=self.THREAD_START,
                                   modes=MODES_OF[build])
            self.check_other_stack(f"altstacks_{build} above nested", self.THREAD, "nested", root=self.THREAD_START, modes=["auto"])

    def test_return_without_cfi(self):
        """What a handler returns to is known by its instructions; it is never named after the function before it."""
        for kind in ("eax", "rax"):
            chain = rf"main;outer;interrupted;trap_first;?restorer_{kind}|\[restorer_\w+\];handler;handler_spin"
            cut = rf"?restorer_{kind}|\[restorer_\w+\];handler;handler_spin"
            for build in BUILDS:
                self.check(f"restorer_{build} {kind}", chain, modes=GUESSING_OF[build])
                self.check(f"restorer_{build} {kind}", chain, modes=["dwarf"], cut=[cut], seen=False)

    def test_return_with_ordinary_cfi(self):
        """Unwind information that says of it that it was called is not believed."""
        chain = r"main;outer;interrupted;trap_first;?restorer_cfi|\[restorer_\w+\];handler;handler_spin"
        for build in BUILDS:
            self.check(f"restorer_{build} cfi", chain, modes=MODES_OF[build])


class Threads(chains.Case):
    def test_ends(self):
        root = r"(?:__clone3?;|\[libc\.so\.6\];)?(?:start_thread;|\[libc\.so\.6\];)"
        for name in ("threadends", "threadends_static"):
            self.check(name, "thread_fn;leaf", root=root)


class Vfork(chains.Case):
    """The child runs on its parent's stack."""

    CALLER = "main;vfork_outer;do_vfork"

    def test_running(self):
        for build in BUILDS:
            with Target(f"vforker_{build}", "spin") as target:
                for mode in chains.MODES:
                    with self.subTest(build=build, mode=mode):
                        profile = self.sample(target, "--unwind", mode, pid=int(target.facts["pid"]))
                        self.assert_chains(profile, f"{self.CALLER};child_spin")

    def test_sleeping(self):
        for build in BUILDS:
            with Target(f"vforker_{build}", "sleep") as target:
                child = int(target.facts["pid"])
                harness.wait_until(lambda child=child: harness.state(child) == "S", "the child sleeps")
                for mode in chains.MODES:
                    with self.subTest(build=build, mode=mode):
                        profile, stats, _ = self.attach(child, "-r", "200", "-d", "0.2", "-m", "wall", "--unwind", mode)
                        asleep = r"child_sleep;pause|__libc_pause|\[libc\.so\.6\]"
                        # The first samples are read without a stop; with a frame pointer they say that they are cut.
                        cut = [asleep] if build == "fp" else []
                        self.assert_chains(profile, f"{self.CALLER};{asleep}", cut=cut)
                        self.assertLessEqual(stats["samples_truncated"], 0.3 * profile.total)

    def test_parent_waits(self):
        """It is in an uninterruptible sleep, which no stop ends: its stack is read."""
        for build in BUILDS:
            with Target(f"vforker_{build}", "sleep") as target:
                harness.wait_until(lambda pid=target.pid: harness.state(pid) == "D", "the parent waits")
                profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "0.3", "-m", "wall")
                vfork = r"?__vfork|vfork|\[libc\.so\.6\]"
                # With frame pointers do_vfork's caller needs rbp, which nothing tells.
                chains_of = {"fp": {"cut": [f"do_vfork;{vfork}"], "seen": False}, "nofp": {}}
                self.assert_chains(profile, f"{self.CALLER};{vfork}", **chains_of[build])
                self.assertEqual((stats["unstopped"], stats["samples_failed"]), (profile.total, {}))


class GeneratedCode(chains.Case):
    """Anonymous memory has no names and no unwind information."""

    CODE = r"\[anon\]"
    BELOW = f"{CODE};c_callback;leaf_spin"

    def test_with_frame_pointer(self):
        for build in BUILDS:
            self.check(f"jitframes_{build} framed", f"main;outer;run_jit;{self.BELOW}", modes=GUESSING_OF[build])
            self.check(f"jitframes_{build} framed", modes=["dwarf"], cut=[self.BELOW])

    def test_without_frame_pointer(self):
        """rbp leads past the caller if the caller has a frame pointer, else nowhere."""
        self.check("jitframes_fp frameless", f"main;outer;?run_jit;{self.BELOW}", modes=GUESSING_OF["fp"])
        self.check("jitframes_nofp frameless", f"main;outer;run_jit;{self.BELOW}", modes=GUESSING_OF["nofp"], cut=[self.BELOW], seen=False)


if __name__ == "__main__":
    harness.main()
