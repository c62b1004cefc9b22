"""Sampling from inside a launched program: `sampler --helper -- PROGRAM`."""

import os
import re
import signal
import subprocess
import sys

import chains
import harness
from harness import Sampler, Target, program


OWNED = 1 << signal.SIGSEGV - 1 | 1 << signal.SIGBUS - 1 | 1 << signal.SIGURG - 1


def owned(pid):
    """Of the signals that the helper owns, those for which the process has a handler."""
    return int(harness.status(pid)["SigCgt"], 16) & OWNED


def has_memory(pid):
    """Is the shared memory mapped?"""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return "memfd:sampler-helper" in maps.read()


def timers(pid):
    """POSIX timers of a process."""
    with open(f"/proc/{pid}/timers", encoding="ascii") as file:
        return sum(line.startswith("ID:") for line in file)


class Helper(harness.Case):
    def helped(self, options, *command, **more):
        """Launches it with the helper in it: (profile, stats, run)."""
        profile, stats, run = self.launch(["--helper", "-r", 499, *options], [program(command[0]), *map(str, command[1:])], **more)
        self.assertEqual(stats["stops"], 0)
        return profile, stats, run

    def assert_counts(self, stats, error=0.08):
        """As many samples as there was CPU time."""
        expected = stats["rate_hz"] * stats["cpu_ns_target"] / 1e9
        self.assertAlmostEqual(stats["samples"], expected, delta=error * expected + 5, msg=stats)


class Stacks(Helper, chains.Case):
    """The same stacks as from outside, walked in the target but for the first of each kind."""

    def drop_beginning(self, profile, function):
        """Whole stacks from before main has called it: few."""
        early = [stack for stack in profile.stacks if function not in stack and "[truncated]" not in stack and "[failed]" not in stack]
        count = sum(profile.stacks.pop(stack) for stack in early)
        profile.total -= count
        self.assertLessEqual(count, 5 + 0.02 * profile.total, early)

    # What ends the program is a signal handler.
    END = r"?__restore_rt|\[libc\.so\.6\];?stop_on_signal"

    def check_helped(self, command, *expected, options=(), walked=0.5, **more):
        profile, stats, _ = self.helped(options, *command.split())
        self.assert_counts(stats)
        self.drop_beginning(profile, expected[0].split(";")[1])
        self.assert_chains(profile, *expected, rare=[f"{chain};{self.END}" for chain in expected], **more)
        self.assertGreater(stats["helper"]["walked"], walked * stats["samples"], stats)
        self.assertEqual(stats["helper"]["lost"], 0)

    def test_without_frame_pointers(self):
        levels = ";".join(f"level_{n}" for n in range(1, 21))
        self.check_helped("chain_nofp 0.6", f"main;{levels};leaf_spin")
        self.check_helped("chain_nofp 0.6", f"main;{levels};leaf_spin", options=["-u", "dwarf"])

    def test_with_frame_pointers(self):
        levels = ";".join(f"level_{n}" for n in range(1, 21))
        self.check_helped("chain_fp 0.6", f"main;{levels};leaf_spin", options=["-u", "fp"])

    def test_walks_in_place(self):
        """What throws (with registers saved that no call preserves), and code that lasts while other code is unloaded all the time."""
        for load in ("throw", "dlopen"):
            _, stats, _ = self.helped(["-r", 999], "hardcases", self.path("slots"), load, 1.5)
            self.assertGreater(stats["helper"]["walked"], 0.4 * stats["samples"], (load, stats))

    def test_deeper_than_a_record(self):
        self.check_helped("recurse 300 0.6", "main;" + ";".join(["recurse"] * 300) + ";recurse_leaf")

    def test_deeper_than_was_asked_for(self):
        profile, stats, _ = self.helped(["--max-depth", "100"], "recurse", 300, 0.6)
        self.assert_counts(stats)
        self.assertEqual({len(stack) for stack in profile.stacks if "recurse_leaf" in stack}, {102}, profile)
        self.assertTrue(all(stack[1] == "[truncated]" for stack in profile.stacks if "recurse_leaf" in stack), profile)

    def test_generated_code(self):
        for build in ("fp", "nofp"):
            self.check_helped(f"jitframes_{build} framed 0.6", r"main;outer;run_jit;\[anon\];c_callback;leaf_spin")

    def test_handler_of_the_program(self):
        """Its walk goes through the kernel's frame, which is left to the sampler."""
        profile, stats, _ = self.helped([], "sighandler", "async", 0.6)
        self.assert_counts(stats)
        self.assertGreater(profile.total, 40)
        self.assertLess(stats["samples_truncated"], 0.05 * stats["samples"], profile)


