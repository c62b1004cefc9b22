#!/usr/bin/env python3
"""What sampling costs runtimes that live by signals, beside a tracer that keeps them seized.

    bench/setup.sh && bench/runtimes.py [--pairs N] [--seconds S] [--rate HZ] [--lock FILE] [java|go]...

bench/work/Signals.java (a SIGSEGV for each null pointer that compiled code meets, and safepoints all the time; C1 alone compiles, since C2 learns to check) and
bench/work/signals.go (preemption of loops by SIGURG, and signals of its own). Throughput unsampled and sampled in turn, in cpu and in wall mode, and unsampled and
seized by bench/naive_tracer, which lets each thread go on whenever it stops, as a tracer does that seizes once and stays. The median of the pairs' ratios, its
95 % interval, and what is the sampler's for certain (see bench/servers.py). How many signals the target gets is counted by strace for a second first.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import Ratio, locked, take_pairs
from sampling import ROOT, Asked, Ours, Sampling, Tracer, Verdict, build

WORK = os.path.join(ROOT, "bench/work")
BUILT = os.path.join(ROOT, "build/bench")
THROUGHPUT_LIMIT = -3


def java():
    subprocess.run(["javac", "-d", BUILT, os.path.join(WORK, "Signals.java")], check=True)
    return ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", BUILT, "Signals"]


def go():
    path = os.path.join(BUILT, "signals_go")
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as cache:
        subprocess.run(["go", "build", "-o", path, os.path.join(WORK, "signals.go")], check=True, env={**os.environ, "GOCACHE": cache, "GO111MODULE": "off"})
    return [path]


RUNTIMES = {"java": java, "go": go}


def count_signals(pid):
    """Signals a second, as strace sees them; it slows the target down."""
    with tempfile.NamedTemporaryFile(prefix="sampler-bench-", mode="r", encoding="utf-8", errors="replace") as log:
        tracer = subprocess.Popen(["strace", "-f", "-e", "trace=none", "-o", log.name, "-p", str(pid)], stderr=subprocess.DEVNULL)
        time.sleep(1)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(30)
        counts = {}
        for name in re.findall(r"--- (SIG\w+) ", log.read()):
            counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def measure(name, arguments, verdict):
    with Asked(RUNTIMES[name]()) as target:
        with locked(arguments.lock):
            signals = count_signals(target.pid)
            plain = target.ask(arguments.seconds)[0]
        print(f"\n{name}: {plain:.0f} turns a second; signals a second (under strace): {signals}; {arguments.pairs} pairs of {arguments.seconds:g} s at {arguments.rate} Hz")
        for mode in ("cpu", "wall"):
            runs = []

            def sampled():
                with Sampling(target.pid, "-m", mode, rate=arguments.rate) as run:
                    turns = target.ask(arguments.seconds)[0]
                runs.append(run)
                return turns

            pairs = take_pairs(arguments.pairs, lambda: target.ask(arguments.seconds)[0], sampled, arguments.lock)
            ours = Ours(runs)
            print(f"  {mode}: ours for certain: {ours}; {sum(run.stats['signals_forwarded'] for run in runs)} signals met a stop")
            verdict.change(f"throughput, {mode} mode", pairs, THROUGHPUT_LIMIT, ours)

        def seized():
            with Tracer("seized", target.pid):
                return target.ask(arguments.seconds)[0]

        pairs = take_pairs(arguments.pairs, lambda: target.ask(arguments.seconds)[0], seized, arguments.lock)
        print(f"  for comparison, throughput under a tracer that keeps all threads seized: {Ratio(pairs)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE during the pairs")
    parser.add_argument("runtimes", nargs="*", default=list(RUNTIMES), metavar="java|go")
    arguments = parser.parse_args()
    build("naive_tracer")
    os.makedirs(BUILT, exist_ok=True)
    verdict = Verdict()
    for name in arguments.runtimes:
        measure(name, arguments, verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
