#!/usr/bin/env python3
"""Does the target bear a sampler inside it? Loads that dead-lock, die or get slow under a bad one.

    bench/setup.sh && bench/helper.py [SUBCOMMAND]... [--engine helper|ptrace] [--seconds N] [--rate HZ] [--rounds N] [--lock FILE] ...

stalls       each load of testprogs/hardcases alone, five and all together, plain and sampled in turn: throughput, the longest stall, wrong results; and under the
             malloc that ends the program when a handler enters it (testprogs/malloctrap). --launch: launched by the sampler, not attached to
startstop    attach and withdraw, --cycles times at 5 kHz, to eight busy threads: deaths, and what is left behind
inject       the same to programs whose work is checked: python3, node, java, a C++ server; they answer requests meanwhile
shares       testprogs/shares: the profile's shares of CPU time against the threads' own clocks, the timers of the helper beside each other
smallstacks  testprogs/smallstacks: threads that have hardly any stack for a handler
longfork     testprogs/longfork: forks that take longer than a period; and testprogs/blockers: blocking calls that must not end with EINTR

Each prints a table, a PASS or FAIL for each line, and holds against limits measured in the same run; figures are medians of the rounds, with the least and the most
in brackets. Without --seconds and --rate each has its own. Status 1 when one line says FAIL.
"""

import argparse
import contextlib
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import eintr
from pairs import locked, take_pairs
from sampling import BUILD, ROOT, SAMPLER, Asked, Sampling, Verdict, build, tasks, wait_until

PROGRAMS = os.path.join(BUILD, "testprogs")
WORK = os.path.join(ROOT, "bench/work")
BUILT = os.path.join(ROOT, "build/bench")
TRAP = os.path.join(PROGRAMS, "libmalloctrap.so")
LOADS = ("malloc", "dlopen", "throw", "exec", "fork", "iterate", "backtrace")
TOGETHER = {"five": ("malloc", "dlopen", "throw", "exec", "iterate"), "all": LOADS}
STALL_LIMIT_MS, THROUGHPUT_LIMIT = 1000, 0.9
END_LIMIT_S = 60
FORKS, FORK_LIMIT, FORK_PERIODS = 20, 3, 2
LEFT_LIMIT = 16  # mappings that cycles may leave in all: a leak has one for each cycle
SHARE_KINDS = {"pinned": (3, 3), "onecpu": (3, 3), "ratio": (3, 3), "bursts": (4, 3), "short": (8, 8)}  # limits: points, per cent of the sum
SAMPLES_LEAST = 1000  # then a standard error of a share of a half is 1.6 points
EXITED = ["[exited threads]", "[not sampled]"]
ALLOCATOR = re.compile(r"malloc|^_?_?(int_)?free|_int_")


def program(name):
    return os.path.join(PROGRAMS, name)


def engine_options(arguments):
    if arguments.engine == "ptrace":
        return []
    return ["--helper", *(["--helper-timer", arguments.timer] if arguments.timer else [])]


