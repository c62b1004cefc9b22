"""A little of bench/helper.py: loads that dead-lock, die or get slow under a bad sampler inside the process.

SAMPLER_ENGINE=ptrace runs all of it under the sampler outside.
"""

import math
import os
import signal
import subprocess

import harness
from harness import Counters, Target, program

ENGINE = os.environ.get("SAMPLER_ENGINE", "helper")
OPTIONS = ["--helper"] if ENGINE == "helper" else []
LOADS = "malloc,dlopen,throw,exec,fork,iterate,backtrace"
STALL_LIMIT_MS = 1000
TRAP = program("libmalloctrap.so")


def has_helper():
    return ENGINE != "helper" or "--helper" in harness.run("--help").out


class Trap(harness.Case):
    def test_the_malloc_trap_works(self):
        environment = {**os.environ, "LD_PRELOAD": TRAP}
        command = [program("hardcases"), self.path("slots"), "sinner", "20"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=harness.LIMIT, check=False)
        self.assertEqual(done.returncode, -signal.SIGABRT, done)
        self.assertIn("malloctrap: entered", done.stderr)


class HelperCase(harness.Case):
    def setUp(self):
        if not has_helper():
            self.skipTest("this sampler has no option --helper")
        super().setUp()

    def sample(self, pid, rate, seconds):
        return self.attach(pid, *OPTIONS, "-r", rate, "-d", seconds)


class Loads(HelperCase):
    def check(self, output, profile):
        result = harness.last_json(output)
        for load in result["loads"]:
            with self.subTest(load=load["name"]):
                self.assertGreater(load["operations"], 0, result)
                self.assertEqual(load["wrong"], 0, result)
                self.assertNotIn("stuck", load, result)
                # A machine that lets nobody run holds up the watchdog, too.
                self.assertLess(load["stall_ms"], STALL_LIMIT_MS + result["watchdog_ms"], result)
        self.assertGreater(profile.of_thread("malloc").matching("malloc|free|^_int_"), 0, profile)

    def test_attached_with_the_malloc_trap(self):
        with Target("hardcases", self.path("slots"), LOADS, 60, env={**os.environ, "LD_PRELOAD": TRAP}) as target:
            profile, _, _ = self.sample(target.pid, 1000, 2.5)
            harness.assert_healthy(target.pid)
            os.kill(target.pid, signal.SIGTERM)
            status, output = target.end()
        self.assertEqual(status, 0, output)
        self.check(output, profile)

    def test_launched(self):
        output = self.path("output")
        with open(output, "wb") as file:
            profile, _, _ = self.launch([*OPTIONS, "-r", "1000"], [program("hardcases"), self.path("slots"), LOADS, "2"], stdout=file)
        with open(output, encoding="utf-8") as file:
            self.check(file.read(), profile)


class Cycles(HelperCase):
    def test_attach_and_withdraw(self):
        path = self.path("counters")
        with Target("counters", path, 60) as target:
            samples = 0
            for _ in range(12):
                profile, _, _ = self.sample(target.pid, 5000, 0.05)
                samples += profile.total
                Counters(path).assert_alive()
            harness.assert_healthy(target.pid)
        self.assertGreater(samples, 0)

    def ask(self, target, number):
        target.process.stdin.write(b"%d\n" % number)
        value, mistakes, rounds = map(int, harness.read_line(target.process.stdout).split())
        expected = number
        for i in range(20000):
            expected = (expected * 31 + i) % 65521
        self.assertEqual((value, mistakes), (expected, 0))
        return rounds

    def test_a_server_answers(self):
        with Target("answers", stdin=subprocess.PIPE) as target:
            for number in range(6):
                before = self.ask(target, number)
                profile, _, _ = self.sample(target.pid, 1000, 0.15)
                self.assertGreater(profile.total, 0)
                harness.wait_until(lambda: self.ask(target, number + 100) > before, "its workers go on")
            target.process.stdin.close()
            self.assertEqual(target.process.wait(harness.LIMIT), 0)


class SmallStacks(HelperCase):
    def check(self, output, profile):
        self.assertEqual(harness.last_json(output)["damaged"], 0, output)
        for function in ("coroutine_spin", "minimum_spin"):
            self.assertGreater(profile.containing(function), 0, profile)

    def test_attached(self):
        """Nobody can be let into a handler that was entered before the helper came, so it is entered again and again."""
        path = self.path("turns")
        with Target("smallstacks", path, 4, "again") as target:
            profile, _, _ = self.sample(target.pid, 1000, 2)
            Counters(path).assert_alive()
            harness.assert_healthy(target.pid)
            status, output = target.end()
        self.assertEqual(status, 0, output)
        self.check(output, profile)

    def test_launched(self):
        output = self.path("output")
        with open(output, "wb") as file:
            profile, _, _ = self.launch([*OPTIONS, "-r", "1000"], [program("smallstacks"), self.path("turns"), "2"], stdout=file)
        with open(output, encoding="utf-8") as file:
            self.check(file.read(), profile)


class Shares(HelperCase):
    RATE = 250

    def shares(self, kind, seconds):
        """The profile, and {function: its part of the CPU time of all}."""
        output = self.path("output")
        with open(output, "wb") as file:
            profile, _, _ = self.launch([*OPTIONS, "-r", self.RATE], [program("shares"), kind, str(seconds)], stdout=file)
        with open(output, encoding="utf-8") as file:
            truth = harness.last_json(file.read())
        worked = sum(truth["work_ns"].values())
        return profile, {name: ns / worked for name, ns in truth["work_ns"].items()}

    def check(self, kind, seconds):
        profile, shares = self.shares(kind, seconds)
        counts = {name: profile.containing(name) for name in shares}
        whole = sum(counts.values())
        self.assertGreater(whole, 100, profile)
        for name, share in shares.items():
            # Five standard errors of independent samples; these are a little better.
            tolerance = 5 * math.sqrt(share * (1 - share) / whole)
            self.assertLess(abs(counts[name] / whole - share), tolerance, f"{kind}: {counts}, truly {shares}")

    def test_one_cpu(self):
        self.check("onecpu", 1.5)

    def test_three_to_one(self):
        self.check("ratio", 1.5)

    def test_bursts(self):
        self.check("bursts", 1.5)


class LongFork(HelperCase):
    FORKS = 10

    def forks(self, target):
        target.process.stdin.write(b"%d\n" % self.FORKS)
        times = [float(word) for word in harness.read_line(target.process.stdout).split()]
        self.assertEqual(len(times), self.FORKS)
        self.assertGreater(min(times), 0, times)
        return times

    def test_forks_end(self):
        """A timer whose signals start the copying of page tables over would keep a fork for ever; what a busy machine adds is less than that."""
        with Target("longfork", 256, stdin=subprocess.PIPE) as target:
            plain = self.forks(target)
            with harness.Sampler(*OPTIONS, "-r", "1000", "-d", "1.5", "-o", self.path("profile"), "-p", target.pid) as sampler:
                sampled = []
                while sampler.process.poll() is None:
                    sampled += self.forks(target)
                self.assert_ok(sampler.end())
            profile = harness.read_profile(self.path("profile"))
            target.process.stdin.close()
            self.assertEqual(target.process.wait(harness.LIMIT), 0)
        self.assertGreater(profile.containing("timed_fork"), 0, profile)
        self.assertLess(max(sampled), 10 * max(plain) + 1e5, (plain, sampled))


if __name__ == "__main__":
    harness.main()