class Counts(Helper):
    def test_short_threads(self):
        """2,000 threads a second that run for 0.2 ms, and one that runs all the time: each has its share."""
        stats_of = None
        profile, stats_of, run = self.launch(["--helper", "-r", 499], [program("threads"), "churn", "1.3"])
        truth = harness.last_json(run.out)
        self.assert_counts(stats_of)
        steady = profile.containing("steady_spin") / 499
        self.assertAlmostEqual(steady, truth["steady_cpu_ns"] / 1e9, delta=0.1 * truth["steady_cpu_ns"] / 1e9 + 0.05)
        # Less than a tick of the kernel each: what no signal came for is counted at their end.
        self.assertGreater(profile.containing("short_main"), 60, profile)

    def test_nanoseconds_are_the_cpu_time(self):
        profile, stats, _ = self.helped(["--value", "ns"], "demo", 0.6)
        self.assertAlmostEqual(profile.total, stats["cpu_ns_target"], delta=0.02 * stats["cpu_ns_target"])

    def test_one_timer_for_the_process(self):
        """It loses what several threads run at the same time; what it has is right."""
        profile, stats, _ = self.helped(["--helper-timer", "process"], "chain_nofp", 0.6)
        self.assertGreater(profile.containing("leaf_spin"), 0.9 * profile.total)
        self.assertGreater(stats["samples"], 0.5 * stats["rate_hz"] * stats["cpu_ns_target"] / 1e9)

    def test_loads_by_call(self):
        profile, stats, _ = self.helped(["--helper-loads", "call"], "chain_nofp", 0.6)
        self.assert_counts(stats)
        self.assertGreater(profile.leaf("leaf_spin"), 0.9 * profile.total)
        self.assertEqual(stats["helper"]["by_call"], stats["helper"]["samples"])

    def test_wall(self):
        """Every thread at every tick; who sleeps is asked when it falls asleep, and then left alone."""
        profile, stats, run = self.launch(["--helper", "-m", "wall", "-r", 99], [program("sleepers"), "1.5"])
        counts = [count for stack, count in profile.threads().items()]
        self.assertGreater(len(profile.stacks), 5, profile)
        self.assertGreater(sum(counts), 0.8 * 11 * stats["ticks"], profile)
        self.assertGreater(profile.containing("busy_spin"), 0.7 * stats["ticks"])
        self.assertGreater(stats["kept"], 0.5 * 10 * stats["ticks"], stats)


