"""Threads that come and go, a main thread that has ended, names."""

import os
import time

import harness
from harness import Sampler, Target, program


class Churn(harness.Case):
    """2,000 short threads a second beside a steady one."""

    def test_steady_share(self):
        profile, stats, result = self.launch(["-r", "500"], [program("threads"), "churn", "3"])
        facts = harness.last_json(result.out)
        self.assertGreater(facts["started"], 1000)
        expected = facts["steady_cpu_ns"] / 1e9 * 500
        steady = profile.threads()["steady"]
        self.assertGreaterEqual(steady, expected * 0.9)
        self.assertLessEqual(steady, expected * 1.05 + 5)
        part = profile.of_thread("steady")
        self.assert_share(part, part.leaf("steady_spin"), 0.97)
        self.assertGreater(stats["threads_seen"], 3)

    def test_attach_again_and_again(self):
        with Target("threads", "churn") as target:
            for _ in range(6):
                profile, _, _ = self.attach(target.pid, "-r", "500", "-d", "0.5")
                self.assertGreater(profile.leaf("steady_spin"), 50)
            harness.assert_healthy(target.pid)
            harness.wait_until(lambda: len(harness.tasks(target.pid)) <= 4, "short threads are gone")

    def test_wall_mode(self):
        """Every live thread is stopped at every tick, while threads are born and die."""
        with Target("threads", "churn") as target:
            profile, _, _ = self.attach(target.pid, "-m", "wall", "-r", "500", "-d", "1")
            harness.assert_healthy(target.pid)
        self.assertGreater(profile.leaf("steady_spin"), 100)
        self.assertGreater(profile.threads()["churner"], 100)


class MainExited(harness.Case):
    def test_attach(self):
        with Target("threads", "main_exited") as target:
            harness.wait_until(lambda: harness.state(target.pid) == "Z", "main has ended")
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.6")
            harness.assert_healthy(target.pid)
        self.assert_share(profile, profile.leaf("worker_spin"), 0.98)
        self.assertEqual(set(profile.threads()), {"worker"})
        self.assertEqual(profile.containing("[truncated]"), 0, profile)

    def test_launch(self):
        profile, _, result = self.launch(["-r", "250"], [program("threads"), "main_exited", "1"])
        self.assertGreaterEqual(result.seconds, 0.95)
        self.assert_share(profile, profile.leaf("worker_spin"), 0.95)

    def test_end(self):
        """The target's end is noticed though its leader had ended before."""
        with Target("threads", "main_exited", "1") as target:
            with Sampler("-r", "250", "-o", self.path("profile"), "-p", target.pid) as sampler:
                status, _ = target.end()
                now = time.monotonic()
                result = sampler.end()
            self.assert_ok(result)
            self.assertLess(time.monotonic() - now, 1.5)
        self.assertEqual(status, 0)
        self.assertGreater(harness.read_profile(self.path("profile")).leaf("worker_spin"), 50)


class Names(harness.Case):
    def test_name_changes(self):
        """Names with separators and control bytes are cleaned; a new name is taken up."""
        script = "exec 2>/dev/null; printf 'a;b\\tc 12' >/proc/self/task/$$/comm; while :; do :; done"
        with Target("/bin/sh", "-c", script.replace("/proc/self/task/$$", "/proc/$$"), wait=False) as target:
            harness.wait_until(lambda: "a;b" in comm_of(target.pid), "the shell has its new name")
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.4")
        self.assertEqual(set(profile.threads()), {"a:b c 12"})

    def test_more_than_the_rate_allows(self):
        """Looking at 1500 threads takes longer than a period: ticks are missed and told, the end comes in time, a CPU is left."""
        with Target("idle", 1500) as target:
            for mode, rate in (("cpu", 5000), ("wall", 1000)):
                with self.subTest(mode=mode):
                    _, stats, result = self.attach(target.pid, "-m", mode, "-r", rate, "-d", "1")
                    self.assertLess(result.seconds, 5)
                    self.assertGreater(stats["ticks_missed"], 0)
                    self.assertAlmostEqual(stats["ticks"] + stats["ticks_missed"], rate * stats["wall_ns"] / 1e9, delta=0.02 * rate)
            harness.assert_healthy(target.pid, "RS")


def comm_of(pid):
    with open(os.path.join("/proc", str(pid), "comm"), encoding="utf-8", errors="replace") as file:
        return file.read()


if __name__ == "__main__":
    harness.main()
