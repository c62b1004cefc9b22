"""Where news of the target come from: perf's records or /proc, with the same results."""

import os
import signal
import subprocess

import harness
from harness import Sampler, Target, program, run

SOURCES = ("auto", "perf", "perf-threads", "proc")
ROUNDS = 4
LIBRARY = program("libdso_library.so")
UNPRIVILEGED = 65534


def paranoid():
    with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as file:
        return int(file.read())


class Sources(harness.Case):
    def seen(self, profile):
        """Which functions, and which threads by name; those whose lives are shorter than a few ticks left out."""
        functions = {name for name in ("library_spin", "executed_spin") if profile.containing(name) > 3 * ROUNDS}
        return functions, {name for name in profile.threads() if name.startswith(("loader-", "executed"))}

    def test_same_results(self):
        seen = {}
        for source in SOURCES:
            with self.subTest(source=source):
                profile, stats, result = self.launch(["--events", source, "-r", "500"], [program("churn"), LIBRARY, ROUNDS])
                self.assertEqual(harness.last_json(result.out), {"rounds": ROUNDS})
                seen[source] = self.seen(profile)
                wanted = {f"loader-{number}" for number in range(ROUNDS)} | {"executed"}
                self.assertEqual(seen[source], ({"library_spin", "executed_spin"}, wanted), profile)
                # Nothing of the library under another name, though it comes and goes at the same place.
                self.assertEqual(profile.count(lambda stack: stack[0].startswith("loader-") and "library_outer" in stack
                                               and stack[-2:] != ("library_outer", "library_spin")), 0, profile)
                if stats["events"].startswith("perf"):
                    self.assertEqual(stats["events_lost"], 0)
                    # Their parent had ended before anybody could have looked.
                    self.assertLessEqual({f"orphan-{number}" for number in range(ROUNDS - 1)}, set(profile.threads()))

    def test_attached(self):
        """Threads that are there get events of their own, and so do those that begin meanwhile."""
        for source in SOURCES:
            with self.subTest(source=source), Target("threads", "churn") as target:
                profile, stats, _ = self.attach(target.pid, "--events", source, "-r", "500", "-d", "0.7")
                self.assert_caught(profile.total, stats, share=0.2)
                self.assertGreater(profile.leaf("steady_spin"), 0)
                self.assertGreater(stats["threads_seen"], 20)
                harness.assert_healthy(target.pid)

    def test_told(self):
        with Target("chain_fp") as target:
            _, stats, _ = self.attach(target.pid, "--events", "proc", "-d", "0.1")
            self.assertEqual(stats["events"], "proc")
            _, stats, _ = self.attach(target.pid, "-d", "0.1")
            self.assertIn(stats["events"], ("perf", "proc"))
            if stats["events"] == "proc":
                self.skipTest("records of the whole machine are not allowed here")
            _, stats, _ = self.attach(target.pid, "--events", "perf-threads", "-d", "0.1")
            self.assertEqual(stats["events"], "perf-threads")

    def test_more_threads_than_events(self):
        with Target("idle", 200) as target:
            profile, stats, _ = self.attach(target.pid, "--events", "perf-threads", "-m", "wall", "-r", "20", "-d", "0.5")
        self.assertEqual(stats["events"], "proc")
        self.assertGreaterEqual(stats["threads_seen"], 200)
        self.assertGreater(profile.total, 0)

    def test_unprivileged(self):
        """Silently what is allowed."""
        for source in SOURCES:
            with self.subTest(source=source):
                result = run("--events", source, "-v", "-d", "0.3", "--", program("threads"), "churn", "1",
                             preexec_fn=harness.set_uid(UNPRIVILEGED))
                self.assert_ok(result)
                threads_allowed = source.startswith("perf") and paranoid() <= 2
                machine_allowed = source in ("auto", "perf") and paranoid() <= 0
                expected = "perf" if machine_allowed else "perf-threads" if threads_allowed else "proc"
                stats = result.err
                if "\"events\": \"proc\"" in stats and expected != "proc":
                    self.skipTest("a security module refuses perf_event_open")
                self.assertIn(f"\"events\": \"{expected}\"", stats)

    def test_killed_sampler(self):
        """The target of a killed sampler goes on and can be sampled again."""
        with Target("threads", "churn") as target:
            for source in SOURCES:
                _, stats, _ = self.attach(target.pid, "--events", source, "-d", "0.1")
                with Sampler("--events", source, "-q", "-r", "200", "-p", target.pid) as sampler:
                    harness.wait_until(lambda: has_events(sampler.pid) == (stats["events"] != "proc"), "events are open, if any")
                    harness.wait_until(lambda: harness.tasks(sampler.pid)[1:], "sampling has begun")
                    sampler.signal(signal.SIGKILL)
                    sampler.process.wait(harness.LIMIT)
                harness.wait_until(lambda: all(harness.status(target.pid, tid).get("TracerPid", "0") == "0"
                                               for tid in harness.tasks(target.pid)), "nobody traces it")
            profile, stats, _ = self.attach(target.pid, "-r", "500", "-d", "0.5")
            self.assert_caught(profile.total, stats, share=0.2)
            self.assertGreater(profile.leaf("steady_spin"), 0)

    def test_world_of_a_launched_program(self):
        """No descriptor more, whatever the source."""
        outputs = []
        for source in SOURCES:
            with open(self.path("world"), "wb") as world:
                subprocess.run([harness.SAMPLER, "-q", "--events", source, "-o", self.path("profile"), "--", "/bin/ls", "/proc/self/fd"],
                               stdin=subprocess.DEVNULL, stdout=world, check=True, timeout=harness.LIMIT)
            with open(self.path("world"), "rb") as world:
                outputs.append(world.read().split())
        bare = subprocess.run(["/bin/ls", "/proc/self/fd"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout.split()
        for output in outputs:
            self.assertEqual(output, bare)


def has_events(pid):
    try:
        return any("perf_event" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


if __name__ == "__main__":
    harness.main()