class World(Helper):
    """What the program sees of it: its handlers for three signals, and nothing else."""

    def show(self, *prefix, env=None):
        text = subprocess.run([*prefix, program("show_world"), "an argument"], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=harness.LIMIT, check=True, env=env).stdout.decode()
        caught = int(re.search(r"SigCgt:\t([0-9a-f]+)", text)[1], 16)
        return re.sub(r"(?m)^(SigCgt|fd [12]):.*$", "", text), caught

    def test_nothing_else_changes(self):
        for extra in ({}, {"LD_PRELOAD": "libc.so.6"}):
            env = {"PATH": "/usr/bin:/bin", "FIRST": "1", **extra, "LAST": "2"}
            plain, _ = self.show(program("plainly"), env=env)
            helped, caught = self.show(harness.SAMPLER, "--helper", "-q", "-o", self.path("profile"), "--", env=env)
            self.assertEqual(helped, plain)
            self.assertEqual(caught, OWNED)

    def test_exit_status(self):
        for arguments, status in ((["exit", "7"], 7), (["signal", "15"], 128 + 15)):
            _, _, run = self.launch(["--helper"], [program("exiter"), *arguments], expect=status)
            self.assertEqual(run.status, status)

    def test_its_own_signal(self):
        """The program has a handler for the signal that samples: it gets its own, each once, and none of ours."""
        code = ("import os, signal, time\ncount = 0\ndef note(number, frame):\n    global count\n    count += 1\n"
                "signal.signal(signal.SIGURG, note)\nend = time.time() + 1\nsent = 0\n"
                "while time.time() < end:\n    sum(range(2000))\n    before = count\n    os.kill(os.getpid(), signal.SIGURG)\n    sent += 1\n"
                "    while count == before: pass\nprint(sent, count)\n")
        _, stats, run = self.launch(["--helper", "-r", 499], [os.path.realpath(sys.executable), "-c", code])
        sent, count = map(int, run.out.split())
        self.assertEqual(sent, count)
        self.assertGreater(stats["helper"]["samples"], 100)


class Gifts(Helper):
    """What the program would get from the helper, without asking: nothing that it does not need."""

    def heaps(self, pid):
        """How many threads have a heap of malloc's of their own: what is reserved for it has no access yet."""
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            reserves = [line.split()[0].split("-") for line in maps if " ---p " in line]
        return sum(int(end, 16) - int(start, 16) > 32 << 20 for start, end in reserves)

    def test_threads_have_no_heap(self):
        with Target("spinners", 4, 20) as target:
            self.assertEqual(self.heaps(target.pid), 0)
        with Sampler("--helper", "-o", self.path("profile"), "--", program("spinners"), 4, 20) as sampler:
            pid = sampler.ready_pid()
            self.assertEqual(self.heaps(pid), 0)
            os.kill(pid, signal.SIGTERM)


class Exec(Helper):
    def test_wrapper(self):
        """The program that was launched becomes another one: the helper is put into that, too."""
        script = self.write("wrapper", b"#!/bin/sh\nexec \"$@\"\n", 0o755)
        profile, stats, _ = self.launch(["--helper", "-r", 499], [script, program("chain_nofp"), "2"])
        self.assertEqual((stats["helper"]["execs"], stats["helper"]["missing"]), (1, 0), stats)
        self.assertGreater(profile.leaf("leaf_spin"), 200, profile)

    def test_at_any_moment(self):
        """One exec counts once, whatever we were looking at when it came."""
        wait = "i=0; while [ $i -lt $0 ]; do i=$((i+1)); done; exec \"$@\""
        for turn in range(25):
            run = harness.run("--helper", "-r", 499, "-o", self.path("profile"), "--stats", self.path("stats"), "--",
                              "/bin/sh", "-c", wait, str(turn * 800), program("chain_nofp"), "0.03")
            self.assertIn(run.status, (0, 1), run)  # it may have been too short for a sample
            stats = harness.read_stats(self.path("stats"))
            self.assertLessEqual(stats["helper"]["execs"], 1, stats)

    def test_many(self):
        """The last program has it, however many there were before."""
        script = self.write("again", b"#!/bin/sh\n[ $1 = 0 ] && exec %s 1\nsleep 0.0$(($1 * 7 %% 30 + 10))\nexec $0 $(($1 - 1))\n"
                            % program("chain_nofp").encode(), 0o755)
        profile, stats, _ = self.launch(["--helper", "-r", 499], [script, "20"])
        self.assertLessEqual(stats["helper"]["execs"], 21, stats)
        self.assertEqual(stats["helper"]["missing"], 0, stats)
        self.assertGreater(profile.leaf("leaf_spin"), 100, profile)

    def test_into_what_cannot_have_it(self):
        run = harness.run("--helper", "-o", self.path("profile"), "--", "/bin/sh", "-c", f"exec {program('chain_static')} 1")
        self.assertEqual(run.status, 0, run)
        self.assertIn("static", run.err)


