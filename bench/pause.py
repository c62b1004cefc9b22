#!/usr/bin/env python3
"""How long does a sampler make a program stand still? Seen by the program itself.

    bench/setup.sh && bench/pause.py [--rounds N] [--seconds N] [--only idle|one|two|threads]... [--lock FILE] [--option=OPTION]...

A program spins on the time stamp counter and notes each gap. The gap that holds a sample's time (ours: that a stop overlaps; perf: that holds the
time of the record) is the pause of that sample, its "own gap": all that the sample has cost on that CPU, interrupts and changes of context included. The samplers take
turns in rounds: nobody (the floor), the sampler and `perf record --call-graph dwarf` at 99 and 999 Hz, a plain ptrace loop. Medians of the rounds (least - most).

idle:    nothing else runs.
one:     the target on one CPU, a busy program that nobody samples on the other.
two:     two such programs there.
threads: 8 running threads on the CPUs there are.

Limits: at 99 and 999 Hz own gap p50 and share of the time stolen <= 1.2 times perf's of the same round; p99 <= 150 us in `idle`; in `one` and `two` p99 not above
1 ms; in `threads` 99 of 100 stops hold their thread no longer than 2 ms from its arrival. Status 1 when one is passed. Run as root.
--lock FILE: holds this lock (flock) while it measures, a round at a time, on a machine that others use too.
"""

import argparse
import bisect
import contextlib
import fcntl
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build/release")
SAMPLER = os.path.join(BUILD, "sampler/sampler")
PAUSE = os.path.join(BUILD, "bench/pause")
DEPTH = 30
MARGIN_SECONDS = 0.6
good = True


