"""What the end-to-end tests share: start targets and the sampler, read what it writes, look at the target afterwards.

The environment says where things are: SAMPLER is the program, TESTPROGS the directory of the test programs. SAMPLER_EVENTS is given
to each run as --events, if it is set; SAMPLER_BPF as --bpf, off if it is not set, so that all tests meet the stops that most users have.
SAMPLER_ENGINE=helper samples from inside where a test says nothing of it.
Nothing waits without a limit, nothing sleeps for luck, and only processes that a test started are ever signalled.
A test file ends with `harness.main()`: status 0 (passed), 1 (failed), 77 (something could not run here; the reason is printed
last).
"""

import collections
import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SAMPLER = os.environ["SAMPLER"]
TESTPROGS = os.environ["TESTPROGS"]
EVENTS = os.environ.get("SAMPLER_EVENTS")
BPF = os.environ.get("SAMPLER_BPF", "off")
ENGINE = os.environ.get("SAMPLER_ENGINE", "")
os.environ.setdefault("SAMPLER_DEBUG_DIR", "/nonexistent")  # whatever debug files are installed: names are those of the files themselves
LIMIT = 30.0  # seconds that anything may take which takes a moment on an idle machine


def program(name):
    return os.path.join(TESTPROGS, name)


def comm(name):
    """The thread name that the kernel gives to a program of that name."""
    return os.path.basename(name)[:15]


# Waiting


def wait_until(condition, what, limit=LIMIT):
    """The first true value of condition(), looked at every few milliseconds."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.005)


def read_line(stream, limit=LIMIT):
    """One line of a pipe's raw reader, without its newline."""
    end, line = time.monotonic() + limit, b""
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise AssertionError(f"no line within {limit} s, only {line!r}")
        byte = os.read(stream.fileno(), 1)
        if byte == b"":
            raise AssertionError(f"end of output behind {line!r}")
        if byte == b"\n":
            return line.decode(errors="replace")
        line += byte


# Targets


class Target:
    """A running test program that has printed its ready line; `facts` are the line's key=value pairs."""

    def __init__(self, *command, wait=True, **options):
        arguments = [program(command[0]) if "/" not in command[0] else command[0], *map(str, command[1:])]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "bufsize": 0, **options}
        self.process = subprocess.Popen(arguments, **options)
        self.pid = self.process.pid
        self.facts = {}
        if wait:
            try:
                line = read_line(self.process.stdout)
                if not line.startswith("ready"):
                    raise AssertionError(f"{arguments}: {line!r} instead of the ready line")
                self.facts = dict(word.split("=", 1) for word in line.split()[1:])
            except BaseException:
                self.kill()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        if self.process.stdout:
            self.process.stdout.close()

    def end(self, limit=LIMIT):
        """Waits for the program's own end: (status, rest of its output)."""
        output = self.process.communicate(timeout=limit)[0]
        return self.process.returncode, output.decode(errors="replace")


class Counters:
    """The memory that a `counters` program shares with the test."""

    def __init__(self, path):
        self.path = path

    def read(self):
        with open(self.path, "rb") as file:
            data = file.read()
        return [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 64)]

    def assert_alive(self):
        before = self.read()
        wait_until(lambda: all(now > then for now, then in zip(self.read(), before)), f"all counters move on from {before}")


def tasks(pid):
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def status(pid, tid=None):
    """/proc/PID[/task/TID]/status as a dictionary, empty when it is gone."""
    path = f"/proc/{pid}/status" if tid is None else f"/proc/{pid}/task/{tid}/status"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def state(pid, tid=None):
    return status(pid, tid).get("State", "?")[0]


def assert_healthy(pid, states="RSDZ"):
    """Each thread is traced by nobody and in one of the states; a state that passes by is waited for."""
    for tid in tasks(pid):
        facts = status(pid, tid)
        if facts and facts["TracerPid"] != "0":
            raise AssertionError(f"thread {tid} is still traced by {facts['TracerPid']}")
        wait_until(lambda: state(pid, tid) in states + "?X", f"thread {tid} is in one of {states}, not {state(pid, tid)}", 5)


