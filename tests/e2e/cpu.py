"""Counts: CPU time times rate, whatever the load; sleepers; bursts. To be run alone on the machine."""

import math
import os

import harness
from harness import Target, program


def margin(expected, floor=0.05, deviations=3.0):
    """A tolerance for a count: so many standard deviations of a Poisson number, but not below a share of it."""
    return max(expected * floor, deviations * math.sqrt(expected), 3)


def covered(stats):
    """The share of the ticks that were taken; what lies in missed ones is told, and in no sample."""
    return stats["ticks"] / (stats["ticks"] + stats["ticks_missed"])


class Shares(harness.Case):
    def test_more_threads_than_cpus(self):
        profile, stats, result = self.launch(["-r", "99"], [program("spinners"), "8", "5"])
        cpu = harness.last_json(result.out)["cpu_ns"]
        threads = profile.threads()
        expected = sum(cpu.values()) / 1e9 * 99 * covered(stats)
        self.assertAlmostEqual(profile.total, expected, delta=margin(expected, deviations=2.0))
        counts = [threads[name] for name in cpu]
        self.assertLessEqual(max(counts), 2 * min(counts), threads)
        for name, ns in cpu.items():
            self.assertAlmostEqual(threads[name], ns / 1e9 * 99 * covered(stats), delta=margin(ns / 1e9 * 99))
        self.assertAlmostEqual(stats["cpu_ns_target"], sum(cpu.values()), delta=0.1 * sum(cpu.values()))

    def test_one_thread(self):
        stolen = -harness.stolen_ns()
        profile, stats, result = self.launch(["-r", "500"], [program("spinners"), "1", "2"])
        stolen += harness.stolen_ns()
        expected = harness.last_json(result.out)["cpu_ns"]["spin-0"] / 1e9 * 500 * covered(stats)
        self.assertAlmostEqual(profile.threads()["spin-0"], expected, delta=margin(expected, deviations=1.5) + stolen / 1e9 * 500)

    def test_nanoseconds(self):
        profile, _, result = self.launch(["-r", "200", "--value", "ns"], [program("spinners"), "3", "2"])
        cpu = harness.last_json(result.out)["cpu_ns"]
        threads = profile.threads()
        for name, ns in cpu.items():
            self.assertAlmostEqual(threads[name], ns, delta=0.06 * ns + 10e6)

    def test_shares_of_functions(self):
        """The demo program spends half of its time in parse, three tenths in render and two in compress."""
        profile, _, _ = self.launch(["-r", "500"], [program("demo"), "2"])
        for name, share in (("parse", 0.5), ("render", 0.3), ("compress", 0.2)):
            expected = share * profile.total
            self.assertAlmostEqual(profile.containing(name), expected, delta=margin(expected) + 0.02 * profile.total)


