#!/usr/bin/env python3
"""Does CPU time add up? Programs that know what they did, under the sampler, perf and gperftools in turn.

    bench/setup.sh && bench/accuracy.py [--seconds 20] [--rate 99] [--profiler sampler|perf|gperftools]... [KIND]...

The kinds are those of bench/clocked.c, which measures each function's CPU time by its threads' own clocks. For each kind and profiler: the CPU time that the
profile has, against the process's own (getrusage at its end), and the largest error of a function's share in standard errors of the number of samples.

Limits, of the sampler's lines: the sum of --value ns within 0.1 % and 3 ms; each share within 3 standard errors. (A standard error is that of independent samples: sqrt(p (1 - p) / n).
With CPUs shared by several threads, and with ticks at random moments of fixed periods, samples are a little better than independent.) Status 1 when one is passed.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from sampling import BUILD, ROOT, SAMPLER

CLOCKED = os.path.join(BUILD, "bench/clocked")
KINDS = ("split", "pair", "shared", "bursts", "lockstep", "parallel", "shortlived", "busy")
SUM_LIMIT, SUM_LIMIT_NS, SHARE_LIMIT = 0.001, 3e6, 3.0
PROFILER = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0"


def build():
    subprocess.run(["cmake", "--preset", "release", "-DSAMPLER_E2E=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "clocked", "sampler"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


class Seen:
    """What a profiler saw: nanoseconds in all, samples, and the share of each function, of what is in one."""

    def __init__(self, total_ns, samples, by_function):
        self.total_ns, self.samples, whole = total_ns, samples, sum(by_function.values())
        self.shares = {name: value / whole for name, value in by_function.items()} if whole else {}


def function_of(frames):
    return next((frame for frame in frames if re.fullmatch("work_[0-9]", frame)), None)


def read_collapsed(path):
    total, by_function = 0, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            stack, value = line.rsplit(" ", 1)
            total += int(value)
            name = function_of(stack.split(";"))
            if name:
                by_function[name] = by_function.get(name, 0) + int(value)
    return total, by_function


def under_sampler(command, rate, directory):
    profile, stats = os.path.join(directory, "profile"), os.path.join(directory, "stats")
    done = subprocess.run([SAMPLER, "-q", "-r", str(rate), "--value", "ns", "-o", profile, "--stats", stats, "--", *command], stdout=subprocess.PIPE, text=True, check=True)
    total, by_function = read_collapsed(profile)
    with open(stats, encoding="utf-8") as file:
        samples = json.load(file)["samples"]
    return last_json(done.stdout), Seen(total, samples, by_function)


def under_perf(command, rate, directory):
    path = os.path.join(directory, "perf.data")
    done = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(rate), "-g", "-o", path, "--", *command], stdout=subprocess.PIPE, text=True, check=True)
    script = subprocess.run(["perf", "script", "-i", path, "-F", "period,ip,sym"], capture_output=True, text=True, check=True).stdout
    total, samples, by_function = 0, 0, {}
    for record in script.strip().split("\n\n"):
        lines = record.splitlines()
        if not lines or not lines[0].strip().split()[0].isdigit():
            continue
        period = int(lines[0].split()[0])
        total, samples = total + period, samples + 1
        name = function_of([line.split()[1] for line in lines[1:] if len(line.split()) > 1])
        if name:
            by_function[name] = by_function.get(name, 0) + period
    return last_json(done.stdout), Seen(total, samples, by_function)


def under_gperftools(command, rate, directory):
    path = os.path.join(directory, "gperf")
    environment = {**os.environ, "LD_PRELOAD": PROFILER, "CPUPROFILE": path, "CPUPROFILE_FREQUENCY": str(rate)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, env=environment)
    text = subprocess.run(["google-pprof", "--text", "--nodefraction=0", "--edgefraction=0", command[0], path], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Total: ([0-9]+) samples", text)
    samples = int(found[1]) if found else 0  # it says so of none: "No nodes to print"
    by_function = {match[2]: int(match[1]) for match in re.finditer(r"([0-9]+)\s+[0-9.]+% (work_[0-9])$", text, re.M)}
    return last_json(done.stdout), Seen(samples * 1e9 / rate, samples, by_function)


def judge_shares(truth, seen):
    """The largest error of a share, in standard errors."""
    whole, worst = sum(truth["work_ns"].values()), 0.0
    for name, ns in truth["work_ns"].items():
        share = ns / whole
        if 0 < share < 1:
            worst = max(worst, abs(seen.shares.get(name, 0) - share) / math.sqrt(share * (1 - share) / max(seen.samples, 1)))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--profiler", action="append", choices=("sampler", "perf", "gperftools"), help="default: all that are there")
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND")
    arguments = parser.parse_args()
    build()
    profilers = [("sampler", under_sampler), ("perf", under_perf)]
    if os.path.exists(PROFILER):
        profilers.append(("gperftools", under_gperftools))
    profilers = [row for row in profilers if row[0] in (arguments.profiler or row[0])]
    good = True
    print(f"{'':12}{'':12}{'CPU time, s':>14}{'in the profile':>16}{'error':>22}{'samples':>10}{'worst share, sigma':>20}")
    for kind in arguments.kinds:
        for name, under in profilers:
            with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
                truth, seen = under([CLOCKED, kind, str(arguments.seconds)], arguments.rate, directory)
            error_ns, worst, verdict = seen.total_ns - truth["cpu_ns"], judge_shares(truth, seen), ""
            if name == "sampler":
                is_good = abs(error_ns) <= SUM_LIMIT * truth["cpu_ns"] + SUM_LIMIT_NS and worst <= SHARE_LIMIT
                good, verdict = good and is_good, "PASS" if is_good else "FAIL"
            print(f"{kind:12}{name:12}{truth['cpu_ns'] / 1e9:14.3f}{seen.total_ns / 1e9:16.3f}{error_ns / 1e6:+12.1f} ms {100 * error_ns / truth['cpu_ns']:+6.2f} %"
                  f"{seen.samples:10}{worst:20.2f}  {verdict}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