def spread(values, form="{:.2f}"):
    """Median (least to most)."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})" if values else "none"


def last_json(text):
    lines = text.strip().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None


def numbers(path, word=0):
    """The 64-bit numbers that stand in a file every 64 bytes."""
    with open(path, "rb") as file:
        data = file.read()
    return [int.from_bytes(data[at:at + 8], "little") for at in range(8 * word, len(data), 64)]


def profile_lines(text):
    for line in text.splitlines():
        stack, value = line.rsplit(" ", 1)
        yield stack.split(";"), int(value)


def count_containing(text, is_wanted):
    return sum(value for frames, value in profile_lines(text) if any(is_wanted(frame) for frame in frames[1:]))


def default(value, otherwise):
    return otherwise if value is None else value


class Plain:
    """Instead of Sampling: as long a start, and nobody samples."""

    stats, profile = {"samples": 0}, ""

    def __enter__(self):
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        pass


class Target:
    """A test program that has said that it is ready; `end` asks it to end, or waits for it, and returns why that went wrong, or "", and its result."""

    def __init__(self, *command, **options):
        self.errors = tempfile.TemporaryFile(mode="w+", prefix="sampler-bench-")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True, **options)
        self.pid = self.process.pid
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], END_LIMIT_S)[0] else "nothing"
        if not line.startswith("ready"):
            self.process.kill()
            sys.exit(f"{command} did not start: {line!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def end(self, number=signal.SIGTERM):
        if number is not None:
            self.process.send_signal(number)
        try:
            output = self.process.communicate(timeout=END_LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            return "it does not end", None
        self.errors.seek(0)
        said = self.errors.read().strip()
        why = said.splitlines()[-1] if said else ""
        if self.process.returncode:
            why = f"status {self.process.returncode} {why}".strip()
        return why, last_json(output)


# stalls


class Outcome:
    """What one run of hardcases came to: operations a second and the longest stall in ms of each thread; why it is bad, or ""."""

    def __init__(self, why, result, rates, run):
        self.why, self.rates, self.run = why, rates, run
        self.objects = result["objects"] if result else 0
        self.stalls = [load["stall_ms"] for load in result["loads"]] if result else [float("inf")]
        if result and not why:
            wrong = {load["name"]: load["wrong"] for load in result["loads"] if load["wrong"]}
            self.why = f"wrong results: {wrong}" if wrong else ""


def attached_hardcases(loads, seconds, rate, options, environment):
    """One run; options None: plain."""
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        path = os.path.join(directory, "slots")
        with Target(program("hardcases"), path, ",".join(loads), 3600, env=environment) as target:
            run, rates = None, [0.0] * len(loads)
            with contextlib.suppress(ChildProcessError):  # the target has died, and so the sampler has ended: the target's status says it
                with Plain() if options is None else Sampling(target.pid, *options, rate=rate) as run:
                    before, start = numbers(path), time.monotonic()
                    time.sleep(seconds)
                    elapsed = time.monotonic() - start
                    rates = [(now - then) / elapsed for then, now in zip(before, numbers(path))]
            why, result = target.end()
    return Outcome(why, result, rates, run)


class Launched:
    """The stats and the profile of a launched program."""


def launched_hardcases(loads, seconds, rate, options, environment):
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        slots, profile, stats = (os.path.join(directory, name) for name in ("slots", "profile", "stats"))
        command = [program("hardcases"), slots, ",".join(loads), str(seconds)]
        if options is not None:
            command = [SAMPLER, "-q", "-r", str(rate), *options, "-o", profile, "--stats", stats, "--", *command]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment, timeout=seconds + END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return Outcome("it does not end", None, [0.0] * len(loads), None)
        run = Plain() if options is None else Launched()
        if options is not None and done.returncode == 0:
            with open(profile, encoding="utf-8") as file:
                run.profile = file.read()
            with open(stats, encoding="utf-8") as file:
                run.stats = json.load(file)
        result = last_json(done.stdout)
    rates = [load["operations"] / result["seconds"] for load in result["loads"]] if result else [0.0] * len(loads)
    return Outcome(f"status {done.returncode} {done.stderr.strip()}" if done.returncode else "", result, rates, run)


def judge_stalls(name, loads, pairs, verdict):
    outcomes = [outcome for pair in pairs for outcome in pair]
    bad = {outcome.why for outcome in outcomes if outcome.why}
    sampled = [outcome for _, outcome in pairs if outcome.run is not None and hasattr(outcome.run, "stats")]
    samples = sum(outcome.run.stats["samples"] for outcome in sampled)
    if "malloc" in loads:
        inside = sum(count_containing(outcome.run.profile, ALLOCATOR.search) for outcome in sampled)
        bad |= set() if inside else {"no sample in malloc"}
    verdict.say(not bad and samples > 0, f"{name:10} {samples} samples{''.join(f'; {why}' for why in sorted(bad))}")
    for i, load in enumerate(loads):
        most = [max(outcome.stalls[min(i, len(outcome.stalls) - 1)] for outcome in side) for side in zip(*pairs)]
        ratios = [pair[1].rates[i] / pair[0].rates[i] for pair in pairs if pair[0].rates[i] > 0]
        verdict.say(most[1] <= STALL_LIMIT_MS, f"{name:10} {load:10} longest stall {most[0]:.0f} ms plain, {most[1]:.0f} ms sampled; "
                    f"{statistics.median(pair[0].rates[i] for pair in pairs):.0f}/s plain, sampled {spread(ratios)} of it")
    # The helper is one object more to visit, for whatever the program does there: alone, that load is measured in objects; the iterations stand in the line above.
    visits = name == "iterate"
    work = [[[outcome.rates[0] * outcome.objects] if visits else outcome.rates for outcome in pair] for pair in pairs]
    # Loads that share locks and CPUs take from one another, so of all together it is the mean that counts.
    ratios = [statistics.geometric_mean(with_us / plain for plain, with_us in zip(*pair)) for pair in work if all(rate > 0 for side in pair for rate in side)]
    what = f"objects visited ({pairs[0][0].objects} plain, {pairs[0][1].objects} sampled, each time)" if visits else "throughput"
    verdict.say(len(ratios) == len(pairs) and statistics.median(ratios) >= THROUGHPUT_LIMIT, f"{name:10} {what}, sampled {spread(ratios)} of plain")


def trapped(loads, hardcases, arguments, options, verdict):
    environment = {**os.environ, "LD_PRELOAD": TRAP}
    with locked(arguments.lock):
        outcome = hardcases(loads, default(arguments.seconds, 20) / arguments.rounds, arguments.rate, options, environment)
    samples = outcome.run.stats["samples"] if hasattr(outcome.run, "stats") else 0
    verdict.say(not outcome.why and samples > 0, f"{'+'.join(loads)} under the malloc trap: {samples} samples; {outcome.why or 'silent'}")


def stalls(arguments, verdict):
    build("hardcases", "malloctrap")
    arguments.rate = default(arguments.rate, 1000)
    seconds, options = default(arguments.seconds, 20) / arguments.rounds, engine_options(arguments)
    hardcases = launched_hardcases if arguments.launch else attached_hardcases
    print(f"\nstalls: {arguments.rounds} pairs of {seconds:.1f} s at {arguments.rate} Hz; limits: {100 * THROUGHPUT_LIMIT:.0f} % of plain throughput, a stall of {STALL_LIMIT_MS} ms")
    alone = {load: [load] for load in arguments.load or LOADS}
    for name, loads in {**alone, **({} if arguments.load else TOGETHER)}.items():
        pairs = take_pairs(arguments.rounds, lambda: hardcases(loads, seconds, arguments.rate, None, None),
                           lambda: hardcases(loads, seconds, arguments.rate, options, None), arguments.lock)
        judge_stalls(name, loads, pairs, verdict)
    trapped(["malloc", "malloc"], hardcases, arguments, options, verdict)
    trapped(list(LOADS), hardcases, arguments, options, verdict)


# startstop and inject


class Cycles:
    """Samplers that come and go; what became of them."""

    def __init__(self, pid, arguments, rate, seconds):
        self.pid, self.samples, self.failures, self.spent = pid, 0, [], []
        self.directory = tempfile.TemporaryDirectory(prefix="sampler-bench-")
        self.stats = os.path.join(self.directory.name, "stats")
        self.command = [SAMPLER, "-q", "-r", str(rate), "-d", str(seconds), *engine_options(arguments), "-o", os.path.join(self.directory.name, "profile"),
                        "--stats", self.stats, "-p", str(pid)]

    def cycle(self, meanwhile=None):
        start = time.monotonic()
        process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if meanwhile:
            meanwhile()
        try:
            error = process.communicate(timeout=END_LIMIT_S)[1].strip()
        except subprocess.TimeoutExpired:
            process.kill()
            error = process.communicate()[1].strip() or "it does not end"
        self.spent.append(time.monotonic() - start)
        if process.returncode:
            self.failures.append(error or f"status {process.returncode}")
            return
        with open(self.stats, encoding="utf-8") as file:
            self.samples += json.load(file)["samples"]


def ask(target, number):
    """What a program of sampling.Asked answers; none if it does not within END_LIMIT_S, or is gone."""
    try:
        print(number, file=target.process.stdin, flush=True)
    except OSError:
        return []
    ready = select.select([target.process.stdout], [], [], END_LIMIT_S)[0]
    return [float(word) for word in target.process.stdout.readline().split()] if ready else []


def belongings(pid):
    """What a process has: (mappings, descriptors, threads); None if it is gone."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return file.read().count(b"\n"), len(os.listdir(f"/proc/{pid}/fd")), len(tasks(pid))
    except OSError:
        return None