class Sleepers(harness.Case):
    NAMES = {"nanosleep", "clock", "epoll", "poll", "select", "read", "accept", "recv", "condition", "semaphore", "sleepers"}

    def test_cpu_mode(self):
        profile, _, result = self.launch(["-r", "200"], [program("sleepers"), "2"])
        sleeping = profile.count(lambda stack: stack[0] != "sleepers")
        self.assertLessEqual(sleeping, 3, profile)  # the moment of their start
        self.assert_share(profile, profile.leaf("busy_spin"), 0.97)
        self.assertEqual(sum(harness.last_json(result.out)["returned"].values()), 0)

    def test_wall_mode(self):
        """All eleven at every tick, with the same weight; those that sleep are read, not stopped, and no call comes back because of us."""
        with Target("sleepers", 2.5) as target:
            profile, stats, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "1.5")
            harness.assert_healthy(target.pid)
            status, output = target.end()
        self.assertEqual(status, 0)
        threads = profile.threads()
        self.assertEqual(set(threads), self.NAMES)
        self.assertLessEqual(max(threads.values()) - min(threads.values()), 2 + 0.02 * stats["ticks"], threads)
        self.assertAlmostEqual(threads["sleepers"], stats["ticks"], delta=3 + 0.02 * stats["ticks"])
        asleep = profile.count(lambda stack: "sleeper_main" in stack and "[truncated]" not in stack)
        self.assertGreaterEqual(asleep, 0.98 * profile.count(lambda stack: stack[0] != "sleepers"), profile)
        returned = harness.last_json(output)["returned"]
        self.assertEqual({name: count for name, count in returned.items() if count}, {}, "system calls that came back")
        self.assertGreaterEqual(stats["unstopped"], 0.98 * asleep)
        self.assertEqual(stats["samples_truncated"], 0)

    def test_wall_mode_with_frame_pointers(self):
        """Some of these stacks need rbp, which only a stop tells, or BPF: it is inferred, and nobody who sleeps is stopped for it."""
        with Target("sleepers_fp", 2.5) as target:
            profile, stats, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "1.5")
            harness.assert_healthy(target.pid)
            status, output = target.end()
        self.assertEqual(status, 0)
        returned = harness.last_json(output)["returned"]
        self.assertEqual({name: count for name, count in returned.items() if count}, {}, "system calls that came back")
        whole = profile.count(lambda stack: "sleeper_main" in stack and "[truncated]" not in stack)
        self.assertEqual(whole, profile.count(lambda stack: stack[0] != "sleepers_fp"), profile)
        self.assertEqual(stats["samples_truncated"], 0)
        self.assertGreaterEqual(stats["unstopped"], 0.98 * whole)
        if harness.BPF == "off":
            self.assertGreaterEqual(stats["inferred"], 2 * stats["ticks"])
        self.assertEqual(stats["eintr_restarted"], 0)

    def open_frames(self, bpf):
        """Frames of a size that is known at run time only: these stacks are whole, without BPF after one sample that says that it is cut."""
        with Target("sleepframes_fp", "open", 2.5) as target:
            profile, stats, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "1.5", "--bpf", bpf)
            harness.assert_healthy(target.pid)
            status, output = target.end()
        self.assertEqual(status, 0)
        self.assertEqual(harness.last_json(output)["returned"], 0, "system calls that came back")
        whole = profile.count(lambda stack: "blocker_main" in stack and "[truncated]" not in stack)
        cut = profile.count(lambda stack: stack[1] == "[truncated]")
        self.assertEqual(whole + cut, profile.count(lambda stack: stack[0] != "sleepframes_fp"), profile)
        if bpf == "off":
            self.assertGreaterEqual(cut, 2)
        # What is taken before the first one was looked at is cut too.
        self.assertLessEqual(cut, 0.1 * whole, profile)
        self.assertGreaterEqual(stats["unstopped"], 0.9 * whole)
        return stats

    def test_wall_mode_with_open_frames(self):
        """One stop is enough, and epoll_wait does not return because of it."""
        stats = self.open_frames("off")
        self.assertGreaterEqual(stats["inferred"], 2 * stats["ticks"])
        self.assertGreaterEqual(stats["eintr_restarted"], 1)

    def test_wall_mode_with_registers_by_bpf(self):
        """No stop at all, where the kernel tells the registers."""
        if "WITHOUT_BPF" in os.environ:
            self.skipTest("not built with BPF")
        stats = self.open_frames("auto")
        if not stats["registers_by_bpf"]:
            self.skipTest("not built with BPF, or not permitted")
        self.assertEqual(stats["eintr_restarted"], 0)

    def test_burst(self):
        profile, stats, result = self.launch(["-r", "500"], [program("burst"), "4"])
        facts = harness.last_json(result.out)
        expected = facts["cpu_ns"] / 1e9 * 500
        # On a busy machine bursts and sampler both wait for a CPU, and meet less often: as far as it was busy, nothing is asked.
        behind = (stats["ticks_late"] + stats["ticks_missed"]) / (stats["ticks"] + stats["ticks_missed"])
        waited = facts["waited_ns"] / (facts["cpu_ns"] + facts["waited_ns"])
        # A burst is 1 ms by the clock, whoever stands still: where a stop takes a good part of that, as it counts as waiting.
        waited += stats["stop_ns"]["p50"] / 1e6 / 2
        self.assertAlmostEqual(profile.total, expected, delta=margin(expected, floor=0.15 + behind + waited))


class Regular(harness.Case):
    def test_no_jitter(self):
        with Target("chain_fp") as target:
            _, stats, _ = self.attach(target.pid, "--jitter", "off", "-r", "100", "-d", "1")
        self.assertAlmostEqual(stats["ticks"] + stats["ticks_missed"], 100, delta=2)


if __name__ == "__main__":
    harness.main()
