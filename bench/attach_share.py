#!/usr/bin/env python3
"""How often is a debugger or strace refused because it attaches in the moment of one of our stops?

    cmake --build --preset release --target attach_probe
    bench/attach_share.py [--attaches N] [--rates 99,999] [--tools N] [--only NAME]

For programs with one and with eight threads, with CPUs to spare and with four runnable threads a CPU, at each rate: the
share of refused attaches (PTRACE_SEIZE of all threads, at random moments), of refused threads, and beside them the share of
time in which a thread was held by us (the sum of all stops, over time and threads). Then some real `strace -f -p` and `gdb -p`.
An attach that the sampler notices keeps it away for 0.1 s, in both shares.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build/release")
SAMPLER = os.path.join(BUILD, "sampler/sampler")
PROBE = os.path.join(BUILD, "bench/attach_probe")
TESTPROGS = os.path.join(BUILD, "testprogs")
PERIOD_MS = 50


class Target:
    def __init__(self, name, *arguments):
        command = [os.path.join(TESTPROGS, name), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if not self.process.stdout.readline().startswith(b"ready"):
            sys.exit(f"{command} did not start")

    def __enter__(self):
        return self.process.pid

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class Sampled:
    """The process is sampled while the block runs; `stats` afterwards."""

    def __init__(self, pid, rate):
        self.file = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen([SAMPLER, "-q", "-r", str(rate), "-o", "/dev/null", "--stats", self.file.name, "-p", str(pid)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        with open(self.file.name, encoding="utf-8") as file:
            self.stats = json.load(file)


def strace_refused(pid):
    with subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(pid)], stderr=subprocess.PIPE, bufsize=0) as strace:
        line = strace.stderr.readline().decode()
        strace.terminate()
        strace.communicate()
    return "with 9 threads" not in line  # of a thread that refused it says nothing


def gdb_refused(pid):
    done = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    return "not permitted" in done.stdout + done.stderr


def percent(part, whole):
    return f"{100 * part / whole:7.2f} %" if whole else "      -  "


def measure(name, command, threads, arguments):
    for rate in arguments.rates:
        with Target(*command) as pid:
            with Sampled(pid, rate) as sampled:
                probe = subprocess.run([PROBE, str(pid), str(arguments.attaches), str(PERIOD_MS)], stdout=subprocess.PIPE, check=True)
        probed, stats = json.loads(probe.stdout), sampled.stats
        print(f"{name:22s} {rate:4d} Hz  attaches {probed['attaches']:5d} refused {percent(probed['refused'], probed['attaches'])}"
              f"  threads refused {percent(probed['seizes_refused'], probed['seizes'])}"
              f"  held {percent(stats['stop_ns']['sum'], stats['wall_ns'] * threads)}", flush=True)


def measure_tool(tool, refused, arguments):
    for rate in arguments.rates:
        with Target("counters", "/dev/shm/attach_share", "600") as pid:
            with Sampled(pid, rate):
                count = 0
                for _ in range(arguments.tools):
                    time.sleep(random.uniform(0.15, 0.2))  # until it is sampled again
                    count += refused(pid)
        print(f"{tool:22s} {rate:4d} Hz  attaches {arguments.tools:5d} refused {percent(count, arguments.tools)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--attaches", type=int, default=1000)
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--rates", type=lambda text: [int(rate) for rate in text.split(",")], default=[99, 999])
    parser.add_argument("--only", default="", help="only measurements with this in their name")
    arguments = parser.parse_args()
    for name, command, threads in (("1 thread", ["chain_fp"], 1),
                                   ("8 threads, CPUs free", ["counters", "/dev/shm/attach_share", "600"], 9),
                                   ("8 threads, 4 a CPU", ["spinners", "8", "600"], 9)):
        if arguments.only in name:
            measure(name, command, threads, arguments)
    for tool, refused in (("strace -f", strace_refused), ("gdb", gdb_refused)):
        if arguments.only in tool:
            measure_tool(tool, refused, arguments)


if __name__ == "__main__":
    main()
