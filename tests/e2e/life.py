"""Life and death of targets: ends that meet the sampler, ids that are used again, frozen ones. Each keeps its own fate."""

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import Counters, Sampler, Target, program

IS_ROOT = os.getuid() == 0


class Ends(harness.Case):
    def assert_ended(self, result):
        """The sampler of a target that has ended: a profile, or one line that says so."""
        self.assertIn(result.status, (0, 1), result)
        if result.status == 1:
            self.assertEqual(result.err.count("\n"), 1, result)
            self.assertRegex(result.err, "no such process|zombie|has ended")

    def test_exit_group_races(self):
        """One thread ends all while others are being stopped."""
        for number in range(10):
            mode = ("cpu", "wall")[number % 2]
            with self.subTest(number=number), Target("dying", "group", 60, 8, 43) as target:
                with Sampler("-q", "-r", "5000", "-m", mode, "-o", self.path("profile"), "-p", target.pid) as sampler:
                    status, _ = target.end()
                    result = sampler.end()
                self.assertEqual(status, 43)
                self.assert_ended(result)

    def test_killed_while_stopped(self):
        """SIGKILL meets threads that are stopped by the sampler: at 5 kHz with eight threads there is always one."""
        for number in range(15):
            with self.subTest(number=number), Target("spinners", 8) as target:
                with Sampler("-q", "-r", "5000", "-m", "wall", "-o", self.path("profile"), "-p", target.pid) as sampler:
                    harness.wait_sampled(target.pid, 20)
                    target.process.kill()
                    self.assertEqual(target.process.wait(harness.LIMIT), -signal.SIGKILL)
                    self.assert_ok(sampler.end())

    def test_core_dump(self):
        """A fault that nothing handles: the parent sees the same signal, and a core where one was to be had."""
        def world():
            os.chdir(self.directory)
            resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2)

        for mode in ("none", "cpu", "wall"):
            with self.subTest(mode=mode), Target("dying", "fault", 300, 4, preexec_fn=world) as target, contextlib.ExitStack() as stack:
                if mode != "none":
                    sampler = stack.enter_context(
                        Sampler("-q", "-r", "2000", "-m", mode, "-o", self.path("profile"), "-p", target.pid))
                info = os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)
                if mode == "none":
                    expected = (info.si_code, info.si_status)
                    self.assertEqual(expected[1], signal.SIGSEGV)
                    self.assertIn(expected[0], (os.CLD_KILLED, os.CLD_DUMPED))
                else:
                    self.assertEqual((info.si_code, info.si_status), expected)
                    self.assert_ok(sampler.end())
                    self.assertGreater(harness.read_profile(self.path("profile")).containing("endless_spin"), 0)

    def test_launched_core_dump(self):
        def world():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        profile, _, _ = self.launch(["-r", "1000"], [program("dying"), "fault", "200", "4"], expect=128 + signal.SIGSEGV, preexec_fn=world)
        self.assertGreater(profile.containing("endless_spin"), 0)


class Leaders(harness.Case):
    def test_leader_ends_under_sampling(self):
        """Attached while main runs; main ends alone, the others go on to the program's own end."""
        with Target("dying", "leader", 500, 3, 43) as target:
            with Sampler("-q", "-r", "500", "-o", self.path("profile"), "--stats", self.path("stats"), "-p", target.pid) as sampler:
                harness.wait_until(lambda: harness.state(target.pid) == "Z", "main has ended")
                before = harness.cpu_ns(target.pid)
                harness.wait_until(lambda: harness.cpu_ns(target.pid) > before + 100_000_000, "the others go on")
                self.assertIsNone(sampler.process.poll(), "the end of main was taken for the process's")
                status, _ = target.end()
                self.assert_ok(sampler.end())
        self.assertEqual(status, 43)
        profile, stats = harness.read_profile(self.path("profile")), harness.read_stats(self.path("stats"))
        self.assertGreater(profile.containing("endless_spin"), 20)
        self.assertGreater(profile.containing("main"), 5)
        self.assertGreater(stats["wall_ns"], 1e9)

    def test_descriptors_of_a_churn(self):
        """2,000 threads a second: what is open belongs to the few that live."""
        with Target("threads", "churn") as target:
            with Sampler("-q", "-r", "500", "-d", "2", "-o", self.path("profile"), "--stats", self.path("stats"),
                         "-p", target.pid) as sampler:
                counts = []
                while sampler.process.poll() is None:
                    with contextlib.suppress(OSError):
                        counts.append(len(os.listdir(f"/proc/{sampler.pid}/fd")))
                    time.sleep(0.02)
                self.assert_ok(sampler.end())
            harness.assert_healthy(target.pid)
            harness.wait_until(lambda: len(harness.tasks(target.pid)) <= 4, "short threads are gone")
        stats = harness.read_stats(self.path("stats"))
        self.assertGreater(stats["threads_vanished"], 100)
        self.assertLess(max(counts), 100)
        self.assertGreater(harness.read_profile(self.path("profile")).leaf("steady_spin"), 200)


