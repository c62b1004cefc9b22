"""What threads were doing (--states), for how long by the kernel's accounts, and the bounds of what sampling costs (--max-stops,
--overhead). To be run alone on the machine."""

import os
import signal
import time

import harness
from harness import Sampler, Target, program

CPUS = sorted(os.sched_getaffinity(0))


def on_cpus(count):
    """For preexec_fn: may use so many CPUs only."""
    return lambda: os.sched_setaffinity(0, CPUS[:count])


def state(stack):
    return stack[-1]


class States(harness.Case):
    #: glibc's function or the system call itself, and what the kernel has for it
    CALLS = {"nanosleep": "nanosleep", "epoll_wait": "epoll_wait", "futex": "futex", "read": "read", "poll": "poll", "semop": "semtimedop", "accept": "accept",
             "sigwait": "rt_sigtimedwait", "flock": "flock", "pause": "pause"}

    def test_each_in_its_call(self):
        """Ten threads asleep and one at work: all of the same weight, and each in its state."""
        for bpf in ("auto", "off"):
            with self.subTest(bpf=bpf), Target("waiters") as target:
                profile, stats, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "2", "--states", "--bpf", bpf)
                threads = profile.threads()
                self.assertEqual(set(threads), {"waiters", *self.CALLS})
                self.assertLessEqual(max(threads.values()) - min(threads.values()), 2 + 0.02 * stats["ticks"], threads)
                for name, call in self.CALLS.items():
                    states = {state(stack) for stack in profile.of_thread(name).stacks}
                    self.assertEqual(states, {f"[{call}]"}, profile)
                self.assertLessEqual({state(stack) for stack in profile.of_thread("waiters").stacks}, {"[running]", "[runnable]"})
                self.assertGreater(profile.of_thread("waiters").leaf("[running]"), 0.3 * threads["waiters"], profile)  # as far as it got a CPU
                harness.assert_healthy(target.pid)

    def test_cpu_mode(self):
        """Who sleeps is not there; the one at work is, running."""
        with Target("waiters") as target:
            profile, _, _ = self.attach(target.pid, "-r", "200", "-d", "1", "--states")
            self.assertEqual(set(profile.threads()), {"waiters"}, profile)
            self.assertEqual({state(stack) for stack in profile.stacks}, {"[running]"})

    def test_stopped(self):
        with Target("waiters") as target:
            os.kill(target.pid, signal.SIGSTOP)
            harness.wait_until(lambda: {harness.state(target.pid, tid) for tid in harness.tasks(target.pid)} == {"T"}, "all have stopped")
            profile, _, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "0.5", "--states")
            self.assertEqual({state(stack) for stack in profile.stacks}, {"[stopped]"}, profile)
            os.kill(target.pid, signal.SIGCONT)
            harness.assert_healthy(target.pid)

    def test_report(self):
        """States are in a snapshot file, and so is what scales them."""
        with Target("waiters") as target:
            for value in ("samples", "ns"):
                arguments = ["-m", "wall", "-r", "100", "-d", "1", "--states", "--value", value, "--save-snapshots", self.path("snap"), "-p", target.pid]
                self.assert_ok(harness.run(*arguments, "-o", self.path("direct")))
                self.assert_ok(harness.run("report", self.path("snap"), "--states", "--value", value, "-o", self.path("report")))
                self.assertEqual(harness.read_profile(self.path("report")).stacks, harness.read_profile(self.path("direct")).stacks)
                self.assert_ok(harness.run("report", self.path("snap"), "--value", value, "-o", self.path("report")))
                self.assertNotIn("[epoll_wait]", str(harness.read_profile(self.path("report"))))


class Accounts(harness.Case):
    THREADS = 10

    def test_more_threads_than_cpus(self):
        """Of threads that always want a CPU: running is their CPU time, running and runnable is all there was; the summary says so."""
        for bpf in ("auto", "off"):
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
                profile, stats, result = self.attach(target.pid, "-m", mode, "-r", "200", "-d", "4", "-t", "spin-*", "--max-stops", "2")
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
            profile, stats, result = self.attach(target.pid, "-r", "5000", "-d", "4", "--overhead", "2%", "--value", "ns")
            self.assertGreater(stats["ticks_skipped"], stats["ticks"])
            self.assertLessEqual(stats["overhead_percent"], 2.2)
            self.assertGreater(stats["overhead_percent"], 0.5)
            self.assertIn("(--overhead 2.00)", result.err)
            self.assertAlmostEqual(stats["ticks"] + stats["ticks_skipped"] + stats["ticks_missed"], 5000 * stats["wall_ns"] / 1e9, delta=200)
            self.assertAlmostEqual(profile.total, stats["cpu_ns_target"], delta=0.001 * stats["cpu_ns_target"])

    def test_no_need(self):
        with Target("waiters") as target:
            _, stats, _ = self.attach(target.pid, "-r", "50", "-d", "2", "--overhead", "50")
            self.assertEqual(stats["ticks_skipped"], 0)
            self.assertGreater(stats["overhead_percent"], 0)


class Gap(harness.Case):
    def test_sampler_that_was_stopped(self):
        """A second of four: its ticks are missed, in a gap that is told, and nobody's time."""
        with Target("spinners", 1) as target:
            arguments = ["-m", "wall", "-r", "100", "-d", "4", "-t", "spin-*", "--value", "ns", "-o", self.path("profile"), "--stats", self.path("stats"), "-p", target.pid]
            with Sampler(*arguments) as sampler:
                harness.wait_sampled(target.pid)
                time.sleep(1)  # the time in which it samples
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


class InTheMiddle(harness.Case):
    def test_attach_again(self):
        """Functions that were entered long before have all their time, at the second attach as at the first."""
        with Target("recurse") as target:
            for _ in range(2):
                profile, stats, _ = self.attach(target.pid, "-r", "100", "-d", "1", "--value", "ns")
                self.assertGreater(profile.total, 0)
                self.assertEqual(profile.containing("main"), profile.total, profile)
                self.assertAlmostEqual(profile.total, stats["cpu_ns_target"], delta=0.001 * profile.total)


if __name__ == "__main__":
    harness.main()
