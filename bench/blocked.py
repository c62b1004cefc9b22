#!/usr/bin/env python3
"""A thousand blocked threads: all their stacks at once, and what they cost beside threads that work.

    bench/setup.sh && bench/blocked.py [--threads N] [--busy N] [--rounds N] [--pairs N] [--seconds S] [--rate HZ] [--lock FILE] [--only once|busy]

once: one tick of wall mode on bench/blocked_target with so many threads (built without frame pointers, and with), against eu-stack and gdb on the same
      process. Of the sampler: CPU time of all its threads but for names, which is no less than the time until the last stack is known, since its start, maps and
      the writing of the file are in it; and elapsed time of the whole command, in which it waits for its tick.
busy: so many of the threads work. Throughput unsampled and sampled (wall mode) in turn: the median of the pairs' ratios with its 95 % interval (bench/pairs.py),
      and the longest that a working thread stood still while it neither ran nor waited for a CPU. Beside it bench/naive_tracer, which stops all threads at each tick.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import Ratio, locked, take_pairs
from sampling import BUILD, SAMPLER, Asked, Ours, Sampling, Tracer, Verdict, build, state, tasks, wait_until

BEFORE_NAMES_LIMIT_MS, THROUGHPUT_LIMIT, PAUSE_LIMIT_US = 60, -3, 2000


def target(program, blocked, busy):
    asked = Asked([os.path.join(BUILD, "bench", program), blocked, busy])
    wait_until(lambda: sum(state(asked.pid, tid) == "S" for tid in tasks(asked.pid)) >= blocked, "all wait")
    return asked


def one_tick(pid):
    """(CPU ms without names, elapsed ms, stats, stacks that are whole)."""
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        profile, path = os.path.join(directory, "profile"), os.path.join(directory, "stats")
        start = time.monotonic()
        process = subprocess.Popen([SAMPLER, "-q", "-m", "wall", "-r", "10", "--jitter", "off", "-d", "0.1", "--threads", "-o", profile, "--stats", path, "-p", str(pid)])
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_ms = 1000 * (time.monotonic() - start)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"the sampler: status {process.returncode}")
        with open(path, encoding="utf-8") as file:
            stats = json.load(file)
    return 1000 * (usage.ru_utime + usage.ru_stime) - stats["symbol_ns"] / 1e6, elapsed_ms, stats


def other(*command):
    """(elapsed ms, threads whose stack it shows)."""
    start = time.monotonic()
    run = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, errors="replace")
    elapsed_ms = 1000 * (time.monotonic() - start)
    return elapsed_ms, sum(line.startswith(("TID ", "Thread ")) for line in run.stdout.splitlines())


def spread(values):
    return f"{statistics.median(values):8.1f} ms ({min(values):.1f} - {max(values):.1f})"


def once(program, arguments, verdict):
    others = {
        "eu-stack -q (no names)": ["eu-stack", "-q", "-p"],
        "eu-stack": ["eu-stack", "-p"],
        "eu-stack -n 0 -i (all frames, inlined ones)": ["eu-stack", "-n", "0", "-i", "-p"],
        "gdb thread apply all bt": ["gdb", "-nx", "-batch", "-ex", "thread apply all bt", "-p"],
    }
    with target(program, arguments.threads, 0) as asked:
        print(f"\n{program}, {arguments.threads} blocked threads, stacks of all at once, {arguments.rounds} rounds")
        rows = []
        for _ in range(arguments.rounds):
            with locked(arguments.lock):
                rows.append(one_tick(asked.pid))
        stats = rows[-1][2]
        ticks = [row[2]["ticks"] for row in rows]
        # By tick, if there was more than one.
        per_tick = [row[0] / row[2]["ticks"] for row in rows]
        print(f"  sampler, whole command, waiting for its tick in it {spread([row[1] for row in rows])}; ticks {ticks}; names {stats['symbol_ns'] / 1e6:.1f} ms, "
              f"unwinding {stats['unwind_ns'] / 1e6:.1f} ms")
        print(f"  {stats['samples']} samples, {stats['samples_truncated']} truncated, {stats['unstopped']} without a stop, {stats['inferred']} inferred")
        verdict.say(statistics.median(per_tick) <= BEFORE_NAMES_LIMIT_MS, f"sampler, CPU time before names {spread(per_tick)}, limit {BEFORE_NAMES_LIMIT_MS} ms")
        stops = [row[2]["stops"] for row in rows]
        verdict.say(max(stops) == 0, f"threads stopped: {max(stops)}")
        returns = asked.ask(0.1)[3]
        verdict.say(returns == 0, f"waits that ended with EINTR: {returns:.0f}")
        verdict.say(all(row[2]["samples_truncated"] == 0 for row in rows), f"stacks that are not whole: {max(row[2]['samples_truncated'] for row in rows)}")
        for name, command in others.items():
            with locked(arguments.lock):
                ms, shown = other(*command, asked.pid)
            print(f"  {name:45} {ms:8.1f} ms, {shown} threads, all stopped, {asked.ask(0.1)[3]:.0f} waits ended; {ms / statistics.median(per_tick):.0f} times ours", flush=True)


def busy(program, arguments, verdict):
    with target(program, arguments.threads - arguments.busy, arguments.busy) as asked:
        print(f"\n{program}, {arguments.threads} threads, {arguments.busy} of them busy, {arguments.pairs} pairs of {arguments.seconds:g} s at {arguments.rate} Hz")
        runs, worst, plain_worst, naive_worst = [], [], [], []

        def ask(into):
            turns, stops, worst_us, _ = asked.ask(arguments.seconds)
            into.append((worst_us, stops))
            return turns

        def sampled():
            with Sampling(asked.pid, "-m", "wall", rate=arguments.rate) as run:
                turns = ask(worst)
            runs.append(run)
            return turns

        def stopped():
            with Tracer("stopper", asked.pid, arguments.rate):
                return ask(naive_worst)

        pairs = take_pairs(arguments.pairs, lambda: ask(plain_worst), sampled, arguments.lock)
        ours = Ours(runs)
        print(f"  ours for certain, on {os.cpu_count()} CPUs: {ours}")
        print(f"  ticks {sum(run.stats['ticks'] for run in runs)}, missed {sum(run.stats['ticks_missed'] for run in runs)}")
        # A stop's time has the wait for a CPU in it, which a busy thread would have had anyway: the program's own figure says what was a pause.
        verdict.change("throughput of the busy threads", pairs, THROUGHPUT_LIMIT)
        cpu = 100 * ours.cpu_ns / max(1, ours.target_ns)
        verdict.say(cpu <= abs(THROUGHPUT_LIMIT), f"the sampler's CPU time is {cpu:.2f} % of theirs")
        verdict.say(max(us for us, _ in worst) <= PAUSE_LIMIT_US, f"longest pause of a busy thread {max(us for us, _ in worst):.0f} us, unsampled {max(us for us, _ in plain_worst):.0f} us; "
                    f"{sum(n for _, n in worst):.0f} pauses of more than 10 us, unsampled {sum(n for _, n in plain_worst):.0f}")
        pairs = take_pairs(max(6, arguments.pairs // 2), lambda: ask(plain_worst), stopped, arguments.lock)
        print(f"  for comparison, all threads stopped at each tick: {Ratio(pairs)}, longest pause {max(us for us, _ in naive_worst):.0f} us", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE during each measurement")
    parser.add_argument("--only", choices=("once", "busy"))
    arguments = parser.parse_args()
    build("naive_tracer", "blocked_target", "blocked_target_fp")
    verdict = Verdict()
    for name, part in (("once", once), ("busy", busy)):
        if arguments.only in (None, name):
            for program in ("blocked_target", "blocked_target_fp"):
                part(program, arguments, verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