def judge_left(name, before, after, verdict):
    """Mappings may be a few more; descriptors and threads come and go in runtimes, but not by the cycle."""
    grown = [now - then for then, now in zip(before, after)] if before and after else None
    verdict.say(grown is not None and max(grown) <= LEFT_LIMIT, f"{name}: left behind since the tenth of the cycles: "
                + ("no process" if grown is None else f"{grown[0]} mappings, {grown[1]} descriptors, {grown[2]} threads"))


def startstop(arguments, verdict):
    build("counters")
    rate, seconds, deaths, standing, before = default(arguments.rate, 5000), default(arguments.seconds, 0.05), 0, 0, None
    count = default(arguments.cycles, 2000)
    print(f"\nstartstop: {count} times {seconds:g} s at {rate} Hz, 8 busy threads")
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        path = os.path.join(directory, "counters")
        with Target(program("counters"), path, 24 * 3600) as target:
            cycles = Cycles(target.pid, arguments, rate, seconds)
            for n in range(count):
                with locked(arguments.lock):
                    cycles.cycle()
                if target.process.poll() is not None:
                    deaths = 1
                    break
                if n == count // 10:
                    before = belongings(target.pid)
                standing += not move_on(path)
            after = belongings(target.pid) if not deaths else None
            status = target.process.returncode
    verdict.say(deaths == 0, f"{len(cycles.spent)} cycles of {spread(cycles.spent)} s: {deaths} deaths" + (f", status {status}" if deaths else ""))
    verdict.say(standing == 0, f"{standing} times a thread stood still for a second afterwards")
    verdict.say(not cycles.failures and cycles.samples > 0, f"{cycles.samples} samples; {len(cycles.failures)} samplers failed {sorted(set(cycles.failures))[:3] or ''}")
    judge_left("counters", before, after, verdict)