def cpu_ns(pid, tid=None):
    """CPU time by the kernel's scheduler, of one thread or of all that live."""
    total = 0
    for one in [tid] if tid else tasks(pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{one}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total


def stolen_ns():
    """CPU time that the host of a virtual machine has kept for itself so far: threads then seem to run, and get no CPU time."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) * 10**9 // os.sysconf("SC_CLK_TCK")


def is_descendant(pid):
    while pid > 1 and pid != os.getpid():
        pid = int(status(pid).get("PPid", 0))
    return pid == os.getpid()


def ticks():
    """How often the capture threads of all samplers that we have started have slept."""
    return sum(int(status(pid, tid).get("voluntary_ctxt_switches", 0)) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
               if is_descendant(pid) for tid in tasks(pid) if status(pid, tid).get("Name") == "capture")


def wait_sampled(pid, times=3):
    """Waits until a target that never blocks by itself has been stopped some times: then it is being sampled. By BPF it notices nothing: there must be ticks."""
    def signs():
        return sum(int(status(pid, tid).get("voluntary_ctxt_switches", 0)) for tid in tasks(pid)) if BPF == "off" else ticks()
    first = signs()
    wait_until(lambda: signs() >= first + times, f"process {pid} is sampled")


# The sampler


class Run:
    """What one run of the sampler left: status, out, err, seconds."""

    def __init__(self, returncode, out, err, seconds):
        self.status, self.out, self.err, self.seconds = returncode, out, err, seconds

    def __repr__(self):
        return f"status {self.status} after {self.seconds:.1f} s, out {self.out[-2000:]!r}, err {self.err[-2000:]!r}"


class Sampler:
    """The sampler at work, for tests that do something meanwhile."""

    def __init__(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.start = time.monotonic()
        arguments = [str(argument) for argument in arguments]
        if arguments[:1] == ["compare"]:
            arguments[1:1] = ["--bpf", BPF]
        elif "-p" in arguments or "--" in arguments:
            arguments = [*(["--helper"] if ENGINE == "helper" and "--helper" not in arguments else []), "--bpf", BPF, *arguments]
        if EVENTS and arguments[:1] not in (["report"], ["compare"]):
            arguments = ["--events", EVENTS, *arguments]
        self.process = subprocess.Popen([SAMPLER, *arguments], **options)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for stream in (self.process.stdout, self.process.stderr):
            if stream and not stream.closed:
                stream.close()

    def signal(self, number):
        self.process.send_signal(number)

    def ready_pid(self):
        """The pid in the ready line of the program that it has launched."""
        return int(read_line(self.process.stdout).split("pid=")[1].split()[0])

    def end(self, limit=LIMIT):
        try:
            out, err = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the sampler has not ended within {limit} s") from error
        return Run(self.process.returncode, (out or b"").decode(errors="surrogateescape"),
                   (err or b"").decode(errors="surrogateescape"), time.monotonic() - self.start)


def run(*arguments, limit=LIMIT, **options):
    with Sampler(*arguments, **options) as sampler:
        return sampler.end(limit)


# Profiles


class Profile:
    """A collapsed profile: `stacks` maps a tuple of frames (thread's name first) to its count."""

    def __init__(self, text):
        self.stacks = parse_collapsed(text)
        self.total = sum(self.stacks.values())

    def count(self, test):
        return sum(count for stack, count in self.stacks.items() if test(stack))

    def containing(self, frame):
        return self.count(lambda stack: frame in stack[1:])

    def matching(self, pattern):
        """Samples with a frame, the thread's name not counted, that the regular expression is found in."""
        return self.count(lambda stack: any(re.search(pattern, frame) for frame in stack[1:]))

    def leaf(self, frame):
        return self.count(lambda stack: len(stack) > 1 and stack[-1] == frame)

    def share(self, count):
        return count / self.total if self.total else 0.0

    def threads(self):
        result = collections.Counter()
        for stack, count in self.stacks.items():
            result[stack[0]] += count
        return result

    def of_thread(self, name):
        """The part that belongs to the threads of that name."""
        part = Profile("")
        part.stacks = {stack: count for stack, count in self.stacks.items() if stack[0] == name}
        part.total = sum(part.stacks.values())
        return part

    def ending(self, *frames):
        """Samples whose stack ends in just these frames."""
        return self.count(lambda stack: stack[1:][-len(frames):] == frames)

    def from_frame(self, frame):
        """Distinct stacks from that frame on, each with its count: what start-up code lies above does not matter."""
        result = collections.Counter()
        for stack, count in self.stacks.items():
            result[stack[stack.index(frame):] if frame in stack else stack] += count
        return result

    def __str__(self):
        lines = [f"{count:6d} {';'.join(stack)}" for stack, count in self.stacks.items()]
        return "\n".join(sorted(lines, reverse=True)[:30])


def parse_collapsed(text):
    """Strict: sorted bytewise, each stack once, `frame;frame COUNT` and nothing else."""
    if text == "":
        return {}
    if not text.endswith("\n"):
        raise AssertionError(f"the last line is not whole: {text[-200:]!r}")
    lines = text[:-1].split("\n")
    raw = [line.encode(errors="surrogateescape") for line in lines]
    stacks = {}
    for line, bytes_of_line in zip(lines, raw):
        bytes_of_line.decode()  # UTF-8, or an exception
        match = re.fullmatch(r"(.+) ([1-9][0-9]*)", line)
        if not match or re.search(r"[\x00-\x1f\x7f]", line):
            raise AssertionError(f"not a line of a collapsed profile: {line!r}")
        stack = tuple(match[1].split(";"))
        if any(frame == "" or frame != frame.strip() for frame in stack):
            raise AssertionError(f"an empty frame or blanks around one: {line!r}")
        if "[truncated]" in stack and (stack.index("[truncated]") != 1 or stack.count("[truncated]") != 1):
            raise AssertionError(f"[truncated] is not right behind the thread's name, once: {line!r}")
        if stack in stacks:
            raise AssertionError(f"twice the same stack: {line!r}")
        stacks[stack] = int(match[2])
    if raw != sorted(raw):
        raise AssertionError("the lines are not sorted bytewise")
    return stacks


def read_profile(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return Profile(file.read())


def read_stats(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def last_json(text):
    """The JSON object that a test program prints as its last line; a terminal's echo may stand before it."""
    line = text.strip().split("\n")[-1]
    return json.loads(line[line.index("{"):] if "{" in line else line)


# Test cases


class Case(unittest.TestCase):
    """A test case with a temporary directory of its own."""

    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="sampler-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, data, mode=0o644):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        return path

    def assert_ok(self, result):
        self.assertEqual(result.status, 0, result)

    def assert_one_line(self, result, *words):
        """Standard error is one line with all these words, standard output is empty."""
        self.assertEqual(result.out, "", result)
        self.assertEqual(result.err.count("\n"), 1, result)
        self.assertTrue(result.err.endswith("\n"), result)
        for word in words:
            self.assertIn(word.lower(), result.err.lower(), result)

    def attach(self, pid, *arguments, limit=LIMIT, **options):
        """Samples a process with -o, expects success and returns (profile, stats, run)."""
        profile, stats = self.path("profile"), self.path("stats")
        result = run(*arguments, "-o", profile, "--stats", stats, "-p", pid, limit=limit, **options)
        self.assert_ok(result)
        return read_profile(profile), read_stats(stats), result

    def launch(self, options, command, limit=LIMIT, expect=0, **popen):
        """Launches a program under the sampler with -o and returns (profile, stats, run)."""
        profile, stats = self.path("profile"), self.path("stats")
        result = run(*options, "-o", profile, "--stats", stats, "--", *command, limit=limit, **popen)
        self.assertEqual(result.status, expect, result)
        return read_profile(profile), read_stats(stats), result

    def assert_caught(self, total, stats, share=0.5):
        """So many samples as the target's CPU time called for, within what a busy machine may cost."""
        self.assertGreater(total, share * stats["rate_hz"] * stats["cpu_ns_target"] / 1e9)

    def assert_share(self, profile, count, share):
        """At least that share of the profile's samples, of which there must be some."""
        self.assertGreater(profile.total, 0, "no samples")
        self.assertGreaterEqual(count / profile.total, share, f"{count} of {profile.total}\n{profile}")


def set_uid(uid):
    """For preexec_fn: become an ordinary user, keeping nothing."""
    def change():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    return change


def can_unshare(*options, preexec_fn=None):
    """Whether this machine lets us make such namespaces, and with -m mount in them."""
    command = ["unshare", *options, "/bin/sh", "-c", "mount -t tmpfs none /tmp" if "-m" in options else "true"]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False, preexec_fn=preexec_fn).returncode == 0
    except FileNotFoundError:
        return False


def prctl(option, value):
    return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def main():
    # A run under `nohup` or a job server must not change what the tests see.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    outcome = unittest.main(module="__main__", exit=False, verbosity=2).result
    if not outcome.wasSuccessful() or outcome.testsRun == 0:
        sys.exit(1)
    if outcome.skipped:
        sys.stderr.flush()
        for test, reason in outcome.skipped:
            print(f"skipped: {test.id()}: {reason}", flush=True)
        sys.exit(77)
    sys.exit(0)
