"""What a stop is said to have taken (--stop-log, --stats), and where the sampler takes its samples (--pin)."""

import os
import re
import resource
import stat
import threading

import harness
from harness import Target, program, run


def read_log(path):
    """(thread, asked, arrived, released) of each line that says stopped, and of each that says interrupted."""
    rows = {"stopped": [], "interrupted": []}
    with open(path, encoding="ascii") as file:
        for line in file:
            *numbers, how = re.fullmatch(r"([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) (stopped|interrupted)\n", line).groups()
            rows[how].append(tuple(map(int, numbers)))
    return rows["stopped"], rows["interrupted"]


class Log(harness.Case):
    def check(self, stats):
        """One well-formed line for each stop, in agreement with the counters; returns the threads."""
        stopped, interrupted = read_log(self.path("stops"))
        self.assertEqual((len(stopped), len(interrupted)), (stats["stops"], stats["interrupted"]))
        for _, asked, arrived, released in stopped + interrupted:
            self.assertLessEqual(asked, arrived)
            self.assertLess(arrived, released)
        for name, times in (("stop_ns", [row[3] - row[1] for row in stopped]), ("held_ns", [row[3] - row[2] for row in stopped]),
                            ("interrupted_ns", [row[3] - row[2] for row in interrupted])):
            self.assertEqual((stats[name]["max"], stats[name]["sum"]), (max(times, default=0), sum(times)))
            self.assertLessEqual(stats[name]["p50"], stats[name]["p99"])
        self.assertLessEqual(stats["held_ns"]["sum"], stats["stop_ns"]["sum"])
        return {row[0] for row in stopped + interrupted}

    def test_attached(self):
        for pin in ("auto", "off"):
            with self.subTest(pin=pin), Target("spinners", 3, 60) as target:
                harness.wait_until(lambda: len(harness.tasks(target.pid)) >= 3, "its threads")
                profile, stats, _ = self.attach(target.pid, "-r", "500", "-d", "0.6", "--pin", pin, "--stop-log", self.path("stops"))
                self.assertTrue(self.check(stats) <= set(harness.tasks(target.pid)))
                self.assertLessEqual(profile.total, stats["samples"])
                harness.assert_healthy(target.pid)

    def test_launched(self):
        _, stats, _ = self.launch(["-r", "500", "--stop-log", self.path("stops")], [program("exiter"), "exit", "0", "0.4"])
        self.assertEqual(len(self.check(stats)), 1)

    def test_interrupted(self):
        """Where threads can be read by BPF nobody who runs is stopped, but in the first ticks; without, everybody is."""
        for bpf in ("auto", "off"):
            with self.subTest(bpf=bpf), Target("spinners", 2, 60) as target:
                harness.wait_until(lambda: len(harness.tasks(target.pid)) >= 2, "its threads")
                profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "2", "--bpf", bpf, "--stop-log", self.path("stops"))
                self.check(stats)
                self.assert_caught(profile.total, stats)
                self.assertEqual(stats["samples_truncated"], 0)
                if bpf == "off" or not stats["registers_by_bpf"]:
                    self.assertEqual((stats["interrupted"], stats["registers_by_bpf"], stats["unstopped"]), (0, 0, 0))
                else:
                    self.assertGreater(stats["interrupted"], 0)
                    self.assertLess(stats["stops"], stats["samples"] / 4)
                    # Each other sample is a stop's, which counts at each tick that finds it still on its way.
                    self.assertLessEqual(stats["unstopped"], stats["samples"] - stats["stops"] + 3)
                    self.assertGreater(stats["unstopped"], stats["samples"] / 2)
                harness.assert_healthy(target.pid)

    def test_too_deep(self):
        """A stack that has no room where it is read in the interrupt is not read a moment later, when its thread is elsewhere: that takes a stop."""
        cpus = sorted(os.sched_getaffinity(0))
        with Target("recurse", 6000, preexec_fn=lambda: os.sched_setaffinity(0, cpus[-1:])) as target:
            profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "1", "--bpf", "auto", "--pin", cpus[0], "--stop-log", self.path("stops"))
            self.check(stats)
            if len(cpus) > 1:  # else it waits for the CPU that the sampler has, and is read so
                self.assertGreater(stats["stops"], 0)
            self.assertLess(stats["interrupted"], stats["samples"] / 10)  # as long as less of it is copied
            self.assertEqual(profile.containing("recurse_leaf"), profile.total, profile)
            harness.assert_healthy(target.pid)

    def test_file(self):
        """There when the run is over, under its name only, and a file like any other; without a stop it is empty."""
        mask = os.umask(0o027)
        self.addCleanup(os.umask, mask)
        self.launch(["-r", "1", "--stop-log", self.path("stops")], ["/bin/true"])
        self.assertEqual(stat.S_IMODE(os.stat(self.path("stops")).st_mode), 0o640)
        self.assertEqual(sorted(os.listdir(self.directory)), ["profile", "stats", "stops"])

    def test_refused(self):
        """An error before anything is attached, launched or written."""
        os.mkdir(self.path("directory"))
        for name, words in (("none/stops", ["none/stops", "no such"]), ("directory", ["directory"]), ("profile", ["profile", "another output"]),
                            ("snap", ["snap", "another output"])):
            with self.subTest(file=name):
                before = sorted(os.listdir(self.directory))
                result = run("--stop-log", self.path(name), "--save-snapshots", self.path("snap"), "-o", self.path("profile"), "--",
                             "/usr/bin/touch", self.path("started"))
                self.assertEqual(result.status, 1, result)
                self.assert_one_line(result, *words)
                self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_full_disk(self):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with Target("spinners", 1, 60) as target:
            result = run("-r", "500", "-d", "0.5", "-o", "/dev/null", "--stop-log", self.path("stops"), "-p", target.pid, preexec_fn=small)
            harness.assert_healthy(target.pid)
        self.assertEqual(result.status, 1, result)
        self.assertIn(f"cannot write to {self.path('stops')}: File too large", result.err)
        self.assertEqual(os.listdir(self.directory), [])