def move_on(path, limit=1.0):
    """Whether each counter moves on within a second."""
    before, end = numbers(path), time.monotonic() + limit
    while not all(now > then for now, then in zip(numbers(path), before)):
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def folded(number):
    """As testprogs/answers.cc."""
    for i in range(20000):
        number = (number * 31 + i) % 65521
    return number


def java_command():
    os.makedirs(BUILT, exist_ok=True)
    subprocess.run(["javac", "-d", BUILT, os.path.join(WORK, "Answers.java")], check=True)
    return ["java", "-Xshare:auto", "-cp", BUILT, "Answers"]


ANSWERERS = {
    "python3": lambda: ["/usr/bin/python3", os.path.join(WORK, "answers.py")],
    "node": lambda: ["/usr/bin/node", os.path.join(WORK, "answers.js")],
    "java": java_command,
    "cxx": lambda: [program("answers")],
}


class Questions:
    """Asks a program with checkable work, and counts what is wrong."""

    def __init__(self, target):
        self.target, self.asked, self.wrong, self.rounds, self.late_ms = target, 0, 0, 0, 0.0

    def ask(self):
        self.asked += 1
        start = time.monotonic()
        answer = ask(self.target, self.asked)
        if len(answer) != 3:
            self.wrong += 1
            return
        value, mistakes, self.rounds = answer
        self.late_ms = max(self.late_ms, 1000 * (time.monotonic() - start))
        self.wrong += value != folded(self.asked) or mistakes > 0


