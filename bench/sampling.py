"""What measurements of the sampler's effect share: a sampler at work beside a load, and what of its cost is its own for certain."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import Ratio

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build/release")
SAMPLER = os.path.join(BUILD, "sampler/sampler")


def wait_until(condition, what, limit=30):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {limit} s: {what}")
        time.sleep(0.01)


def tasks(pid):
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def cpu_ns(pid):
    total = 0
    for tid in tasks(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except OSError:
            pass
    return total


def state(pid, tid):
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


class Sampling:
    """`with Sampling(pid, "-m", "wall") as run:` samples what happens inside; afterwards `run.stats`, the CPU times and `run.profile`.

    `cpu_ns` is the sampler's CPU time meanwhile: its start (reading symbol tables) and end (names) are not the load's. `cpu_total_ns` has all.
    """

    def __init__(self, pid, *options, rate=99):
        self.directory = tempfile.TemporaryDirectory(prefix="sampler-bench-")
        self.paths = [os.path.join(self.directory.name, name) for name in ("profile", "stats")]
        self.command = [SAMPLER, "-q", "-r", str(rate), *options, "-o", self.paths[0], "--stats", self.paths[1], "-p", str(pid)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
        time.sleep(0.3)  # its first samples are done
        self.cpu_ns = -cpu_ns(self.process.pid)
        return self

    def __exit__(self, *problem):
        self.cpu_ns += cpu_ns(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_total_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
        try:
            if problem[0] is None:
                if self.process.returncode != 0:
                    sys.exit(f"the sampler: status {self.process.returncode}")
                with open(self.paths[0], encoding="utf-8", errors="replace") as file:
                    self.profile = file.read()
                with open(self.paths[1], encoding="utf-8") as file:
                    self.stats = json.load(file)
        finally:
            self.directory.cleanup()


class Ours:
    """What is the sampler's for certain, summed up over runs: the time in which threads stood still, and its own CPU time."""

    def __init__(self, runs):
        self.stopped_ns = sum(run.stats["held_ns"]["sum"] + run.stats["interrupted_ns"]["sum"] for run in runs)
        self.cpu_ns = sum(run.cpu_ns for run in runs)
        self.cpu_total_ns = sum(run.cpu_total_ns for run in runs)
        self.target_ns = sum(run.stats["cpu_ns_target"] for run in runs)
        self.samples, self.stops, self.unstopped, self.truncated, self.sleeps, self.stopped_asleep = (
            sum(run.stats[name] for run in runs) for name in ("samples", "stops", "unstopped", "samples_truncated", "sleeps", "stopped_asleep"))

    def percent(self):
        return 100 * (self.stopped_ns + self.cpu_ns) / max(1, self.target_ns)

    def __str__(self):
        return (f"stops {100 * self.stopped_ns / max(1, self.target_ns):.2f} % + CPU {100 * self.cpu_ns / max(1, self.target_ns):.2f} % = {self.percent():.2f} % "
                f"of the target's CPU time of {self.target_ns / 1e9:.1f} s (start and end of the sampler included {100 * self.cpu_total_ns / max(1, self.target_ns):.2f} %); "
                f"{self.samples} samples, {self.stops} stops, {self.unstopped} samples without one, {self.truncated} truncated; "
                f"{self.sleeps} sleeps, {self.stopped_asleep} of them stopped")


class Verdict:
    """PASS and FAIL lines; `good` until one fails."""

    def __init__(self):
        self.good = True

    def say(self, passed, words):
        self.good = self.good and passed
        print(f"  {'PASS' if passed else 'FAIL'} {words}", flush=True)

    def change(self, what, pairs, limit_percent, ours=None):
        """Holds when the interval reaches the limit, and what is ours for certain is within it."""
        ratio = Ratio(pairs)
        holds = ratio.reaches(limit_percent)
        certain = ours is None or ours.percent() <= abs(limit_percent)
        self.say(holds and certain, f"{what}: {ratio}, limit {limit_percent:+g} %" + ("" if certain else f"; but {ours.percent():.2f} % is ours"))


class Asked:
    """A target that prints "ready" and then, for each number of seconds on its standard input, a line of what it did in that time."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.pid = self.process.pid
        if "ready" not in self.process.stdout.readline():
            sys.exit(f"{command} did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, seconds):
        print(seconds, file=self.process.stdin, flush=True)
        return [float(word) for word in self.process.stdout.readline().split()]


class Tracer:
    """bench/naive_tracer at work."""

    def __init__(self, *arguments):
        self.command = [os.path.join(BUILD, "bench/naive_tracer"), *map(str, arguments)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{self.command} did not start")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.output = self.process.communicate(timeout=30)[0]


def build(*targets):
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", *targets], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