@unittest.skipIf(not IS_ROOT, "choosing a process id needs root")
class Reused(harness.Case):
    """The target's id belongs to another program from one moment to the next: that one is nobody's target."""

    def check(self, *options):
        with Target("pidreuse", program("chain_fp"), "60", "--", program("chain_nofp"), "60", stdin=subprocess.PIPE) as parent:
            pid = int(parent.facts["target"])
            harness.wait_until(lambda: harness.status(pid).get("Name") == "chain_fp", "the target runs")
            with Sampler("-o", self.path("profile"), "--threads", *options, "-p", pid) as sampler:
                harness.wait_sampled(pid)
                parent.process.stdin.write(b"\n")
                self.assertEqual(harness.read_line(parent.process.stdout), f"reused pid={pid}")
                harness.wait_until(lambda: harness.status(pid).get("Name") == "chain_nofp", "the stranger runs")
                result = sampler.end()
            self.assert_ok(result)
            stranger = harness.cpu_ns(pid)
            harness.assert_healthy(pid, "R")
            harness.wait_until(lambda: harness.cpu_ns(pid) > stranger, "the stranger goes on")
            parent.process.stdin.write(b"\n")
            self.assertEqual(parent.end()[0], 0)
        profile = harness.read_profile(self.path("profile"))
        self.assertGreater(profile.total, 0)
        self.assertEqual(set(profile.threads()), {f"chain_fp ({pid})"}, profile)

    def test_between_two_ticks(self):
        self.check("-r", "20")

    def test_at_a_high_rate(self):
        for mode in ("cpu", "wall"):
            with self.subTest(mode=mode):
                self.check("-r", "5000", "-m", mode)

    def test_with_children(self):
        self.check("-r", "20", "--children")


class Freezer:
    """A cgroup with a freezer, of version 2 or 1, for one process."""

    @staticmethod
    def kinds():
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            for line in mounts:
                _, path, kind, options = line.split()[:4]
                if kind == "cgroup2":
                    yield "v2", path
                elif kind == "cgroup" and "freezer" in options.split(","):
                    yield "v1", path

    def __init__(self, version, root, pid):
        self.version = version
        self.path = tempfile.mkdtemp(prefix="sampler-test-", dir=root)
        self.root = root
        self.pid = pid
        try:
            if version == "v2":
                self.write("cgroup.freeze", "0")  # an old kernel has none
            self.write("cgroup.procs", str(pid))
        except OSError:
            os.rmdir(self.path)
            raise

    def write(self, name, text):
        with open(os.path.join(self.path, name), "r+", encoding="ascii") as file:
            file.write(text)

    def is_frozen(self):
        """What the kernel says of it, not what was asked for."""
        name = "cgroup.events" if self.version == "v2" else "freezer.state"
        with open(os.path.join(self.path, name), encoding="ascii") as file:
            text = file.read()
        return "frozen 1" in text or text == "FROZEN\n"

    def is_asked(self):
        name = "cgroup.freeze" if self.version == "v2" else "freezer.self_freezing"
        with open(os.path.join(self.path, name), encoding="ascii") as file:
            return file.read() == "1\n"

    def freeze(self):
        self.write(*(("cgroup.freeze", "1") if self.version == "v2" else ("freezer.state", "FROZEN")))

    def thaw(self):
        self.write(*(("cgroup.freeze", "0") if self.version == "v2" else ("freezer.state", "THAWED")))

    def end(self):
        self.thaw()
        harness.wait_until(lambda: self.pid == 0 or not harness.tasks(self.pid), "the cgroup's process is gone")
        os.rmdir(self.path)