class Refused(Helper):
    """Where the helper cannot be, the program runs as ever, and the reason is told."""

    def refused(self, path, *words):
        run = harness.run("--helper", "-o", self.path("profile"), "--", path, "1")
        self.assertEqual(run.status, 0, run)
        for word in words:
            self.assertIn(word, run.err)
        self.assertEqual(harness.read_profile(self.path("profile")).total, 0)

    def test_static(self):
        self.refused(program("chain_static"), "static")

    def test_musl(self):
        if not os.path.exists(program("threadends_musl_dynamic")):
            self.skipTest("musl-gcc is not there")
        self.refused(program("threadends_musl_dynamic"), "musl")

    def test_what_does_not_go_together(self):
        for options in (["--children"], ["--save-snapshots", self.path("s")], ["--stop-log", self.path("s")]):
            run = harness.run("--helper", *options, "--", "true")
            self.assertEqual(run.status, 2, run)
            self.assert_one_line(run, options[0], "--helper")


class Confined(Helper):
    def test_filter(self):
        """It kills for every call that the program does not make itself: the helper makes none from then on."""
        for how in ("filter", "strict"):
            profile, stats, run = self.helped([], "confined", how, 1)
            self.assert_counts(stats)
            self.assertGreater(profile.containing("confined_spin"), 0.8 * profile.total, (how, run, stats))
            self.assertGreater(profile.total, 20, (how, run, stats))


class Hard(Helper):
    """Programs that do what could break a profiler inside them, or have it tell lies."""

    def hard(self, mode, *options, seconds=0.7, rate=999, more=()):
        profile, stats, run = self.launch(["--helper", "-r", rate, *options], [program("helped"), mode, str(seconds), *more])
        return profile, stats, harness.last_json(run.out)

    def test_forks_in_handlers(self):
        """Also where the handler has interrupted ours, which the child then goes back through."""
        _, _, result = self.hard("forks", seconds=1.2)
        self.assertGreater(result["children"], 100, result)
        self.assertEqual(result["killed"], 0, result)

    def test_bare_fork(self):
        """No hook tells of it: the child's timers are its own, and its time is not the parent's."""
        _, stats, result = self.hard("rawfork")
        self.assertEqual(result["timer"], 0)
        self.assert_counts(stats)

    def test_own_handler_after_exec(self):
        for mode in ("cpu", "wall"):
            _, _, run = self.launch(["--helper", "-m", mode, "-r", 499], ["/bin/sh", "-c", f"exec {program('helped')} urgent 0.6"])
            self.assertEqual(harness.last_json(run.out)["urgent"], 0, mode)

    def test_thread_that_waits_for_signals(self):
        for mode in ("cpu", "wall"):
            _, stats, result = self.hard("waiting", "-m", mode)
            self.assertEqual(result["waited"], 0, (mode, stats))

    def test_jumps_out_of_any_handler(self):
        profile, stats, result = self.hard("jumps")
        self.assertGreater(result["jumps"], 100, result)
        self.assert_counts(stats)
        self.assertEqual((stats["helper"]["lost"], stats["helper"]["resets"]), (0, 0), stats)

    def test_code_that_is_replaced(self):
        """Never a frame of the one library in a call through the other's caller; what cannot be told is marked."""
        libraries = [program(f"libhelped_{variant}.so") for variant in "ab"]
        profile, _, result = self.hard("unload", seconds=1.2, more=libraries)
        self.assertGreater(result["same"], result["turns"] / 2, result)
        for own, other in (("a", "b"), ("b", "a")):
            wrong = profile.count(lambda stack: f"helped_call_{own}" in stack and f"unload_{other}" in stack)
            self.assertEqual(wrong, 0, profile)
        self.assertGreater(profile.total, 200)

    def test_hostile_ring(self):
        """What it writes is not believed beyond what can be, and keeps nobody from ending in time."""
        with Sampler("--helper", "-d", "1", "-r", "99", "-o", self.path("profile"), "--stats", self.path("stats"), "--",
                     program("helped"), "flood", "2") as sampler:
            harness.wait_until(lambda: os.path.exists(self.path("profile")), "the profile is written", 20)
            sampler.end()  # the program writes on where the memory was: its own affair
        stats = harness.read_stats(self.path("stats"))
        self.assertLess(stats["wall_ns"], 3e9, stats)
        self.assertLess(stats["samples"], 50000, stats)
        self.assertGreater(stats["helper"]["resets"], 0, stats)

    def test_withdraws_in_wall_mode(self):
        with Target("helped", "silent", 30) as target:
            self.attach(target.pid, "--helper", "-m", "wall", "-d", "0.5")
            self.assertEqual(owned(target.pid), 0)
            self.assertFalse(has_memory(target.pid))

    def test_process_timer_and_exec(self):
        """Its signals end with the old program, and the new one does not die of them."""
        _, _, run = self.launch(["--helper", "--helper-timer", "process", "-r", 999],
                                ["/bin/sh", "-c", f"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exec {program('helped')} urgent 0.5"])
        self.assertEqual(harness.last_json(run.out)["urgent"], 0)


