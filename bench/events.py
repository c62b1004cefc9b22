#!/usr/bin/env python3
"""What noticing new threads, children and mappings costs, by each source of events (--events).

    bench/events.py [--rounds N] [--seconds S] [--rate HZ] [--children] [WORK]...

Works: threads, fork, switch, maps (bench/events_target.c), each pinned to a CPU and sampled by a sampler on another one; the sources take turns, also none (no
sampler). Told are medians of the target's CPU time for one thread, child, switch or mapping, and the ratio to `proc` in the same round: sampling itself costs
the same in all of them. `tick`: CPU time of the capture thread a tick while the target sleeps; `tick+threads`: the same while another process starts threads.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLER = os.path.join(ROOT, "build/release/sampler/sampler")
TARGET = os.path.join(ROOT, "build/release/bench/events_target")
SOURCES = ("none", "proc", "perf", "perf-threads")


def build():
    subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "sampler", "events_target"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)


def start_target(work, seconds, cpu):
    target = subprocess.Popen(["taskset", "-c", str(cpu), TARGET, work, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    target.stdout.readline()
    return target


def capture_cpu_ns(pid):
    """CPU time of the sampler's capture thread so far, or None before it has begun."""
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="ascii") as comm:
                if comm.read() == "capture\n":
                    with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as schedstat:
                        return int(schedstat.read().split()[0])
    return None


@contextlib.contextmanager
def sampling(source, target, options, stats):
    if source == "none":
        yield None
        return
    sampler = subprocess.Popen(["taskset", "-c", str(options.cpus[0]), SAMPLER, "-q", "--events", source, "-r", str(options.rate), "-o", "/dev/null",
                                "--stats", stats, *(["--children"] if options.children else []), "-p", str(target.pid)])
    while capture_cpu_ns(sampler.pid) is None:
        time.sleep(0.01)
    try:
        yield sampler
    finally:
        sampler.terminate()
        sampler.wait()
        with open(stats, encoding="utf-8") as file:
            used = json.load(file)["events"]
        if used != source:
            raise SystemExit(f"--events {source} is not to be had here: {used}")


def cost_of(work, source, options, stats):
    """CPU ns of the target a time."""
    target = start_target(work, options.seconds, options.cpus[1])
    with sampling(source, target, options, stats):
        count, cpu_ns = map(int, target.communicate("go\n")[0].split())
    return cpu_ns / count


def cost_of_tick(beside, source, options, stats):
    """CPU ns of the capture thread a tick."""
    target = start_target("sleep", options.seconds + 1, options.cpus[1])
    other = start_target(beside, options.seconds + 1, options.cpus[1]) if beside else None
    with sampling(source, target, options, stats) as sampler:
        if other:
            other.stdin.write("go\n")
            other.stdin.flush()
        time.sleep(options.seconds)
        cpu_ns = capture_cpu_ns(sampler.pid)
    for process in filter(None, (target, other)):
        process.kill()
        process.communicate()
    with open(stats, encoding="utf-8") as file:
        return cpu_ns / json.load(file)["ticks"]


def measure(name, function, options, sources):
    values = {source: [] for source in sources}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(options.rounds):
            for source in sources:
                values[source].append(function(source, os.path.join(directory, "stats")))
    for source in sources:
        us = [value / 1e3 for value in values[source]]
        ratios = [value / other for value, other in zip(values[source], values["proc"])]
        print(f"{name:14} {source:13} {statistics.median(us):9.2f} us ({min(us):.2f} - {max(us):.2f})   {statistics.median(ratios):.2f} of proc",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--children", action="store_true")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    options.cpus = allowed[0], allowed[-1]
    build()
    for work in options.works or ("threads", "fork", "switch", "maps", "tick", "tick+threads"):
        if work.startswith("tick"):
            measure(work, lambda source, stats, work=work: cost_of_tick(work[5:], source, options, stats), options, SOURCES[1:])
        else:
            measure(work, lambda source, stats, work=work: cost_of(work, source, options, stats), options, SOURCES)


if __name__ == "__main__":
    main()
