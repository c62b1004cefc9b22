"""Other tracers that come and go while we sample: they can do their work, and what needs no stop is sampled meanwhile."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import harness
from harness import Counters, Sampler, Target


def held(tids, *options, tries=100):
    """A tracer_holder that has the threads. It may come in the moment of one of our stops; then it comes again."""
    for _ in range(tries):
        holder = Target("tracer_holder", *tids, *options, wait=False, stderr=subprocess.PIPE)
        line = holder.process.stdout.readline()
        refusal = b"" if line.startswith(b"ready") else holder.process.stderr.read()
        holder.process.stderr.close()
        if line.startswith(b"ready"):
            return holder
        holder.kill()
        if b"not permitted" not in refusal:
            raise AssertionError(f"the holder cannot trace: {refusal!r}")
    raise AssertionError(f"{tries} attaches were refused")


def thread_named(pid, name):
    return next(tid for tid in harness.tasks(pid) if harness.status(pid, tid).get("Name") == name)


def stops_of(pid, tid):
    """How often a thread that never blocks by itself was stopped."""
    return int(harness.status(pid, tid)["voluntary_ctxt_switches"])


def wait_stopped_by(pid, sampler_pid):
    """Waits until a stop of the sampler's is seen: for targets that also block by themselves."""
    def is_stopped():
        tracers = {harness.status(pid, tid).get("TracerPid") for tid in harness.tasks(pid)}
        return bool(tracers & set(map(str, harness.tasks(sampler_pid))))
    harness.wait_until(is_stopped, f"process {pid} is sampled")


class Holders(harness.Case):
    def setUp(self):
        super().setUp()
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def sampler(self, pid, *options):
        return self.stack.enter_context(Sampler(*options, "-o", self.path("profile"), "--stats", self.path("stats"), "-p", pid))

    def end(self, sampler):
        sampler.signal(signal.SIGINT)
        result = sampler.end()
        self.assert_ok(result)
        return harness.read_profile(self.path("profile")), harness.read_stats(self.path("stats")), result

    def wait_left_alone(self, pid, tid):
        """For a time in which it would be stopped 150 times and more nothing stops the thread."""
        def is_left_alone():
            before = stops_of(pid, tid)
            time.sleep(0.3)
            return stops_of(pid, tid) == before
        harness.wait_until(is_left_alone, f"thread {tid} is left alone")

    def test_we_stay_out_of_all_threads(self):
        """Who traces one thread can attach to the others; all are sampled again when it is gone."""
        for mode in ("cpu", "wall"):
            with self.subTest(mode=mode), Target("spinners", 2) as target:
                first, second = (thread_named(target.pid, name) for name in ("spin-0", "spin-1"))
                sampler = self.sampler(target.pid, "-r", "500", "-m", mode)
                harness.wait_sampled(target.pid)
                with held([first]) as holder:
                    self.wait_left_alone(target.pid, second)
                    for _ in range(20):
                        with Target("tracer_holder", second):  # refused, it would not say "ready"
                            self.assertEqual(harness.status(target.pid, first)["TracerPid"], str(holder.pid))
                for tid in (first, second):
                    before = stops_of(target.pid, tid)
                    harness.wait_until(lambda tid=tid, before=before: stops_of(target.pid, tid) > before + 3,
                                       "it is sampled again")
                profile, stats, result = self.end(sampler)
                self.assertGreater(stats["samples_failed"]["traced"], 0)
                self.assertEqual(profile.count(lambda stack: stack[1:] == ("[failed]",)), sum(stats["samples_failed"].values()))
                self.assertIn(f"{target.pid} was traced by PID {holder.pid} (tracer_holder)", result.err)
                harness.assert_healthy(target.pid, "RS")

    def test_sleeping_threads_are_read_all_the_same(self):
        """In wall mode who sleeps needs no stop; who stands still for the other tracer neither. Who runs has no stack."""
        for options in ([], ["stop"]):
            with self.subTest(options=options), Target("sleepers") as target:
                tids = harness.tasks(target.pid)
                sampler = self.sampler(target.pid, "-r", "100", "-m", "wall")
                harness.wait_sampled(target.pid)
                with held(tids, *options) as holder:
                    # Its own threads are all that runs: none is let go, and none makes a step.
                    time.sleep(1)  # the time to be sampled
                    for tid in tids:
                        self.assertEqual(harness.status(target.pid, tid)["TracerPid"], str(holder.pid))
                        if options:
                            self.assertEqual(harness.state(target.pid, tid), "t")
                    profile, stats, _ = self.end(sampler)
                traced = stats["samples_failed"].get("traced", 0)
                self.assertLess(traced, 0.15 * stats["samples"], stats)  # main is one of eleven threads
                if options:
                    self.assertGreater(profile.of_thread("sleepers").containing("busy_spin"), 0.5 * stats["ticks"], profile)
                else:
                    self.assertGreater(traced, 0.1 * stats["ticks"])
                self.assertGreater(profile.matching("^block_"), 0.6 * 10 * stats["ticks"], profile)
                harness.assert_healthy(target.pid, "RS")

    def test_target_killed_in_its_hands(self):
        """A target that the other tracer has not reaped yet is a zombie to us; with that it is gone."""
        with Target("spinners", 2) as target:
            sampler = self.sampler(target.pid, "-r", "500")
            harness.wait_sampled(target.pid)
            with held(harness.tasks(target.pid), "stop"):
                target.process.kill()
                harness.wait_until(lambda: {harness.state(target.pid, tid) for tid in harness.tasks(target.pid)} == {"Z"},
                                   "all threads are dead")
            target.process.wait(harness.LIMIT)
            self.assert_ok(sampler.end())