class End(Helper):
    def test_withdraws_before_the_program_ends(self):
        """Timers are deleted and signals given back; the memory is unmapped."""
        with Sampler("--helper", "-d", "0.5", "-o", self.path("profile"), "--", program("chain_nofp"), "20") as sampler:
            pid = sampler.ready_pid()
            harness.wait_until(lambda: os.path.exists(self.path("profile")), "the profile is written")
            self.assertEqual(timers(pid), 0)
            self.assertEqual(owned(pid), 0)
            self.assertFalse(has_memory(pid))
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(sampler.end().status, 128 + signal.SIGTERM)

    def test_attached_from_the_first_moment(self):
        """Also the thread that was made to load the helper has its timer at once."""
        with Target("chain_nofp", 30) as target:
            _, stats, _ = self.attach(target.pid, "--helper", "-r", 499, "-d", "0.7")
            self.assert_counts(stats, 0.05)

    def test_second_target_cannot_have_it(self):
        """Then the first one does not keep it."""
        with Target("chain_nofp", 30) as first, Target("chain_static", 30) as second:
            run = harness.run("--helper", "-o", self.path("profile"), "-p", f"{first.pid},{second.pid}")
            self.assertEqual(run.status, 1, run)
            harness.wait_until(lambda: owned(first.pid) == 0, "it has withdrawn", 5)
            self.assertFalse(has_memory(first.pid))

    def test_sampler_is_killed(self):
        """Nobody asks for the samples any more: the helper notices and goes."""
        with Sampler("--helper", "-o", self.path("profile"), "--", program("chain_nofp"), "60") as sampler:
            pid = sampler.ready_pid()
            try:
                first = harness.ticks()
                harness.wait_until(lambda: timers(pid) == 1 and harness.ticks() > first + 3, "it is being sampled")
                sampler.process.kill()
                sampler.process.wait(harness.LIMIT)
                harness.wait_until(lambda: timers(pid) == 0, "its timer is gone", 30)
                harness.wait_until(lambda: owned(pid) == 0, "it has given the signals back")
                harness.assert_healthy(pid)
            finally:
                os.kill(pid, signal.SIGKILL)

    def test_suspended(self):
        """Ctrl-Z for a moment, and the run goes on."""
        # A process group of its own, with a parent in the same session: else the kernel leaves SIGTSTP out.
        with Sampler("--helper", "-o", self.path("profile"), "-d", "2", "--", program("chain_nofp"), "3", process_group=0) as sampler:
            harness.read_line(sampler.process.stdout)
            first = harness.ticks()
            harness.wait_until(lambda: harness.ticks() > first + 10, "it is at work")
            sampler.signal(signal.SIGTSTP)
            harness.wait_until(lambda: harness.state(sampler.pid) == "T", "it is stopped")
            sampler.signal(signal.SIGCONT)
            run = sampler.end()
            self.assert_ok(run)
        self.assertGreater(harness.read_profile(self.path("profile")).total, 50)


if __name__ == "__main__":
    harness.main()