def inject_into(name, arguments, verdict):
    count, rate, seconds = default(arguments.cycles, 100), default(arguments.rate, 1000), default(arguments.seconds, 0.1)
    with Asked(ANSWERERS[name]()) as target:
        before = None
        questions, cycles = Questions(target), Cycles(target.pid, arguments, rate, seconds)
        questions.ask()
        wait_until(lambda: questions.ask() or questions.rounds > 1 or questions.wrong, f"{name} works")
        for n in range(count):
            with locked(arguments.lock):
                cycles.cycle(questions.ask)
            if n == count // 10:
                before = belongings(target.pid)
            if target.process.poll() is not None:
                break
        rounds = questions.rounds
        wait_until(lambda: questions.ask() or questions.rounds > rounds or questions.wrong, f"{name} goes on")
        status = target.process.poll()
        after = belongings(target.pid) if status is None else None
    verdict.say(status is None and questions.wrong == 0, f"{name:8} {len(cycles.spent)} cycles of {spread(cycles.spent)} s, {questions.asked} answers, {questions.wrong} wrong, "
                f"the latest after {questions.late_ms:.0f} ms, {questions.rounds:.0f} rounds of work; {'alive' if status is None else f'dead, status {status}'}")
    verdict.say(not cycles.failures and cycles.samples > 0, f"{name:8} {cycles.samples} samples; {len(cycles.failures)} samplers failed {sorted(set(cycles.failures))[:3] or ''}")
    judge_left(f"{name:8}", before, after, verdict)


def inject(arguments, verdict):
    build("answers")
    print(f"\ninject: {default(arguments.cycles, 100)} times {default(arguments.seconds, 0.1):g} s at {default(arguments.rate, 1000)} Hz")
    for name in arguments.program or ANSWERERS:
        inject_into(name, arguments, verdict)


# shares


