"""For how long threads did what (--states) by the kernel's accounts, and the bounds of what sampling costs (--max-stops,
--overhead). To be run alone on the machine."""

import os
import signal
import time

import harness
from harness import Sampler, Target

CPUS = sorted(os.sched_getaffinity(0))
BPF_KINDS = ("off",) if "WITHOUT_BPF" in os.environ else ("auto", "off")


def on_cpus(count):
    """For preexec_fn: may use so many CPUs only."""
    return lambda: os.sched_setaffinity(0, CPUS[:count])


class Accounts(harness.Case):
    THREADS = 10

    def test_more_threads_than_cpus(self):
        """Of threads that always want a CPU: running is their CPU time, running and runnable is all there was; the summary says so."""
        for bpf in BPF_KINDS:
            with self.subTest(bpf=bpf), Target("spinners", self.THREADS, preexec_fn=on_cpus(2)) as target:
                harness.wait_until(lambda: len(harness.tasks(target.pid)) == self.THREADS + 1, "its threads")
                stolen = -harness.stolen_ns()
                profile, stats, result = self.attach(target.pid, "-m", "wall", "-d", "5", "--states", "--value", "ns", "-t", "spin-*", "--bpf", bpf)
                stolen += harness.stolen_ns()
                running, runnable = profile.leaf("[running]"), profile.leaf("[runnable]")
                self.assertEqual(running + runnable, profile.total, profile)
                self.assertAlmostEqual(profile.total, self.THREADS * stats["wall_ns"], delta=0.01 * self.THREADS * stats["wall_ns"] + self.THREADS * 2e7)
                self.assertAlmostEqual(running, stats["cpu_ns_target"], delta=0.01 * stats["cpu_ns_target"] + 2e7)
                # In neither account: what the host took, and the time of our stops, in which a thread does not wait.
                nobodys = stolen + stats["held_ns"]["sum"]
                self.assertAlmostEqual(runnable, stats["wait_ns_target"], delta=0.01 * runnable + self.THREADS * 3e7 + nobodys)
                self.assertIn(f"on CPUs: {target.pid} (spinners) ran ", result.err)
                self.assertEqual([(row["pid"], row["name"]) for row in stats["processes"]], [(target.pid, "spinners")])


class Bounds(harness.Case):
    def test_max_stops(self):
        """Two of twenty at a tick: they count for all, and each has had its turn."""
        for mode in ("cpu", "wall"):
            with self.subTest(mode=mode), Target("spinners", 20) as target:
                harness.wait_until(lambda: len(harness.tasks(target.pid)) == 21, "its threads")
                profile, stats, result = self.attach(target.pid, "-m", mode, "-r", "200", "-d", "3", "-t", "spin-*", "--max-stops", "2")
                self.assertGreater(stats["left_out"], 0)
                self.assertIn("--max-stops 2", result.err)
                self.assertEqual(len(profile.threads()), 20, profile)
                if mode == "wall":
                    expected = 20 * stats["ticks"]
                    self.assertAlmostEqual(profile.total, expected, delta=40 + 0.02 * expected)
                    for count in profile.threads().values():
                        self.assertAlmostEqual(count, stats["ticks"], delta=60 + 0.02 * stats["ticks"])
                    self.assertGreaterEqual(stats["threads_eligible"]["mean"], 2)  # who waits for a CPU since its last sample needs no other
                else:
                    expected = stats["cpu_ns_target"] / 1e9 * 200 * stats["ticks"] / (stats["ticks"] + stats["ticks_missed"])
                    self.assertAlmostEqual(profile.total, expected, delta=0.1 * expected)
                self.assertEqual(stats["threads_live"]["most"], 21)
                harness.assert_healthy(target.pid)

    def test_overhead(self):
        """Thousands of ticks a second would be dear: most are left out, and counted as such."""
        with Target("spinners", 2) as target:
            profile, stats, result = self.attach(target.pid, "-r", "5000", "-d", "3", "--overhead", "2%", "--value", "ns")
            self.assertGreater(stats["ticks_skipped"], stats["ticks"])
            self.assertLessEqual(stats["overhead_percent"], 2.2)
            self.assertGreater(stats["overhead_percent"], 0.5)
            self.assertIn("(--overhead 2.00)", result.err)
            self.assertAlmostEqual(stats["ticks"] + stats["ticks_skipped"] + stats["ticks_missed"], 5000 * stats["wall_ns"] / 1e9, delta=200)
            self.assertAlmostEqual(profile.total, stats["cpu_ns_target"], delta=0.001 * stats["cpu_ns_target"])

    def test_no_need(self):
        with Target("waiters") as target:
            _, stats, _ = self.attach(target.pid, "-r", "50", "-d", "1", "--overhead", "50")
            self.assertEqual(stats["ticks_skipped"], 0)
            self.assertGreater(stats["overhead_percent"], 0)


class Gap(harness.Case):
    def test_sampler_that_was_stopped(self):
        """A second of two and a half: its ticks are missed, in a gap that is told, and nobody's time."""
        with Target("spinners", 1) as target:
            arguments = ["-m", "wall", "-r", "100", "-d", "2.5", "-t", "spin-*", "--value", "ns", "-o", self.path("profile"), "--stats", self.path("stats"), "-p", target.pid]
            with Sampler(*arguments) as sampler:
                harness.wait_sampled(target.pid)
                time.sleep(0.5)  # the time in which it samples
                os.kill(sampler.pid, signal.SIGSTOP)
                time.sleep(1)  # the gap
                os.kill(sampler.pid, signal.SIGCONT)
                result = sampler.end()
            self.assert_ok(result)
            stats = harness.read_stats(self.path("stats"))
            self.assertAlmostEqual(stats["ticks"] + stats["ticks_missed"], 100 * stats["wall_ns"] / 1e9, delta=2)
            self.assertAlmostEqual(stats["ticks_in_gaps"], 100, delta=12)
            self.assertIn("s without a tick", result.err)
            self.assertIn(f"{stats['ticks_missed']} missed", result.err)
            total = harness.read_profile(self.path("profile")).total
            self.assertAlmostEqual(total, stats["wall_ns"] - stats["ticks_in_gaps"] * 1e7, delta=1e8)
            harness.assert_healthy(target.pid)


if __name__ == "__main__":
    harness.main()
