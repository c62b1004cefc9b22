"""What threads were doing (--states)."""

import os
import signal

import harness
from harness import Target


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
                process, = (process for process in stats["processes"] if process["pid"] == target.pid)
                share = process["run_ns"] / (process["run_ns"] + process["wait_ns"])  # as far as it got a CPU; the others need none
                self.assertAlmostEqual(profile.of_thread("waiters").leaf("[running]") / threads["waiters"], share, delta=0.1, msg=profile)
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
