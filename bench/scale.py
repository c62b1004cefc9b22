#!/usr/bin/env python3
"""What many threads cost: thousands that sleep, a thousand that run now and then, hundreds of thousands that come and go, a hundred processes.

    bench/setup.sh && bench/scale.py [--pairs 10] [--seconds 4] [--rate 99] [--option=OPTION]... [PART]...

sleepers:  wall mode on bench/blocked_target with 100, 1,000 and 10,000 threads of which one is busy. CPU time of the sampler after its first pass, as a share of one CPU;
           stops. At 10,000 the busy thread's work unsampled and sampled in turn: the median of the pairs' ratios with its 95 % interval (bench/pairs.py).
often:     bench/clocked often: a thousand threads, each 1 ms every 100 ms (which is more than two CPUs have). CPU time, and the error of the shares of two
           functions, in standard errors.
many:      bench/clocked many, threads that end at once: the sampler's memory while they come and go.
processes: a hundred processes, with --children: CPU time and memory.

Limits: sleepers: 2 % of one CPU at 10,000, at most twice what 100 cost, no stop of a sleeping thread, slow-down 2 %; often: 15 % of one CPU, 3 standard errors; many: no more memory at
the end than after a fifth of the time, but for 10 %. Status 1 when one is passed.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from accuracy import read_collapsed
from pairs import take_pairs
from sampling import BUILD, SAMPLER, Asked, Ours, Sampling, Verdict, build, cpu_ns, state, tasks, wait_until

CLOCKED = os.path.join(BUILD, "bench/clocked")
PARTS = ("sleepers", "often", "many", "processes")
SLEEPERS = (100, 1000, 10000)
SLEEPERS_CPU, TIMES, SLOWER, OFTEN_CPU, SIGMA, GROWTH = 2.0, 2.0, -2, 15.0, 3.0, 1.1


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


class Settled(Sampling):
    """CPU time from when the first pass is over."""

    def __enter__(self):
        super().__enter__()
        time.sleep(2)
        self.cpu_ns = -cpu_ns(self.process.pid)
        self.start = time.monotonic()
        return self

    def __exit__(self, *problem):
        self.seconds = time.monotonic() - self.start
        super().__exit__(*problem)

    def percent(self):
        return 100 * self.cpu_ns / 1e9 / self.seconds


def blocked(count):
    asked = Asked([os.path.join(BUILD, "bench/blocked_target"), count - 1, 1])
    wait_until(lambda: sum(state(asked.pid, tid) == "S" for tid in tasks(asked.pid)) >= count - 1, "all wait", 60)
    return asked


def sleepers(arguments, verdict):
    percents = {}
    for count in SLEEPERS:
        with blocked(count) as asked:
            runs = []
            for _ in range(3):
                with Settled(asked.pid, "-m", "wall", *arguments.option, rate=arguments.rate) as run:
                    asked.ask(arguments.seconds)
                runs.append(run)
            percents[count] = sorted(run.percent() for run in runs)[1]
            stats = runs[-1].stats
            print(f"  {count} threads, one busy: sampler {percents[count]:.2f} % of one CPU ({min(run.percent() for run in runs):.2f} - {max(run.percent() for run in runs):.2f}); "
                  f"{stats['ticks']} ticks, {stats['ticks_missed']} missed, {stats['samples']} samples, {stats['samples_truncated']} truncated, {stats['stops']} stops", flush=True)
            if count < SLEEPERS[-1]:
                continue
            verdict.say(percents[count] <= SLEEPERS_CPU, f"{percents[count]:.2f} % of one CPU at {count}, limit {SLEEPERS_CPU:g} %")
            verdict.say(percents[count] <= TIMES * percents[SLEEPERS[0]], f"{percents[count] / percents[SLEEPERS[0]]:.2f} times what {SLEEPERS[0]} cost, limit {TIMES:g}")
            verdict.say(sum(run.stats["stopped_asleep"] for run in runs) == 0, f"stops of sleeping threads: {sum(run.stats['stopped_asleep'] for run in runs)}")
            returns = asked.ask(0.1)[3]
            verdict.say(returns == 0, f"waits that ended: {returns:.0f}")
            runs = []

            def sampled():
                with Settled(asked.pid, "-m", "wall", *arguments.option, rate=arguments.rate) as run:
                    turns = asked.ask(arguments.seconds)[0]
                runs.append(run)
                return turns

            pairs = take_pairs(arguments.pairs, lambda: asked.ask(arguments.seconds)[0], sampled, None)
            ours = Ours(runs)
            certain = 100 * (sum(run.cpu_ns for run in runs) / sum(run.seconds for run in runs) / 1e9)
            print(f"  ours for certain: {certain:.2f} % of one CPU, and stops of {ours.stopped_ns / 1e6:.1f} ms in {ours.target_ns / 1e9:.1f} s of work")
            verdict.change("work of the busy thread", pairs, SLOWER)
            verdict.say(certain + 100 * ours.stopped_ns / ours.target_ns <= -SLOWER, f"ours for certain {certain + 100 * ours.stopped_ns / ours.target_ns:.2f} %, limit {-SLOWER} %")


def launched(arguments, command, watch, *options):
    """(what the program said, stats, collapsed profile's sums, what `watch` says of the sampler while it runs)."""
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        profile, stats = os.path.join(directory, "profile"), os.path.join(directory, "stats")
        process = subprocess.Popen([SAMPLER, "-q", "-r", str(arguments.rate), *options, *arguments.option, "-o", profile, "--stats", stats, "--", *command],
                                   stdout=subprocess.PIPE, text=True)
        watched = watch(process.pid)
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{command}: status {process.returncode}")
        with open(stats, encoding="utf-8") as file:
            return json.loads(said.strip().splitlines()[-1]) if "{" in said else None, json.load(file), read_collapsed(profile), watched


def often(arguments, verdict):
    seconds = 10

    def watch(pid):
        time.sleep(2)
        before, start = cpu_ns(pid), time.monotonic()
        time.sleep(seconds - 3)
        return 100 * (cpu_ns(pid) - before) / 1e9 / (time.monotonic() - start)

    for mode in ("cpu", "wall"):
        truth, stats, (_, by_function), percent = launched(arguments, [CLOCKED, "often", str(seconds)], watch, "-m", mode, "--value", "ns", "--states")
        print(f"  {mode}: {stats['ticks']} ticks, {stats['ticks_missed']} missed, {stats['samples']} samples, {stats['stops']} stops, {stats['interrupted']} interrupted, {stats['left_out']} left out")
        verdict.say(percent <= OFTEN_CPU, f"{mode}: {percent:.1f} % of one CPU, limit {OFTEN_CPU:g} %")
        if mode == "cpu":
            share = truth["work_ns"]["work_0"] / sum(truth["work_ns"].values())
            seen = by_function["work_0"] / sum(by_function.values())
            sigma = abs(seen - share) / math.sqrt(share * (1 - share) / stats["samples"])
            verdict.say(sigma <= SIGMA, f"share of work_0 {100 * seen:.2f} %, truth {100 * share:.2f} %: {sigma:.2f} standard errors, limit {SIGMA:g}")
            verdict.say(abs(stats["cpu_ns_target"] - truth["cpu_ns"]) <= 0.001 * truth["cpu_ns"] + 3e6, f"CPU time {stats['cpu_ns_target'] / 1e9:.3f} s, truth {truth['cpu_ns'] / 1e9:.3f} s")


def many(arguments, verdict):
    seconds = 20

    def watch(pid):
        time.sleep(seconds / 5)
        first = resident_kb(pid)
        time.sleep(seconds * 0.75)
        return first, resident_kb(pid)

    for mode in ("cpu", "wall"):
        truth, stats, _, (first, last) = launched(arguments, [CLOCKED, "many", str(seconds)], watch, "-m", mode)
        print(f"  {mode}: {truth['threads']} threads in {seconds} s, {stats['threads_seen']} seen, {stats['samples']} samples, {stats['ticks']} ticks, {stats['ticks_missed']} missed")
        verdict.say(last <= GROWTH * first, f"{mode}: {first / 1024:.1f} MB after {seconds / 5:g} s, {last / 1024:.1f} MB at the end")
        verdict.say(abs(stats["cpu_ns_target"] - truth["cpu_ns"]) <= 0.01 * truth["cpu_ns"] + 3e6, f"CPU time {stats['cpu_ns_target'] / 1e9:.3f} s, truth {truth['cpu_ns'] / 1e9:.3f} s")


def processes(arguments, verdict):
    command = ["sh", "-c", "i=0; while [ $i -lt 100 ]; do sh -c 'j=0; while [ $j -lt 20 ]; do sleep 0.5; j=$((j+1)); done' & i=$((i+1)); done; wait"]

    def watch(pid):
        time.sleep(4)
        before, start, first = cpu_ns(pid), time.monotonic(), resident_kb(pid)
        time.sleep(5)
        return 100 * (cpu_ns(pid) - before) / 1e9 / (time.monotonic() - start), first, resident_kb(pid)

    _, stats, _, (percent, first, last) = launched(arguments, command, watch, "-m", "wall", "--children")
    print(f"  {stats['processes_seen']} processes, {stats['execs']} execs, {stats['samples']} samples, {stats['ticks']} ticks, {stats['ticks_missed']} missed; sampler {percent:.1f} % of one CPU")
    verdict.say(last <= 1.5 * first, f"{first / 1024:.1f} MB after 4 s, {last / 1024:.1f} MB after 9 s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--option", action="append", default=[], help="given to the sampler too, e.g. --option=--bpf=off")
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART")
    arguments = parser.parse_args()
    build("clocked", "blocked_target")
    verdict = Verdict()
    for part in arguments.parts:
        print(part, flush=True)
        {"sleepers": sleepers, "often": often, "many": many, "processes": processes}[part](arguments, verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