class Tools(harness.Case):
    """The tools that people use, on a target with eight threads at work, between our stops. Without the tool: nothing to see."""

    def sampled(self, tool):
        path = self.path("counters")
        with Target("counters", path) as target:
            with Sampler("-r", "99", "-m", "wall", "-o", self.path("profile"), "--stats", self.path("stats"), "-p",
                         target.pid) as sampler:
                wait_stopped_by(target.pid, sampler.pid)
                for _ in range(50):
                    if tool(target.pid):
                        break
                else:
                    self.fail("each of 50 attaches was refused")
                Counters(path).assert_alive()
                wait_stopped_by(target.pid, sampler.pid)
                sampler.signal(signal.SIGINT)
                self.assert_ok(sampler.end())
            harness.assert_healthy(target.pid)
            Counters(path).assert_alive()
            self.assertGreater(harness.read_profile(self.path("profile")).containing("count"), 0)

    def test_strace(self):
        if shutil.which("strace") is None:
            return
        trace = self.path("trace")

        def strace(pid):
            command = ["strace", "-f", "-o", trace, "-p", str(pid)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as process:
                line = process.stderr.readline().decode()
                is_whole = "with 9 threads" in line  # of a thread that refused it says nothing
                if is_whole:
                    harness.wait_until(lambda: len(self.tracing_threads(trace)) == 8, "strace sees all threads sleep")
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=harness.LIMIT)
            self.assertRegex(line, " attached|Operation not permitted")
            return is_whole
        self.sampled(strace)

    def tracing_threads(self, trace):
        with open(trace, encoding="ascii", errors="replace") as file:
            return {line.split()[0] for line in file if "nanosleep(" in line}

    def test_gdb(self):
        if shutil.which("gdb") is None:
            return

        def gdb(pid):
            done = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "info threads"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=harness.LIMIT, check=False)
            if "not permitted" in done.stdout + done.stderr:
                return False
            self.assertEqual(done.stdout.count("LWP "), 9 + done.stdout.count("[New LWP"), done)
            return True
        self.sampled(gdb)


if __name__ == "__main__":
    harness.main()
