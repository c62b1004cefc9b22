#!/usr/bin/env python3
"""The speed and memory of unwinding, against libunwind and libdwfl, in one run.

    bench/setup.sh && bench/unwind.py [--rounds N] [--stacks N] [--only warm|varied|cold]...

warm:   one stopped process of 30 frames without frame pointers, walked again and again: ours on the snapshot; libunwind on the same snapshot (caches
        kept); libunwind-ptrace with and without its cache; libdwfl kept, on the stopped process, and with the stack's words from the snapshot. The unwinders take turns in
        rounds; medians (least - most); ratios are of one round each.
varied: so many different stacks of clang at work, kept in memory and walked again: the first pass of a new unwinder, and later passes.
cold:   a library of 200,000 functions and more than 100 MB, with and without .eh_frame_hdr: a new unwinder's first frame, and what it holds after 1,000
        functions; beside libdw's.

Times are CPU time of the measuring thread. Each figure with a limit is shown as a share of it. Status 1 when a limit is passed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import oracle  # the script beside this one: sources for compilers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build/release")
BENCH = os.path.join(BUILD, "bench/unwind_bench")
LIBRARIES = os.path.join(ROOT, "build/bench")
FUNCTIONS, STRIDE = 200_000, 528
good = True


def build():
    subprocess.run(["cmake", "--preset", "release", "-DSAMPLER_E2E=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "unwind_bench", "unwind_target"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)


def run(*arguments):
    """Rows by name: numbers, or for counters a dictionary. A name that comes again replaces the earlier."""
    text = subprocess.run([BENCH, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = {}
    for line in text.splitlines():
        name, *values = line.split()
        if name.startswith("counters"):
            rows[name] = dict(zip(values[::2], map(int, values[1::2])))
        else:
            rows[name] = list(map(float, values))
    return rows


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def line(what, values, unit, limit=None, at_least=False):
    """One row; with a limit also the share of it that is used, and whether that is too much."""
    global good
    value = statistics.median(values)
    judged = ""
    if limit is not None:
        share = limit / value if at_least else value / limit
        good = good and share <= 1
        judged = f"   {'at least' if at_least else 'limit'} {limit:g}: {share:.2f} of it, {'PASS' if share <= 1 else 'over'}"
    print(f"  {what:52} {spread(values):>28} {unit:6}{judged}", flush=True)


def wait_until_it_spins(pid):
    """It says that it is ready some calls before it is as deep as it gets."""
    def ticks():
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rsplit(")", 1)[1].split()[11])
    start = ticks()
    while ticks() < start + 5:
        time.sleep(0.01)


def warm(arguments):
    with subprocess.Popen([os.path.join(BUILD, "bench/unwind_target")], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            wait_until_it_spins(process.pid)
            rows = run("warm", process.pid, arguments.rounds)
        finally:
            process.kill()
    frames = rows["frames"][0]
    print(f"\nwarm: one stack of {frames:.0f} frames, {arguments.rounds} rounds")
    ours = rows["ours"]
    line("ours, on the snapshot", ours, "us", 1.5)
    line("  a frame", [us / frames for us in ours], "us")
    print(f"  counters: {rows['counters_after']}")
    peers = {"libunwind_snapshot": ("libunwind, on the snapshot", 4), "libunwind_ptrace_cached": ("libunwind-ptrace, cache kept", 10),
             "libunwind_ptrace_uncached": ("libunwind-ptrace, no cache", None), "libdwfl": ("libdwfl, kept, process stopped", 10),
             "libdwfl_snapshot": ("libdwfl, kept, words from the snapshot", None)}
    for name, (words, limit) in peers.items():
        line(words, rows[name], "us")
        line("  a frame", [us / frames for us in rows[name]], "us")
        line("  times ours", [us / own for us, own in zip(rows[name], ours)], "", limit, at_least=True)
        print(f"    its first walk: {rows['first_' + name][0]:.0f} us")


def show_hits(what, counters, before=None):
    """What was found by address, in a row that was known, and what had to be compiled."""
    passed = {name: value - (before or {}).get(name, 0) for name, value in counters.items()}
    hits = passed["rule_hits"] + passed["rule_row_hits"]
    print(f"    {what}: {passed}, hit rate {100 * hits / max(1, hits + passed['rules_compiled']):.2f} %")


def varied(arguments):
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        path = oracle.write(os.path.join(directory, "generated.c"), oracle.c_source(1500))
        rows = run("varied", arguments.stacks, "clang", "-O2", "-c", path, "-o", "/dev/null")
    print(f"\nvaried: {rows['stacks'][0]:.0f} different stacks of clang, {rows['frames'][0]:.1f} frames and {rows['stack_bytes'][0]:.0f} bytes each")
    line("ours, first pass of a new unwinder, which makes the rules", rows["first"], "us")
    line("  a frame", [us / rows["frames"][0] for us in rows["first"]], "us")
    show_hits("counters", rows["counters_first"])
    line("ours, later passes", rows["later"], "us", 3)
    line("  a frame", [us / rows["frames"][0] for us in rows["later"]], "us")
    show_hits("counters", rows["counters_all"], rows["counters_first"])
    rules = rows["counters_first"]
    line("kept rules, bytes each", [rules["rule_bytes"] / max(1, rules["rules"])], "B", 64)
    line("ours, stack bytes in no cache", rows["uncached"], "us")
    if rows["stacks"][0] < arguments.stacks:
        print(f"  only {rows['stacks'][0]:.0f} of {arguments.stacks} stacks: clang was done")


ASSEMBLY = f"""
.text
.balign 16
.rept {FUNCTIONS}
.cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3, -16
.skip {STRIDE - 3}, 0x90
pop %rbx
.cfi_def_cfa_offset 8
ret
.cfi_endproc
.endr
.section .note.GNU-stack,"",@progbits
"""


def library(has_header):
    """Made once and kept."""
    path = os.path.join(LIBRARIES, f"cold-{FUNCTIONS}-{STRIDE}-{'hdr' if has_header else 'nohdr'}.so")
    if not os.path.exists(path):
        os.makedirs(LIBRARIES, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
            source, objects, linked = (os.path.join(directory, name) for name in ("cold.s", "cold.o", "cold.so"))
            oracle.write(source, ASSEMBLY)
            subprocess.run(["as", "-o", objects, source], check=True)
            subprocess.run(["ld", "-shared", "--eh-frame-hdr" if has_header else "--no-eh-frame-hdr", "-o", linked, objects], check=True)
            subprocess.run(["cp", linked, path + ".part"], check=True)
            os.rename(path + ".part", path)
    return path


def cold(_):
    for has_header, limit in ((True, 20), (False, 300)):
        path = library(has_header)
        rows = run("cold", path, FUNCTIONS, STRIDE)
        print(f"\ncold: {FUNCTIONS} functions, {os.path.getsize(path) / 1e6:.0f} MB, {'with' if has_header else 'without'} .eh_frame_hdr")
        line("image opened", [us / 1000 for us in rows["image_open"]], "ms")
        line("ours, new unwinder to first frame", [us / 1000 for us in rows["ours_first"]], "ms", limit)
        line("libdw, from opening to first row", [us / 1000 for us in rows["libdw_first"]], "ms")
        for what in ("malloc", "resident"):
            ours, theirs = rows[f"ours_{what}_kib"][0], rows[f"libdw_{what}_kib"][0]
            print(f"  {what} after 1,000 functions: ours {ours:.0f} KiB, libdw {theirs:.0f} KiB, ratio {ours / max(theirs, 1):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stacks", type=int, default=10_000)
    parser.add_argument("--only", action="append", choices=("warm", "varied", "cold"))
    arguments = parser.parse_args()
    build()
    for name, part in (("warm", warm), ("varied", varied), ("cold", cold)):
        if not arguments.only or name in arguments.only:
            part(arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
