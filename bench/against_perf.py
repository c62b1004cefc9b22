#!/usr/bin/env python3
"""The sampler and `perf record -F 99 --call-graph dwarf` on the same process at the same time: do they see the same?

    bench/setup.sh && bench/against_perf.py [--seconds N] [xz|node|cxx]...

For each target: how many of the sampler's stacks reach their root and have names, then the hottest functions (innermost user frames: time in the kernel counts for who called it) of both
with the difference of their shares in standard deviations of that difference. Agreement: the five hottest of perf all within 3.
Run as root (perf and ptrace of what it starts itself; perf may need kernel.perf_event_paranoid <= 2 for others).
"""

import argparse
import collections
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLER = os.path.join(ROOT, "build/release/sampler/sampler")
PORT = 8127


def start(command, **options):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)


def wait_ready(process):
    line = process.stdout.readline()
    if b"ready" not in line:
        sys.exit(f"the target did not start: {line!r}")


class Targets:
    """Each starts its target in `directory` and gives (process to sample, other processes)."""

    def __init__(self, directory, seconds):
        self.directory, self.seconds = directory, seconds

    def xz(self):
        generator = random.Random(1)
        words = [generator.randbytes(generator.randrange(2, 12)) for _ in range(5000)]
        path = os.path.join(self.directory, "data")
        with open(path, "wb") as file:
            for _ in range(40):
                file.write(b"".join(generator.choices(words, k=500000)))
        # Blocks small enough that both threads have one.
        process = start(["xz", "-9", "-T2", "--block-size=16MiB", "-k", "-c", path], stdout=subprocess.DEVNULL)
        time.sleep(1)
        return process, []

    def node(self):
        process = start(["node", "--perf-basic-prof", os.path.join(ROOT, "bench/server.js"), str(PORT)],
                        stdout=subprocess.PIPE, cwd=self.directory)
        wait_ready(process)
        load = start(["node", os.path.join(ROOT, "bench/load.js"), str(PORT), str(self.seconds + 6)], stdout=subprocess.DEVNULL)
        time.sleep(2)
        return process, [load]

    def cxx(self):
        process = start([os.path.join(ROOT, "build/bench/cxx_work"), str(self.seconds + 8), "2"], stdout=subprocess.PIPE)
        wait_ready(process)
        time.sleep(1)
        return process, []


def read_sampler(path):
    stacks = collections.Counter()
    with open(path, encoding="utf-8") as file:
        for line in file:
            stack, count = line.rstrip("\n").rsplit(" ", 1)
            stacks[tuple(stack.split(";"))] += int(count)
    return stacks


def plain(name):
    """Without the compiler's suffixes: "f [clone .isra.0]" is f."""
    return re.sub(r" \[clone [^]]*\]", "", name)


def clean(symbol, module, known):
    """
    perf's name for a frame as the sampler would write it. perf also reads separate debug files: a file of which the sampler shows code as "[file]" (it is
    among the `known` names) stands as one for all of its code.
    """
    base = os.path.basename(module)
    if base.startswith("perf-") and base.endswith(".map"):
        return symbol.replace(";", ":") + "_[j]" if symbol != "[unknown]" else "[anon]"
    if symbol == "[unknown]" or f"[{base}]" in known:
        return f"[{base}]"
    return plain(symbol)


def read_perf(path, known):
    """Innermost user frames of a recording: name -> samples."""
    script = subprocess.run(["perf", "script", "-i", path, "--no-inline", "-F", "comm,tid,ip,sym,dso"], capture_output=True,
                            text=True, check=True, errors="replace").stdout
    leaves, files = collections.Counter(), {}
    for event in script.split("\n\n"):
        for line in event.strip("\n").split("\n")[1:]:
            match = re.match(r"\s*([0-9a-f]+) (.*) \((.*)\)$", line)
            if match and match[3].startswith("/"):
                files[f"[{os.path.basename(match[3])}]"] = match[3]
            if match and "kernel" not in match[3] and not match[1].startswith("ffff"):
                leaves[clean(match[2], match[3], known)] += 1
                break
    return leaves, files


def fold(ours, files, known):
    """The same on our side: what a file exports, of which other code has no name, stands for the file."""
    folded = collections.Counter()
    owner = {}
    for label in known & files.keys():
        exported = subprocess.run(["nm", "-D", "--defined-only", files[label]], capture_output=True, text=True, check=False).stdout
        owner.update({line.split()[-1].split("@")[0]: label for line in exported.splitlines() if line.strip()})
    for leaf, count in ours.items():
        folded[owner.get(leaf, leaf)] += count
    return folded


def report(name, stacks, ours, leaves, summary):
    total = sum(stacks.values())
    cut = sum(count for stack, count in stacks.items() if stack[1] in ("[truncated]", "[failed]"))
    unknown = sum(count for stack, count in stacks.items() if "[unknown]" in stack)
    jit = len({frame for stack in stacks for frame in stack if frame.endswith("_[j]")})
    theirs_total = sum(leaves.values())
    print(f"\n== {name}: {summary.strip()}")
    print(f"stacks that reach their root {100 * (1 - cut / total):.2f} %, with [unknown] {100 * unknown / total:.2f} %, "
          f"JIT functions named {jit}")
    print(f"{'perf':>7} {'sampler':>8} {'diff/sigma':>10}   ({theirs_total} and {total} samples)")
    worst = 0.0
    for function, count in leaves.most_common(5):
        p, q = count / theirs_total, ours[function] / total
        mean = (count + ours[function]) / (theirs_total + total)
        sigma = math.sqrt(max(mean * (1 - mean), 1e-9) * (1 / theirs_total + 1 / total))
        worst = max(worst, abs(p - q) / sigma)
        print(f"{100 * p:6.1f} % {100 * q:6.1f} % {(q - p) / sigma:+10.2f}   {function[:90]}")
    agrees = worst <= 3
    print("the five hottest agree" if agrees else "THE FIVE HOTTEST DO NOT AGREE")
    return agrees and cut / total <= 0.01 and unknown / total < 0.01


def measure(name, seconds):
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        process, others = getattr(Targets(directory, seconds), name)()
        try:
            recording, profile = os.path.join(directory, "perf.data"), os.path.join(directory, "profile")
            perf = start(["perf", "record", "-q", "-F", "99", "-e", "cpu-clock", "--call-graph", "dwarf", "-o", recording, "-p",
                          str(process.pid), "--", "sleep", str(seconds)], stderr=subprocess.DEVNULL)
            run = subprocess.run([SAMPLER, "-r", "99", "-d", str(seconds), "-o", profile, "-p", str(process.pid)],
                                 capture_output=True, text=True, check=True)
            perf.wait()
            stacks = read_sampler(profile)
            ours = collections.Counter()
            for stack, count in stacks.items():
                ours[plain(stack[-1])] += count
            known = {leaf for leaf, count in ours.items() if not leaf.startswith("[") or count >= 0.01 * sum(ours.values())}
            leaves, files = read_perf(recording, known)
            return report(name, stacks, fold(ours, files, known), leaves, run.stderr)
        finally:
            for each in [process, *others]:
                each.kill()
                each.wait()
            for path in (f"/tmp/perf-{process.pid}.map",):
                if os.path.exists(path):
                    os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("targets", nargs="*", default=["xz", "node", "cxx"])
    arguments = parser.parse_args()
    good = [measure(name, arguments.seconds) for name in arguments.targets]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