class Seen:
    """One run of shares: the functions' weights and true CPU time, the sum of weights by the process's CPU time, and what part of it has no sample.

    A thread that ends before it is sampled must not be hidden: its time counts for short_work, which is all that such threads do, if the profile has it.
    """

    def __init__(self, kind, rate, seconds, engine):
        if engine == "setitimer":
            self.see_signals(kind, rate, seconds)
        else:
            self.see_profile(kind, rate, seconds, [] if engine == "ptrace" else ["--helper", "--helper-timer", engine])

    def see_signals(self, kind, rate, seconds):
        """By a timer and a handler of the program's own, as profilers have it that know nothing of threads."""
        done = subprocess.run([program("shares"), kind, str(seconds), str(rate)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
        truth = last_json(done.stdout)
        self.truth, self.unseen = truth["work_ns"], 0
        self.weights = {name: truth["setitimer"][name] * 1e9 / rate for name in self.truth}
        self.samples = truth["signals"] + sum(truth["setitimer"].values())
        self.sum = self.samples * 1e9 / rate / truth["cpu_ns"]

    def see_profile(self, kind, rate, seconds, options):
        # A helper's weights are its ticks, not yet brought to what the kernel accounts to each thread.
        value, unit = ("samples", 1e9 / rate) if options else ("ns", 1)
        with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
            profile, stats = os.path.join(directory, "profile"), os.path.join(directory, "stats")
            done = subprocess.run([SAMPLER, "-q", "-r", str(rate), "--value", value, *options, "-o", profile, "--stats", stats, "--", program("shares"), kind, str(seconds)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
            truth = last_json(done.stdout)
            with open(profile, encoding="utf-8") as file:
                lines = [(frames, count * unit) for frames, count in profile_lines(file.read())]
            with open(stats, encoding="utf-8") as file:
                self.samples = json.load(file)["samples"]
        weights = {name: sum(value for frames, value in lines if name in frames) for name in truth["work_ns"]}
        if kind == "short":
            weights["short_work"] += sum(value for frames, value in lines if frames == EXITED)
            # What a thread has run since its last signal a helper knows by its first function only.
            weights["short_work"] += sum(value for frames, value in lines if frames[-1] == "short_main")
        self.weights, self.truth = weights, truth["work_ns"]
        self.sum = sum(value for _, value in lines) / truth["cpu_ns"]
        self.unseen = 100 * sum(value for frames, value in lines if frames[-1] == EXITED[-1]) / truth["cpu_ns"]


def share_error(runs):
    """The worst error of a function's share, in points, in all these runs together: more samples, less chance."""
    whole, worked = (max(1, sum(sum(side.values()) for side in sides)) for sides in ([run.weights for run in runs], [run.truth for run in runs]))
    return max(abs(100 * sum(run.weights[name] for run in runs) / whole - 100 * sum(run.truth[name] for run in runs) / worked) for name in runs[0].truth)


def shares(arguments, verdict):
    build("shares")
    rate, seconds = default(arguments.rate, 100), default(arguments.seconds, 10)
    engines = ("ptrace",) if arguments.engine == "ptrace" else ("thread", "process", "setitimer")
    rounds = {(kind, engine): [] for kind in SHARE_KINDS for engine in engines}
    for _ in range(arguments.rounds):
        for kind, engine in rounds:
            with locked(arguments.lock):
                rounds[kind, engine].append(Seen(kind, rate, seconds, engine))
    print(f"\nshares: {arguments.rounds} rounds of {seconds:g} s at {rate} Hz; one timer for the process, ours or a setitimer in the program itself, is for comparison")
    for (kind, engine), seen in rounds.items():
        samples, sums = sum(one.samples for one in seen), [one.sum for one in seen]
        limit, sum_limit = SHARE_KINDS[kind]
        passed = samples >= SAMPLES_LEAST and share_error(seen) <= limit and abs(statistics.median(sums) - 1) <= sum_limit / 100
        words = (f"{kind:8} {engine:8} share wrong by {share_error(seen):.2f} points of {limit} (a round {spread([share_error([one]) for one in seen])}); "
                 f"sum of weights / CPU time {spread(sums, '{:.3f}')}, limit {sum_limit} %; {samples} samples, {statistics.median(one.unseen for one in seen):.1f} % without"
                 + ("" if samples >= SAMPLES_LEAST else f"; fewer than {SAMPLES_LEAST}: too few to tell"))
        if engine in ("process", "setitimer"):
            print(f"       {words}", flush=True)
        else:
            verdict.say(passed, words)


# smallstacks


def launched_smallstacks(path, rate, seconds, options):
    """(why it is bad or "", its result, how often a thread stood still, the profile)"""
    profile = path + ".profile"
    command = [SAMPLER, "-q", "-r", str(rate), *options, "-o", profile, "--", program("smallstacks"), path, str(seconds)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds + END_LIMIT_S)
    text = ""
    with contextlib.suppress(FileNotFoundError):
        with open(profile, encoding="utf-8") as file:
            text = file.read()
    return f"status {done.returncode} {done.stderr.strip()}" if done.returncode else "", last_json(done.stdout), 0, text


def attached_smallstacks(path, rate, seconds, options, *how):
    with Target(program("smallstacks"), path, seconds + 2, *how) as target:
        run, standing = None, 0
        with contextlib.suppress(ChildProcessError):  # as in attached_hardcases
            with Sampling(target.pid, *options, rate=rate) as run:
                end = time.monotonic() + seconds
                while time.monotonic() < end and target.process.poll() is None:
                    standing += not move_on(path)
                    time.sleep(0.1)
        return *target.end(None), standing, getattr(run, "profile", "")  # it ends by its own clock


def judge_smallstacks(name, outcome, verdict):
    why, result, standing, profile = outcome
    verdict.say(not why and result is not None and result["damaged"] == 0 and standing == 0,
                f"{name}: {why or 'alive to its end'}; {result['damaged'] if result else 'unknown'} canaries damaged; {standing} times a thread stood still for a second")
    counts = {function: count_containing(profile, function.__eq__) for function in ("coroutine_spin", "alternate_spin", "minimum_spin")}
    # There may be no room for a handler on the second's stack; that is to be counted then.
    verdict.say(counts["coroutine_spin"] > 0 and counts["minimum_spin"] > 0, f"{name}: samples: {', '.join(f'{count} in {function}' for function, count in counts.items())}")


def smallstacks(arguments, verdict):
    build("smallstacks")
    rate, seconds, options = default(arguments.rate, 1000), default(arguments.seconds, 30), engine_options(arguments)
    print(f"\nsmallstacks: {seconds:g} s at {rate} Hz; a handler on a signal stack of the smallest size is entered after the sampler came, again and again, and before it came")
    ways = {"launched": lambda path: launched_smallstacks(path, rate, seconds, options),
            "attached, again": lambda path: attached_smallstacks(path, rate, seconds, options, "again"),
            "attached, before": lambda path: attached_smallstacks(path, rate, seconds, options)}
    for name, measure in ways.items():
        with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory, locked(arguments.lock):
            judge_smallstacks(name, measure(os.path.join(directory, "turns")), verdict)


# longfork


def judge_forks(arguments, rate, verdict):
    with Asked([program("longfork"), arguments.mib]) as target:
        ask(target, 2)  # warm

        def sampled():
            with Sampling(target.pid, *engine_options(arguments), rate=rate):
                return ask(target, FORKS)

        pairs = take_pairs(arguments.rounds, lambda: ask(target, FORKS), sampled, arguments.lock)
    plain, with_us = ([us / 1000 for times in side for us in times] for side in zip(*pairs))
    bad = sum(ms < 0 for ms in plain + with_us) + (len(plain) + len(with_us) != 2 * FORKS * arguments.rounds)
    verdict.say(bad == 0, f"forks that failed: {bad}")
    if bad:
        return
    verdict.say(statistics.median(plain) * rate > 1000 * FORK_PERIODS, f"a plain fork takes {spread(plain)} ms, that is {statistics.median(plain) * rate / 1000:.1f} periods")
    verdict.say(max(with_us) <= FORK_LIMIT * max(plain) and statistics.median(with_us) <= FORK_LIMIT * statistics.median(plain),
                f"a sampled one {spread(with_us)} ms, limit {FORK_LIMIT} times as much")


def judge_blockers(arguments, rate, verdict):
    seconds = default(arguments.seconds, 20)
    with locked(arguments.lock):
        target = eintr.Target("blockers_fp")
        with Sampling(target.pid, *engine_options(arguments), rate=rate) as run:
            time.sleep(seconds)
        blockers = target.end()["blockers"]
    calls = sum(facts["calls"] for facts in blockers.values())
    for key, words in (("eintr", "ended with EINTR"), ("unexpected", "had another result than they are made for")):
        odd = {name: facts[key] for name, facts in blockers.items() if facts[key]}
        verdict.say(not odd, f"of {calls} blocking calls of {len(blockers)} kinds, {run.stats['samples']} samples, {words}: {odd or 0}")


def longfork(arguments, verdict):
    build("longfork", "blockers_fp")
    rate = default(arguments.rate, 1000)
    print(f"\nlongfork: {arguments.mib} MiB, {arguments.rounds} pairs of {FORKS} forks at {rate} Hz")
    judge_forks(arguments, rate, verdict)
    judge_blockers(arguments, rate, verdict)


SUBCOMMANDS = {function.__name__: function for function in (stalls, startstop, inject, shares, smallstacks, longfork)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subcommands", nargs="*", default=list(SUBCOMMANDS), metavar="|".join(SUBCOMMANDS))
    parser.add_argument("--engine", choices=("helper", "ptrace"), default="helper")
    parser.add_argument("--timer", choices=("thread", "process"), help="the helper's; `shares` takes both")
    parser.add_argument("--seconds", type=float, help="of sampling: in all of each load, of a cycle, of a run")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--rounds", type=int, default=5, help="of plain and sampled runs in turn")
    parser.add_argument("--cycles", type=int, help="of startstop and inject")
    parser.add_argument("--load", action="append", choices=LOADS, help="of stalls; not all together then")
    parser.add_argument("--launch", action="store_true", help="stalls: launched by the sampler")
    parser.add_argument("--program", action="append", choices=ANSWERERS, help="of inject")
    parser.add_argument("--mib", type=int, default=1024, help="of longfork: memory of the process that forks")
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE during each measurement")
    arguments = parser.parse_args()
    unknown = set(arguments.subcommands) - set(SUBCOMMANDS)
    if unknown:
        parser.error(f"no subcommand {', '.join(sorted(unknown))}")
    build("sampler")
    verdict = Verdict()
    for name in arguments.subcommands:
        SUBCOMMANDS[name](arguments, verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