class Pin(harness.Case):
    """Which threads of the sampler may run where, and that samples come all the same."""

    def sample(self, *options, **popen):
        """Affinities that the capture thread was seen with."""
        seen = set()
        with Target("spinners", 1, 60) as target, harness.Sampler("-r", "500", "-d", "2", "-o", self.path("profile"), "--stats", self.path("stats"),
                                                               *options, "-p", target.pid, **popen) as sampler:
            done = threading.Event()

            def watch():
                while not done.is_set():
                    for tid in harness.tasks(sampler.pid):
                        facts = harness.status(sampler.pid, tid)
                        if facts.get("Name") == "capture":
                            seen.add(facts["Cpus_allowed_list"])
            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                result = sampler.end()
            finally:
                done.set()
                watcher.join()
            self.assert_ok(result)
            self.assertEqual(os.sched_getaffinity(target.pid), os.sched_getaffinity(0), "the target was moved")
            harness.assert_healthy(target.pid)
        stats = harness.read_stats(self.path("stats"))
        self.assertGreater(stats["stops"] if harness.BPF == "off" else stats["samples"], 0)
        self.assertEqual(stats["samples_failed"], {})
        return seen

    def whole(self):
        return harness.status(os.getpid())["Cpus_allowed_list"]

    def test_off(self):
        self.assertEqual(self.sample("--pin", "off"), {self.whole()})

    def test_auto(self):
        self.assertEqual(self.sample(), {self.whole()})

    def test_one_cpu(self):
        cpu = max(os.sched_getaffinity(0))
        self.assertLessEqual(self.sample("--pin", str(cpu)) - {self.whole()}, {str(cpu)})

    def test_restricted(self):
        """Nobody gets CPUs that the sampler was not given."""
        cpu = min(os.sched_getaffinity(0))
        seen = self.sample("--pin", "auto", preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.assertEqual(seen, {str(cpu)})

    def test_refused(self):
        absent = max(os.sched_getaffinity(0)) + 1
        result = run("--pin", str(absent), "-o", self.path("profile"), "--", "/usr/bin/touch", self.path("started"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, f"CPU {absent}")
        self.assertEqual(os.listdir(self.directory), [])


if __name__ == "__main__":
    harness.main()
