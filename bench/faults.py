#!/usr/bin/env python3
"""The fault campaign: what a killed sampler, a killed target and churning threads leave behind. Nothing, it should say.

    bench/faults.py [--kind kill-sampler|kill-at-call|kill-target|exit-race|churn]... [--runs N] [--every N] [--seed S]

Each kind has 500 runs unless --runs says otherwise; kill-at-call kills at each stop before and after a system call of one short run,
and at the first 400 of those of ptrace, waitid and process_vm_readv in a longer one (--every N: at each N-th). All takes about 10 minutes on 2 cores. Status 1 if anything was left: a target stopped, traced, or with another
exit status than its own, a signal lost, a sampler that does not end, descriptors or zombies. Needs the release build with -DSAMPLER_E2E=ON.
"""

import argparse
import os
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("SAMPLER", os.path.join(ROOT, "build/release/sampler/sampler"))
os.environ.setdefault("TESTPROGS", os.path.join(ROOT, "build/release/testprogs"))
sys.path.insert(0, os.path.join(ROOT, "tests/e2e"))

import campaign  # noqa: E402

KINDS = ("kill-sampler", "kill-at-call", "kill-target", "exit-race", "churn")


def run(work, kind, arguments):
    if kind == "kill-sampler":
        work.kill_sampler(arguments.runs)
    elif kind == "kill-at-call":
        work.kill_at_calls("all", arguments.every, most=100000)
        work.kill_at_calls("tracing", arguments.every, most=400 // arguments.every)
    elif kind == "kill-target":
        work.kill_target(arguments.runs)
    elif kind == "exit-race":
        work.exit_races(arguments.runs)
    else:
        work.churn(arguments.runs)
        work.churn(arguments.runs + 1, seconds=10)  # far more threads than descriptors may be open


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sampler-faults-") as directory:
        work = campaign.Campaign(directory, arguments.seed, log=lambda line: print("FAULT", line, flush=True))
        for kind in arguments.kind or KINDS:
            start, before = time.monotonic(), len(work.faults)
            run(work, kind, arguments)
            work.check_no_child_left()
            seconds = time.monotonic() - start
            print(f"{kind}: {work.runs[kind]} runs, {len(work.faults) - before} faults, {seconds:.0f} s", flush=True)
        for name, count in sorted(work.facts.items()):
            print(f"    {name}: {count}")
    sys.exit(1 if work.faults else 0)


if __name__ == "__main__":
    main()