class Frozen(harness.Case):
    """A cgroup freezer's target: sampled as far as that goes, never thawed, never left in another state, and no reason to hang."""

    def setUp(self):
        super().setUp()
        self.freezers = list(Freezer.kinds())

    @contextlib.contextmanager
    def counters(self, version, root):
        with Target("counters", self.path("counters")) as target:
            try:
                freezer = Freezer(version, root, target.pid)
            except OSError as error:
                self.skipTest(f"no cgroup can be made in {root}: {error}")
            try:
                yield target, freezer
            finally:
                freezer.thaw()
                target.kill()
                freezer.end()

    def each(self, body):
        """With a running `counters` in a cgroup of each kind that there is."""
        if not self.freezers:
            self.skipTest("no freezer of control groups")
        for version, root in self.freezers:
            with self.subTest(version=version), self.counters(version, root) as (target, freezer):
                body(target, freezer)

    def sample_frozen(self, target, freezer):
        freezer.freeze()
        harness.wait_until(freezer.is_frozen, "it is frozen")
        for mode in ("wall", "cpu"):
            before = Counters(self.path("counters")).read()
            profile, stats, result = self.attach(target.pid, "-m", mode, "-r", "200", "-d", "0.5")
            self.assertLess(result.seconds, 5)
            self.assertTrue(freezer.is_asked())
            harness.wait_until(freezer.is_frozen, "it is frozen as before", 5)
            self.assertEqual(Counters(self.path("counters")).read(), before, "it ran while it was frozen")
            self.assertEqual({harness.status(target.pid, tid)["TracerPid"] for tid in harness.tasks(target.pid)}, {"0"})
            if mode == "cpu":
                self.assertEqual(profile.total, 0, profile)
                self.assertEqual(stats["stops"], 0)
            else:
                self.assertGreaterEqual(profile.total, 9 * 0.9 * stats["ticks"], profile)
        freezer.thaw()
        Counters(self.path("counters")).assert_alive()
        harness.assert_healthy(target.pid)

    def test_frozen_target(self):
        self.each(self.sample_frozen)

    def freeze_and_thaw(self, target, freezer):
        """Frozen and thawed 50 times under sampling, in both modes."""
        for mode in ("cpu", "wall"):
            with Sampler("-q", "-r", "1000", "-m", mode, "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                for _ in range(25):
                    freezer.freeze()
                    harness.wait_until(freezer.is_frozen, "it freezes under sampling")
                    freezer.thaw()
                    time.sleep(0.005)  # some time to run
                sampler.signal(signal.SIGINT)
                self.assert_ok(sampler.end())
            harness.assert_healthy(target.pid)
            Counters(self.path("counters")).assert_alive()
            self.assertGreater(harness.read_profile(self.path("profile")).containing("count"), 10)

    def test_storm(self):
        self.each(self.freeze_and_thaw)

    def end_in_the_frost(self, target, freezer):
        """Frozen under sampling and never thawed: the end comes in time, nothing is held after it, and it thaws well."""
        for mode in ("cpu", "wall"):
            with Sampler("-q", "-r", "2000", "-d", "1", "-m", mode, "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                freezer.freeze()
                result = sampler.end()
            self.assert_ok(result)
            self.assertLess(result.seconds, 6)
            harness.wait_until(freezer.is_frozen, "it is frozen still", 5)
            self.assertEqual({harness.status(target.pid, tid)["TracerPid"] for tid in harness.tasks(target.pid)}, {"0"})
            before = Counters(self.path("counters")).read()
            freezer.thaw()
            Counters(self.path("counters")).assert_alive()
            harness.assert_healthy(target.pid)
            self.assertNotEqual(Counters(self.path("counters")).read(), before)

    def test_end_in_the_frost(self):
        self.each(self.end_in_the_frost)


if __name__ == "__main__":
    harness.main()
