#!/usr/bin/env python3
"""Do blocking calls notice that they are sampled?

    bench/setup.sh && bench/eintr.py [--seconds N] [--rate HZ] [--cycles N] [--lock FILE]

testprogs/blockers makes calls of more than fifty kinds, each in a thread of its own, built without frame pointers and with. First unsampled; then sampled in
cpu and in wall mode; then through attach and detach again and again. For each run: calls that returned EINTR though no signal came, calls that returned something
else than they are made for, wake-ups (by peers, and by real signals, which must be seen once each) that are not one return each; and how late timed calls were, the
time in which their thread waited for a CPU not counted (that is in brackets). On time: not later than unsampled by more than one sampling period and a margin,
not early. What unsampled is: the same call in the unsampled run, or the latest one of an unsampled copy of the program that runs beside the sampled one; for a
virtual CPU that its host has taken away for some milliseconds is late for everybody whose time comes then. Status 1 when one line says FAIL.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import locked

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLER = os.path.join(ROOT, "build/release/sampler/sampler")
PROGRAMS = os.path.join(ROOT, "build/release/testprogs")
MARGIN_US = 2000  # a timer's slack, and the ways of the scheduler that count as no waiting
COARSE_US = 10_000  # unsampled: then its timer is one of the coarse ones
TIMEOUT_S = 0.3     # of testprogs/blockers
EARLY_US = 1000   # clocks of different grain
good = True


def judge(what, passed, words):
    global good
    good = good and passed
    print(f"  {'PASS' if passed else 'FAIL'} {what}: {words}", flush=True)


class Target:
    def __init__(self, program):
        self.process = subprocess.Popen([os.path.join(PROGRAMS, program), "3600"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"{program} did not start: {line!r}")
        self.pid = self.process.pid

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        output = self.process.communicate(timeout=60)[0]
        return json.loads(output.strip().splitlines()[-1])


def sample(pid, mode, rate, seconds):
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        stats = os.path.join(directory, "stats")
        subprocess.run([SAMPLER, "-q", "-m", mode, "-r", str(rate), "-d", str(seconds), "-o", os.path.join(directory, "profile"), "--stats", stats,
                        "-p", str(pid)], check=True)
        with open(stats, encoding="utf-8") as file:
            return json.load(file)


def lateness(blockers):
    return {name: facts["unqueued_late_us"] for name, facts in blockers.items() if facts["kind"] == "timed"}


def answers(name, facts):
    """Whether each wake-up was one return."""
    if facts["kind"] == "woken":
        return facts["calls"] == facts["wakes"] > 0
    if facts["kind"] == "signalled":
        calls = 0 if name == "sig_read_pipe" else facts["wakes"]  # restarted by SA_RESTART
        return facts["calls"] == calls and facts["handled"] == facts["wakes"] > 0
    return facts["calls"] > 0


def coarse_grain_us():
    """How late a coarse timer of TIMEOUT_S may be: kernel/time/timer.c keeps those of 64 ticks and more by eights, of 512 and more by 64."""
    tick_s = time.clock_getres(6)  # CLOCK_MONOTONIC_COARSE: one scheduler tick
    ticks = TIMEOUT_S / tick_s
    grain = 1 if ticks < 64 else 8 if ticks < 512 else 64
    return 1e6 * tick_s * (grain + 1)


def baseline(plain, beside):
    """{kind: us}: how late timed calls are unsampled."""
    before, now = lateness(plain["blockers"]), lateness(beside["blockers"])
    # Timeouts of sockets are rounded up to the kernel's coarse timers, now more, now less: theirs is the most of any of them.
    coarse = {name for name, us in before.items() if us > COARSE_US}
    most = {True: 0, False: 0}
    for name, us in now.items():
        most[name in coarse] = max(most[name in coarse], us)
    most[True] = max([most[True], coarse_grain_us()] + [before[name] for name in coarse])
    return {name: max(us, most[name in coarse]) for name, us in before.items()}


def report(result, plain, period_us, beside=None):
    blockers = result["blockers"]
    calls, signals = (sum(facts[key] for facts in blockers.values()) for key in ("calls", "handled"))
    print(f"  {len(blockers)} kinds, {calls} calls, {signals} signals" + (f"; not here: {', '.join(result['skipped'])}" if result["skipped"] else ""))
    interrupted = {name: facts["eintr"] for name, facts in blockers.items() if facts["eintr"]}
    judge("no EINTR", not interrupted, interrupted or "0")
    odd = {name: (facts["unexpected"], facts["last_unexpected"]) for name, facts in blockers.items() if facts["unexpected"]}
    judge("nothing unexpected", not odd, odd or "0")
    unanswered = {name: {key: facts[key] for key in ("wakes", "calls", "handled")} for name, facts in blockers.items() if not answers(name, facts)}
    judge("one return for each wake-up, one EINTR for each real signal", not unanswered, unanswered or "all")
    late = lateness(blockers)
    worst = max(late, key=late.get)
    words = f"at most {late[worst] / 1000:.1f} ms ({worst}; {max(facts['late_us'] for facts in blockers.values()) / 1000:.1f} with waiting for a CPU)"
    early = max(facts["early_us"] for facts in blockers.values() if facts["kind"] == "timed")
    if not plain:
        print(f"  late: {words}")
        return
    limits = {name: before + period_us + MARGIN_US for name, before in baseline(plain, beside).items()}
    over = {name: f"{us / 1000:.1f} ms of {limits[name] / 1000:.1f}" for name, us in late.items() if us > limits[name]}
    gained = {name: late[name] - limits[name] + period_us + MARGIN_US for name in late}
    most = max(gained, key=gained.get)
    judge("on time within a period", not over and early <= EARLY_US, over or f"{words}; most more than unsampled {gained[most] / 1000:.2f} ms ({most}), early {early / 1000:.2f}")


def stats_words(stats):
    return (f"{stats['samples']} samples, {stats['stops']} stops, {stats['unstopped']} without a stop, {stats['eintr_restarted']} calls restarted, "
            f"{stats['samples_truncated']} truncated, stop p99 {stats['stop_ns']['p99'] / 1000:.0f} us")


def sampled(program, mode, arguments, plain):
    with locked(arguments.lock):
        target, beside = Target(program), Target(program)
        stats = sample(target.pid, mode, arguments.rate, arguments.seconds)
        result, beside = target.end(), beside.end()
    print(f"\n{program}, {mode} mode, {arguments.seconds} s at {arguments.rate} Hz: {stats_words(stats)}")
    report(result, plain, 1e6 / arguments.rate, beside)


def cycles(program, arguments, plain):
    target, beside = Target(program), Target(program)
    stops, restarted, left, each = 0, 0, arguments.cycles, 25
    while left:
        with locked(arguments.lock):
            for n in range(min(left, each)):
                stats = sample(target.pid, ("cpu", "wall")[n % 2], arguments.rate, 0.5)
                stops, restarted = stops + stats["stops"], restarted + stats["eintr_restarted"]
        left -= min(left, each)
    result, beside = target.end(), beside.end()
    print(f"\n{program}, {arguments.cycles} times attached and detached, 0.5 s each at {arguments.rate} Hz, cpu and wall in turn: {stops} stops, {restarted} calls restarted")
    report(result, plain, 1e6 / arguments.rate, beside)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--plain-seconds", type=float, help="of the unsampled run; as --seconds if not given")
    parser.add_argument("--only", choices=("cpu", "wall", "cycles"), action="append")
    parser.add_argument("--program", choices=("blockers", "blockers_fp"), action="append")
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE during each measurement")
    arguments = parser.parse_args()
    for program in arguments.program or ("blockers", "blockers_fp"):
        with locked(arguments.lock):
            target = Target(program)
            with contextlib.suppress(subprocess.TimeoutExpired):
                target.process.wait(arguments.plain_seconds or arguments.seconds)
            plain = target.end()
        print(f"\n{program}, unsampled")
        report(plain, None, 0)
        for mode in ("cpu", "wall"):
            if not arguments.only or mode in arguments.only:
                sampled(program, mode, arguments, plain)
        if not arguments.only or "cycles" in arguments.only:
            cycles(program, arguments, plain)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