def build():
    subprocess.run(["cmake", "--preset", "release", "-DSAMPLER_E2E=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "pause", "sampler"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


class Gaps:
    """The gaps of one run of the target, by thread, in order of time."""

    def __init__(self, text):
        self.by_thread, self.whole_ns = {}, 0
        for line in text.splitlines():
            words = line.split()
            if words[0] == "end":
                self.whole_ns += int(words[3]) - int(words[2])
            elif words[0].isdigit():
                self.by_thread.setdefault(int(words[0]), []).append((int(words[1]), int(words[2])))
        self.ends = {tid: [end for _, end in gaps] for tid, gaps in self.by_thread.items()}

    def share(self):
        return sum(end - start for gaps in self.by_thread.values() for start, end in gaps) / self.whole_ns

    def own(self, tid, start_ns, end_ns):
        """The longest gap that overlaps [start_ns, end_ns]; clocks and the ends of gaps are known to some 100 ns."""
        gaps, longest = self.by_thread.get(tid, []), 0
        for i in range(bisect.bisect_left(self.ends.get(tid, []), start_ns - 200), len(gaps)):
            if gaps[i][0] > end_ns + 200:
                break
            longest = max(longest, gaps[i][1] - gaps[i][0])
        return longest


class Result:
    def __init__(self, gaps, samples):
        own = sorted(filter(None, (gaps.own(*sample) for sample in samples)))
        self.samples, self.lost = len(samples), len(samples) - len(own)
        self.p50 = self.p99 = self.most = 0.0
        if own:
            self.p50, self.p99, self.most = (own[min(len(own) - 1, int(len(own) * part))] / 1e3 for part in (0.5, 0.99, 1))
        self.own_share, self.share = 100 * sum(own) / gaps.whole_ns, 100 * gaps.share()


def run_target(seconds, cpu, threads, watch):
    """The gaps, and what `watch` gives, which is called with the pid once it spins."""
    with subprocess.Popen([PAUSE, "target", str(seconds + MARGIN_SECONDS), str(cpu), str(threads), str(DEPTH)], stdout=subprocess.PIPE, text=True) as process:
        if process.stdout.readline() != "ready\n":
            sys.exit("the target did not start")
        watched = watch(process.pid)
        return Gaps(process.stdout.read()), watched


class Program(subprocess.Popen):
    """What it says goes into a file: nobody reads a pipe meanwhile."""

    def __init__(self, *command):
        self.said = tempfile.TemporaryFile("w+")
        super().__init__([str(word) for word in command], stdout=self.said, stderr=subprocess.STDOUT)

    def finish(self, must_be_good=True):
        status = self.wait()
        self.said.seek(0)
        text = self.said.read()
        if status and must_be_good:
            sys.exit(f"{self.args}: {text}")
        return text


class Watcher:
    def __init__(self, name, hz=None, extra=()):
        self.name, self.hz, self.extra = name, hz, extra

    def measure(self, seconds, cpu=-1, threads=1):
        with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
            self.path = os.path.join(directory, "log")
            # Started while the target spins, ended before it is done with it.
            gaps, process = run_target(seconds, cpu, threads, lambda pid: self.start(pid, seconds))
            return Result(gaps, self.read(process))

    def start(self, pid, seconds):
        return None

    def read(self, process):
        return []


class Sampler(Watcher):
    def start(self, pid, seconds):
        return Program(SAMPLER, "-q", "-r", self.hz, "-d", seconds, "--stop-log", self.path, "-o", "/dev/null", *self.extra, "-p", pid)

    def read(self, process):
        process.finish()
        with open(self.path, encoding="utf-8") as file:
            rows = [tuple(map(int, line.split()[:4])) for line in file]
        self.held = [end - arrived for _, _, arrived, end in rows]
        return [(tid, start, end) for tid, start, _, end in rows]


class Perf(Watcher):
    def start(self, pid, seconds):
        return Program("perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-F", self.hz, "-e", "cpu-clock", "--call-graph", "dwarf", "-o", self.path, "-p", pid,
                     "--", "sleep", seconds)

    def read(self, process):
        said = process.finish(False)  # its status is not 0 when the target ends first
        script = subprocess.run(["perf", "script", "-i", self.path, "--ns", "-G", "-F", "tid,time"], capture_output=True, text=True, check=True)
        samples = []
        for line in script.stdout.splitlines():
            tid, when = line.split()[:2]
            seconds, ns = when.rstrip(":").split(".")
            when_ns = int(seconds) * 10**9 + int(ns)
            samples.append((int(tid), when_ns, when_ns))
        if not samples:
            sys.exit(f"perf took no samples: {said}")
        return samples


class Naive(Watcher):
    def start(self, pid, seconds):
        # The one thread that spins is not the main one.
        tid = max(map(int, os.listdir(f"/proc/{pid}/task")))
        return Program(PAUSE, "naive", tid, self.hz, seconds)

    def read(self, process):
        return [tuple(map(int, line.split())) for line in process.finish().splitlines()]


@contextlib.contextmanager
def busy(count, cpu, seconds):
    processes = [Program(PAUSE, "spin", seconds, cpu) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def locked(path):
    if not path:
        yield
        return
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signal.alarm(120)  # whatever goes wrong, others get their turn
        yield
        signal.alarm(0)


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def judge(what, value, limit, unit=""):
    global good
    good = good and value <= limit
    print(f"  {what:60} {value:8.2f}{unit}   limit {limit:g}{unit}: {'PASS' if value <= limit else 'FAIL'}", flush=True)


def with_samples(rounds, name):
    """A sampler that the scheduler puts on the target's CPU finds it waiting, with nothing to stop or interrupt: such a round has no pauses to tell of."""
    return [round_[name] for round_ in rounds if round_[name].samples] or [round_[name] for round_ in rounds]


def show(rounds):
    print(f"  {'':12} {'samples':>8} {'lost':>5} {'own gap p50, us':>24} {'p99, us':>28} {'most, us':>9} {'own gaps, %':>24} {'all gaps, %':>24}")
    for name in rounds[0]:
        results = [round_[name] for round_ in rounds]
        paused = with_samples(rounds, name)
        print(f"  {name:12} {sum(r.samples for r in results):8} {sum(r.lost for r in results):5} {spread([r.p50 for r in paused]):>24} "
              f"{spread([r.p99 for r in paused]):>28} {max(r.most for r in results):9.0f} {spread([r.own_share for r in results], 3):>24} "
              f"{spread([r.share for r in results], 3):>24}", flush=True)


def scenario(arguments, what, watchers, spinners=0, cpu=-1, threads=1):
    print(f"\n{what}, {arguments.rounds} rounds of {arguments.seconds:g} s each", flush=True)
    rounds = []
    for _ in range(arguments.rounds):
        round_ = {}
        with locked(arguments.lock):
            with busy(spinners, 0, 600):
                for watcher in watchers:
                    round_[watcher.name] = watcher.measure(arguments.seconds, cpu, threads)
        rounds.append(round_)
        time.sleep(0.2)
    show(rounds)
    return rounds


def everybody(arguments):
    return [Watcher("nobody"), *(kind(f"{name} {hz}", hz, arguments.option) for hz in (99, 999) for name, kind in
                                 (("sampler", Sampler), ("perf", Perf), ("naive", Naive)))]


def against_perf(rounds):
    for hz in (99, 999):
        for what in ("p50", "own_share", "share"):
            ratios = [getattr(r[f"sampler {hz}"], what) / max(getattr(r[f"perf {hz}"], what), 1e-9) for r in rounds]
            judge(f"{hz} Hz: {what} / perf's ({spread(ratios, 2)})", statistics.median(ratios), 1.2)


def idle(arguments):
    rounds = scenario(arguments, "idle: one thread, nothing else runs", everybody(arguments))
    against_perf(rounds)
    for hz in (99, 999):
        judge(f"{hz} Hz: own gap p99", statistics.median(r[f"sampler {hz}"].p99 for r in rounds), 150, " us")


def crowded(arguments, what, spinners):
    cpu = max(os.sched_getaffinity(0))
    rounds = scenario(arguments, what, everybody(arguments), spinners, cpu)
    for hz in (99, 999):
        paused = with_samples(rounds, f"sampler {hz}")
        judge(f"{hz} Hz: own gap p99, of {len(paused)} rounds", statistics.median(r.p99 for r in paused), 1000, " us")


def one(arguments):
    crowded(arguments, "one: a busy program on the other CPU", 1)


def two(arguments):
    crowded(arguments, "two: two busy programs on the other CPU", 2)


def threads(arguments):
    """What scheduling does to 8 threads on 2 CPUs is in their gaps too; so here counts what the stop log says."""
    watchers = [Sampler(f"sampler {hz}", hz, arguments.option) for hz in (99, 999)]
    held = {watcher.name: [] for watcher in watchers}

    class Keeping(Sampler):
        def read(self, process):
            samples = super().read(process)
            held[self.name] += self.held
            return samples

    scenario(arguments, "threads: 8 running threads", [Keeping(w.name, w.hz, w.extra) for w in watchers], threads=8)
    for name, values in held.items():
        values.sort()
        p50, p99, p999 = (values[int(len(values) * part)] / 1e3 for part in (0.5, 0.99, 0.999))
        print(f"  {name}: from arrival to release: p50 {p50:.1f} us, p99 {p99:.1f} us, p99.9 {p999:.1f} us, most {values[-1] / 1e3:.1f} us, {len(values)} stops; "
              f"above 2 ms: {sum(v > 2e6 for v in values)}")
        judge(f"{name}: from arrival to release, p99", p99, 2000, " us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", action="append", choices=("idle", "one", "two", "threads"))
    parser.add_argument("--option", action="append", default=[], help="given to the sampler too, e.g. --option=--pin=off")
    parser.add_argument("--lock")
    arguments = parser.parse_args()
    build()
    for name, part in (("idle", idle), ("one", one), ("two", two), ("threads", threads)):
        if not arguments.only or name in arguments.only:
            part(arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
