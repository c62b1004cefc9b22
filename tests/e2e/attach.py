"""Attaching to running processes: what is sampled, every way to end it, and the target afterwards."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import harness
from harness import Counters, Sampler, Target, program, run

CHAIN = ("main", *(f"level_{n}" for n in range(1, 21)), "leaf_spin")


class Profiles(harness.Case):
    def test_running_program(self):
        with Target("chain_fp") as target:
            profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "1")
            harness.assert_healthy(target.pid)
        self.assert_share(profile, profile.ending(*CHAIN), 0.98)
        self.assertEqual(set(profile.threads()), {"chain_fp"})
        self.assert_caught(stats["samples"], stats)

    def test_default_rate(self):
        with Target("chain_fp") as target:
            _, stats, _ = self.attach(target.pid, "-d", "1")
        self.assertEqual(stats["rate_hz"], 99)

    def test_several_processes(self):
        with Target("chain_fp") as one, Target("chain_nofp") as two, Target("chain_static") as three:
            profile, stats, _ = self.attach(f"{one.pid},{two.pid}", "-p", three.pid, "-r", "200", "-d", "1.5")
            for target in (one, two, three):
                harness.assert_healthy(target.pid)
        self.assertEqual(set(profile.threads()), {"chain_fp", "chain_nofp", "chain_static"})
        self.assert_share(profile, profile.ending(*CHAIN), 0.98)
        self.assertEqual(stats["threads_seen"], 3)

    def test_one_of_several_ends(self):
        with Target("exiter", "exit", "0", "0.5") as one, Target("chain_fp") as two:
            profile, _, result = self.attach(f"{one.pid},{two.pid}", "-r", "200", "-d", "1.5")
        self.assertGreaterEqual(result.seconds, 1.4)
        self.assertGreater(profile.containing("exiter_spin"), 0)
        self.assertGreater(profile.containing("leaf_spin"), profile.containing("exiter_spin"))

    def test_same_process_twice(self):
        with Target("chain_fp") as target:
            profile, stats, _ = self.attach(f"{target.pid},{target.pid}", "-r", "100", "-d", "1")
        self.assertLessEqual(profile.total, stats["ticks"])

    def test_threads_by_glob(self):
        with Target("spinners", 4) as target:
            profile, _, _ = self.attach(target.pid, "-t", "spin-[01]", "-r", "200", "-d", "1")
            harness.assert_healthy(target.pid)
        self.assertEqual(set(profile.threads()), {"spin-0", "spin-1"})

    def test_thread_by_id(self):
        with Target("spinners", 3) as target:
            names = {harness.status(target.pid, tid)["Name"]: tid for tid in harness.tasks(target.pid)}
            profile, _, _ = self.attach(target.pid, "-t", names["spin-2"], "-t", "spin-0", "-r", "200", "-d", "1")
        self.assertEqual(set(profile.threads()), {"spin-0", "spin-2"})

    def test_threads_option(self):
        with Target("spinners", 2) as target:
            profile, _, _ = self.attach(target.pid, "--threads", "-r", "200", "-d", "0.5")
            spinning = [tid for tid in harness.tasks(target.pid) if tid != target.pid]
            expected = {f"{harness.status(target.pid, tid)['Name']} ({tid})" for tid in spinning}
        self.assertEqual(set(profile.threads()), expected)

    def test_unrelated_child_and_ignored_sigchld(self):
        """The sampler inherits a child of its shell's; that child's end is not the end of the run, nor an error."""
        for ignore in (False, True):
            with self.subTest(sigchld_ignored=ignore), Target("chain_fp") as target:
                profile, stats = self.path("profile"), self.path("stats")
                script = f"sleep 0.4 & exec '{harness.SAMPLER}' -q -r 100 -d 1.5 -o '{profile}' --stats '{stats}' -p {target.pid}"
                start = time.monotonic()
                ignoring = (lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)) if ignore else None
                done = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True,
                                      timeout=harness.LIMIT, check=False, preexec_fn=ignoring)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertGreaterEqual(time.monotonic() - start, 1.45)
                self.assert_caught(harness.read_profile(profile).total, harness.read_stats(stats))


class Ends(harness.Case):
    def assert_running(self, target):
        harness.assert_healthy(target.pid, "R")
        before = harness.cpu_ns(target.pid)
        harness.wait_until(lambda: harness.cpu_ns(target.pid) > before + 20000000, "the target goes on")

    def test_target_ends_first(self):
        with Target("exiter", "exit", "0", "1") as target:
            profile = self.path("profile")
            with Sampler("-r", "200", "-o", profile, "-p", target.pid) as sampler:
                ended = []

                def watch():
                    ended.append((os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT), time.monotonic()))

                watcher = threading.Thread(target=watch)
                watcher.start()
                result = sampler.end()
                now = time.monotonic()
                watcher.join(harness.LIMIT)
        self.assert_ok(result)
        self.assertLess(now - ended[0][1], 1.0, "the end of the target was not noticed at once")
        self.assertEqual(ended[0][0].si_status, 0)
        found = harness.read_profile(profile)
        self.assert_share(found, found.containing("exiter_spin"), 0.95)

    def test_target_crashes(self):
        with Target("exiter", "signal", int(signal.SIGSEGV), "0.6") as target:
            profile, _, _ = self.attach(target.pid, "-r", "200")
            self.assertEqual(target.end()[0], -signal.SIGSEGV)
        self.assert_share(profile, profile.containing("exiter_spin"), 0.95)

    def test_target_is_killed(self):
        with Target("chain_fp") as target, Sampler("-r", "500", "-o", self.path("profile"), "-p", target.pid) as sampler:
            harness.wait_sampled(target.pid)
            target.process.kill()
            self.assert_ok(sampler.end())
        self.assertGreater(harness.read_profile(self.path("profile")).ending(*CHAIN), 0)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number), Target("chain_fp") as target:
                with Sampler("-r", "500", "-o", self.path("profile"), "-p", target.pid) as sampler:
                    harness.wait_sampled(target.pid)
                    sampler.signal(number)
                    result = sampler.end()
                self.assert_ok(result)
                self.assert_running(target)
                found = harness.read_profile(self.path("profile"))
                self.assert_share(found, found.ending(*CHAIN), 0.95)

    def test_killed_sampler(self):
        with Target("chain_fp") as target, Sampler("-r", "5000", "-o", self.path("profile"), "-p", target.pid) as sampler:
            harness.wait_sampled(target.pid, 50)
            sampler.process.kill()
            sampler.process.wait(harness.LIMIT)
            self.assert_running(target)
            self.assertFalse(os.path.exists(self.path("profile")), "half a profile under the real name")

    def test_reader_goes_away(self):
        """Nobody reads: the target is released, nothing is said about a signal, and the status tells it."""
        with Target("chain_fp") as target:
            reader, writer = os.pipe()
            with Sampler("-q", "-r", "200", "-d", "0.5", "-p", target.pid, stdout=writer) as sampler:
                os.close(writer)
                os.close(reader)
                result = sampler.end()
            self.assertIn(result.status, (1, -signal.SIGPIPE, 128 + signal.SIGPIPE), result)
            self.assert_running(target)

    def test_reader_that_does_not_read(self):
        """A full pipe holds up the sampler, never the target; a second Ctrl-C gives up."""
        with Target("spinners", 2) as target:
            reader, writer = os.pipe()
            with contextlib.suppress(BlockingIOError):  # leave no room
                os.set_blocking(writer, False)
                while True:
                    os.write(writer, b"x" * 4096)
            os.set_blocking(writer, True)
            with Sampler("-q", "-r", "200", "-d", "0.5", "-p", target.pid, stdout=writer) as sampler:
                os.close(writer)
                time.sleep(2)  # now it wants to write; were it not so far yet, the signals would end its sampling
                self.assertIsNone(sampler.process.poll(), "it has written into a full pipe")
                harness.assert_healthy(target.pid)
                for _ in range(3):
                    sampler.signal(signal.SIGINT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        sampler.process.wait(1)
                        break
                result = sampler.end(5)
            os.close(reader)
            self.assertNotEqual(result.status, 0)
            harness.assert_healthy(target.pid)

    def test_own_descriptor_count_is_flat(self):
        with Target("threads", "churn") as target, Sampler("-q", "-r", "500", "-d", "2", "-p", target.pid) as sampler:
            harness.wait_sampled(int(target.facts["pid"]))
            counts = []
            while sampler.process.poll() is None:
                with contextlib.suppress(OSError):
                    counts.append(len(os.listdir(f"/proc/{sampler.pid}/fd")))
                time.sleep(0.1)
            self.assert_ok(sampler.end())
        self.assertLess(max(counts), 100, counts)


class Cycles(harness.Case):
    def test_attach_and_detach(self):
        """Twelve times at 500 Hz, ended in turn by -d, SIGINT, SIGTERM and SIGKILL; no thread is left stopped or traced."""
        path = self.path("counters")
        with Target("counters", path) as target:
            counters = Counters(path)
            counters.assert_alive()
            for cycle in range(int(os.environ.get("CYCLES", "12"))):
                ending = (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[cycle % 4]
                duration = ["-d", "0.3"] if ending is None else []
                with self.subTest(cycle=cycle, ending=ending):
                    with Sampler("-q", "-r", "500", *duration, "-m", "wall" if cycle % 12 >= 8 else "cpu", "-o", self.path("profile"),
                                 "-p", target.pid) as sampler:
                        if ending is not None:
                            time.sleep(0.1 + 0.037 * (cycle % 12))  # anywhere in its work
                            sampler.signal(ending)
                        result = sampler.end()
                    if ending == signal.SIGKILL:
                        self.assertEqual(result.status, -signal.SIGKILL, result)
                    else:
                        self.assert_ok(result)
                        self.assertGreater(harness.read_profile(self.path("profile")).containing("count"), 0)
                    harness.assert_healthy(target.pid, "RSD")
                    self.assertEqual(len(harness.tasks(target.pid)), 9)
                    counters.assert_alive()

    def test_targets_that_end_at_once(self):
        """Attaching in the moment of exec and exit: each target reaches its own end."""
        for delay_us in range(0, 5000, 125):
            script = f"exec '{program('exiter')}' exit 0 0.0{delay_us % 10}1"
            with subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL) as target:
                time.sleep(delay_us / 1e6)
                result = run("-q", "-p", target.pid, "-d", "0.03", "-r", "1000", "-o", self.path("profile"))
                self.assertIn(result.status, (0, 1), result)
                self.assertEqual(target.wait(harness.LIMIT), 0, "the target did not reach its own end")


if __name__ == "__main__":
    harness.main()
