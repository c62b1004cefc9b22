#!/usr/bin/env python3
"""sampler compare on five programs, each with a count of its own work.

    bench/setup.sh && bench/compare_five.py [--seconds S] [--rate HZ] [--warm S] [--json] [--lock FILE] [--directory DIR] [NAME]...

c_fp      C with frame pointers, two busy threads (bench/compare_target.c)
cxx       C++ without frame pointers, two busy threads (bench/cxx_work.cc)
node      bench/work/counted.js, its JIT code named by --perf-basic-prof
java      bench/work/Counted.java, its JIT code named by `jcmd PID Compiler.perfmap` once it is warm
sleepers  200 threads that mostly sleep (bench/compare_target.c), in wall mode, which perf does not have

Each table is printed and left in DIR (build/bench/compare): NAME.txt, or NAME.json with --json.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import locked
from sampling import BUILD, ROOT, SAMPLER, build

BENCH = os.path.join(ROOT, "bench")
BUILT = os.path.join(ROOT, "build/bench")
DAY = "86400"


def c_fp(counter):
    return [os.path.join(BUILD, "bench/compare_target"), counter, "2", "0"]


def cxx(counter):
    path = os.path.join(BUILT, "cxx_work")
    subprocess.run(["g++", "-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o", path, os.path.join(BENCH, "cxx_work.cc")], check=True)
    return [path, DAY, "2", counter]


def node(counter):
    return ["node", "--perf-basic-prof", "--interpreted-frames-native-stack", os.path.join(BENCH, "work/counted.js"), counter]


def java(counter):
    subprocess.run(["javac", "-d", BUILT, os.path.join(BENCH, "work/Counted.java")], check=True)
    return ["java", "-XX:+PreserveFramePointer", "-cp", BUILT, "Counted", counter]


def sleepers(counter):
    return [os.path.join(BUILD, "bench/compare_target"), counter, "0", "200"]


# How each is started, the mode, and how perf is to follow its stacks: frames of JIT code it knows by frame pointers only.
PROGRAMS = {"c_fp": (c_fp, "cpu", "fp"), "cxx": (cxx, "cpu", "dwarf"), "node": (node, "cpu", "fp"), "java": (java, "cpu", "fp"), "sleepers": (sleepers, "wall", None)}


class Target:
    """A program that has said "ready", in a directory of its own; killed at the end."""

    def __init__(self, command, directory):
        # What a JIT says of its code goes to /tmp/perf-PID.map, wherever it runs.
        self.process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def __enter__(self):
        if "ready" not in self.process.stdout.readline():
            self.__exit__()
            sys.exit(f"{self.process.args} did not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        try:
            os.unlink(f"/tmp/perf-{self.pid}.map")
        except FileNotFoundError:
            pass


def compare(name, pid, counter, arguments, output):
    _, mode, by = PROGRAMS[name]
    command = [SAMPLER, "compare", "-p", str(pid), "-m", mode, "-r", str(arguments.rate), "-d", str(arguments.seconds), "-o", output,
               "--work", f"od -An -tu8 -N8 {shlex.quote(counter)}"]
    command += [f"--with-perf={by}"] if by else []
    command += ["--json"] if arguments.json else []
    # A Ctrl-C is the sampler's: it ends its windows and writes the table.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(command, check=False, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def measure(name, arguments):
    suffix = "json" if arguments.json else "txt"
    output = os.path.join(arguments.directory, f"{name}.{suffix}")
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        counter = os.path.join(directory, "counter")
        with locked(arguments.lock), Target(PROGRAMS[name][0](counter), directory) as target:
            time.sleep(arguments.warm)
            if name == "java":
                subprocess.run(["jcmd", str(target.pid), "Compiler.perfmap"], check=True, stdout=subprocess.DEVNULL)
            status = compare(name, target.pid, counter, arguments, output)
    print(f"\n== {name}: {output}, status {status}", flush=True)
    if status == 0:
        with open(output, encoding="utf-8", errors="replace") as file:
            print(file.read(), flush=True)
    return status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="of all windows of a program together")
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--warm", type=float, default=10, help="seconds in which JITs compile, before")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE while a program is measured")
    parser.add_argument("--directory", default=os.path.join(BUILT, "compare"))
    parser.add_argument("names", nargs="*", default=list(PROGRAMS), metavar="|".join(PROGRAMS))
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in PROGRAMS]:
        parser.error(f"unknown: {' '.join(unknown)}")
    build("sampler", "compare_target")
    os.makedirs(arguments.directory, exist_ok=True)
    return 0 if all([measure(name, arguments) for name in arguments.names]) else 1


if __name__ == "__main__":
    sys.exit(main())
