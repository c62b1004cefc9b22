"""Faults at random moments: the sampler killed, the target killed, threads churning; and the sampler killed at each system call.

Not a test itself: faults.py runs a little of it, bench/faults.py all. Every run looks at the *target* afterwards; what is wrong is a
line in `Campaign.faults`, so that a long campaign tells of all of it.
"""

import collections
import contextlib
import ctypes
import os
import random
import re
import resource
import signal
import subprocess
import threading
import time

import harness
from harness import Counters, Sampler, Target, program

BOUND = 20.0  # seconds in which a sampler that is asked to end, or whose target has ended, ends on any machine
PR_SET_CHILD_SUBREAPER = 36
CALLS = {101: "ptrace", 247: "waitid", 310: "process_vm_readv"}  # those that matter, by their numbers on x86-64


class Fault(Exception):
    """Something that must not be, in one run."""


def check(condition, what):
    if not condition:
        raise Fault(what)


def threads_of(pid):
    """(tid, state, tracer) of each thread."""
    for tid in harness.tasks(pid):
        facts = harness.status(pid, tid)
        if facts:
            yield tid, facts["State"][0], int(facts["TracerPid"])


def check_let_go(pid):
    """Nobody traces any of its threads, and none is stopped. At once: the sampler is gone."""
    for tid, state, tracer in threads_of(pid):
        check(tracer == 0, f"thread {tid} of {pid} is traced by {tracer}")
        if state in "tT":
            with contextlib.suppress(AssertionError):
                harness.wait_until(lambda tid=tid: harness.state(pid, tid) not in "tT", "", 5)
            check(harness.state(pid, tid) not in "tT", f"thread {tid} of {pid} is left stopped")


def wait_process(process, what):
    try:
        return process.wait(BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(harness.LIMIT)
        raise Fault(f"{what} has not ended in {BOUND:.0f} s") from None


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


class Storm:
    """A `storm` with its sender: each signal is to be handled, once and in order, whatever happens to the samplers."""

    def __init__(self, count):
        self.count = count
        self.target = Target("storm")
        self.pid = self.target.pid
        self.sender = subprocess.Popen([program("storm_sender"), str(self.pid), str(count)], stdout=subprocess.DEVNULL)

    def is_sending(self):
        return self.sender.poll() is None

    def kill(self):
        self.sender.kill()
        self.sender.wait()
        self.target.kill()

    def end(self):
        """Once all signals are sent; raises Fault if one of them, or a child's end, was lost or came twice."""
        check(wait_process(self.sender, "storm_sender") == 0, "the target of the storm has gone")
        self.target.process.terminate()
        try:
            status, output = self.target.end()
        except subprocess.TimeoutExpired:
            raise Fault("the storm's target does not end") from None
        check(status == 0, f"the storm's target ended with {status}")
        counts = harness.last_json(output)
        exact = {"queued": self.count, "disordered": 0, "foreign": 0, "traps": 1000, "faults": 1000, "reaped": 200}
        wrong = {name: counts[name] for name, value in exact.items() if counts[name] != value}
        check(not wrong, f"signals of the storm: {wrong} instead of {exact}")


class Campaign:
    """Runs of one seed. `directory` is for files; `log` is told of each fault as it is found."""

    def __init__(self, directory, seed, log=print):
        self.directory, self.seed, self.log = directory, seed, log
        self.random = random.Random(seed)
        self.faults = []
        self.runs = collections.Counter()
        self.facts = collections.Counter()  # what the runs covered
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # an orphaned target becomes our child

    def path(self, name):
        return os.path.join(self.directory, name)

    def note(self, kind, error):
        self.faults.append(f"{kind} run {self.runs[kind]}, seed {self.seed}: {error}")
        self.log(self.faults[-1])

    @contextlib.contextmanager
    def run(self, kind):
        """One run; a fault in it is noted, and the next one goes on."""
        self.runs[kind] += 1
        try:
            yield
        except (Fault, AssertionError) as error:
            self.note(kind, error)

    def options(self, *more):
        """Some way of sampling, at 1 to 5 kHz."""
        chosen = ["-q", "-r", self.random.choice((1000, 2000, 5000)), "-m", self.random.choice(("cpu", "cpu", "wall"))]
        if self.random.random() < 0.2:
            chosen += ["--save-snapshots", self.path("snapshots")]
        return [*chosen, "-o", self.path("profile"), *more]

    def check_profile(self):
        """Whole, or not there."""
        if os.path.exists(self.path("profile")):
            harness.read_profile(self.path("profile"))
            os.unlink(self.path("profile"))

    def remove_left_over(self):
        """What a killed sampler had begun to write, under another name than the one asked for."""
        for name in os.listdir(self.directory):
            if name.startswith(("profile.", ".profile", "snapshots")):
                os.unlink(self.path(name))

    # The sampler is killed

    def moment(self):
        """(phase, options, seconds until the kill)"""
        phase = self.random.choice(("start", "attach", "sampling", "writing"))
        if phase == "start":
            return phase, [], self.random.uniform(0, 0.006)
        if phase == "attach":
            return phase, [], self.random.uniform(0.003, 0.025)
        if phase == "sampling":
            return phase, [], self.random.uniform(0.02, 0.15)
        return phase, ["-d", "0.03"], self.random.uniform(0.035, 0.06)

    def kill_attached(self, storm, counters):
        phase, more, after = self.moment()
        with Sampler(*self.options(*more, "-p", f"{storm.pid},{counters.pid}")) as sampler:
            time.sleep(after)  # a random moment is what this is about
            sampler.process.kill()
            status = wait_process(sampler.process, "a killed sampler")
        self.facts["kill-sampler " + (phase if status == -signal.SIGKILL else "had ended")] += 1
        check(status in (0, -signal.SIGKILL), f"the sampler ended with {status}")
        for target in (storm, counters):
            check_let_go(target.pid)
        Counters(self.path("counters")).assert_alive()
        self.check_profile()

    def kill_launching(self):
        """Its program goes on to its own status, or was never begun; then it ends too."""
        before = children_of(os.getpid())
        command = [program("exiter"), "exit", "37", "0.15"]
        with Sampler(*self.options("--", *command), stdout=subprocess.DEVNULL) as sampler:
            time.sleep(self.random.uniform(0, 0.05))
            sampler.process.kill()
            status = wait_process(sampler.process, "a killed sampler")
        self.facts["kill-sampler launching"] += 1
        check(status == -signal.SIGKILL, f"the sampler ended with {status}")
        for pid in set(children_of(os.getpid())) - set(before):  # it is ours now
            check_let_go(pid)
            status = self.end_of_orphan(pid)
            check(status in (None, 37), f"the launched program ended with {status} instead of 37")

    def end_of_orphan(self, pid):
        """Its status; None when it ended before it had become the program."""
        began, end = False, time.monotonic() + BOUND
        while True:
            began = began or harness.status(pid).get("Name") == "exiter"
            got, code = os.waitpid(pid, os.WNOHANG)
            if got:
                return os.waitstatus_to_exitcode(code) if began else None
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise Fault("a program whose sampler was killed does not end")
            time.sleep(0.002)

    def kill_sampler(self, runs, storm_signals=8000):
        kind = "kill-sampler"
        with Target("counters", self.path("counters"), 3600) as counters:
            while self.runs[kind] < runs:
                storm = Storm(storm_signals)
                try:
                    while self.runs[kind] < runs and storm.is_sending():
                        with self.run(kind):
                            if self.runs[kind] % 5 == 0:
                                self.kill_launching()
                            else:
                                self.kill_attached(storm, counters)
                    with self.run_again(kind):
                        storm.end()
                    self.facts["kill-sampler signals handled"] += storm_signals
                finally:
                    storm.kill()
                    self.remove_left_over()

    @contextlib.contextmanager
    def run_again(self, kind):
        """What belongs to several runs."""
        try:
            yield
        except (Fault, AssertionError) as error:
            self.note(kind, error)

    # The sampler is killed at its N-th system call

    def kill_at_call(self, which, number, storm, counters):
        """`which`: "all" calls of a run count, or those for "tracing" only, of which a longer run makes enough."""
        mode = ("cpu", "wall")[which == "all" and self.random.random() < 0.5]
        rate, seconds = (500, 0.02) if which == "all" else (2000, 0.2)
        command = [program("callkiller"), which, number, harness.SAMPLER, "-q", "-r", rate, "-d", seconds, "-m", mode,
                   "-o", self.path("profile"), "-p", f"{storm.pid},{counters.pid}"]
        with subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as killer:
            wait_process(killer, "a sampler that is killed at a system call")
            told = harness.last_json(killer.stdout.read().decode())
        check(told["status"] in (0, 128 + signal.SIGKILL), f"the sampler ended with {told}")
        for target in (storm, counters):
            check_let_go(target.pid)
        Counters(self.path("counters")).assert_alive()
        self.check_profile()
        if told["killed"]:
            call = CALLS.get(told["call"], "other calls")
            self.facts[f"kill-at-call {'after' if told['after'] else 'before'} {call}"] += 1
        return told["killed"]

    def kill_at_calls(self, which, every, most, storm_signals=8000):
        """At every `every`-th stop before or after a system call of one short run, until three in a row come to their end (runs differ).

        `most` runs at most.
        """
        kind = "kill-at-call"
        numbers, survived = list(range(self.random.randrange(every), most * every, every)), 0
        with Target("counters", self.path("counters"), 3600) as counters:
            while numbers:
                storm = Storm(storm_signals)
                try:
                    while numbers and storm.is_sending():
                        with self.run(kind):
                            survived = 0 if self.kill_at_call(which, numbers.pop(0), storm, counters) else survived + 1
                            if survived == 3:
                                numbers = []
                    with self.run_again(kind):
                        storm.end()
                    self.facts["kill-at-call signals handled"] += storm_signals
                finally:
                    storm.kill()
                    self.remove_left_over()

    # The target is killed

    def victim(self):
        """(command, the status that it ends with by itself within the run, or None)"""
        return self.random.choice((
            (["counters", self.path("victim")], None),
            (["spinners", 3], None),
            (["threads", "churn"], None),
            (["sleepers"], None),
            (["execloop_a", 1000000, 4, "worker"], None),
            (["dying", "group", self.random.uniform(5, 60), 6, 43], 43),
            (["dying", "fault", self.random.uniform(5, 60), 6], -signal.SIGSEGV),
        ))

    def kill_one_target(self):
        command, own = self.victim()
        number = self.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV))
        with Target(*command, stderr=subprocess.DEVNULL, preexec_fn=no_core) as target:
            more = ["--children"] if self.random.random() < 0.3 else []
            with Sampler(*self.options(*more, "-p", target.pid)) as sampler:
                if own is None:
                    time.sleep(self.random.uniform(0, 0.12))  # a random moment is what this is about
                    target.process.send_signal(number)
                status = wait_process(target.process, f"{command[0]}, which was killed,")
                ended = wait_process(sampler.process, f"the sampler of {command[0]}, which was killed,")
                told = sampler.process.stderr.read().decode(errors="replace")
        expected = -number if own is None else own
        self.facts["kill-target " + command[0]] += 1
        check(status == expected, f"{command[0]} ended with {status} instead of {expected}")
        check(ended == 0 or (ended == 1 and told.count("\n") == 1), f"the sampler of {command[0]} ended with {ended}: {told!r}")
        self.check_profile()

    def kill_target(self, runs):
        for _ in range(runs):
            with self.run("kill-target"):
                self.kill_one_target()
        self.remove_left_over()

    # The sampler comes while the target is in its exec or its exit

    def exit_race_once(self, command):
        # An ordinary user, whom the kernel refuses what root gets, also over a process that is ending.
        change = harness.set_uid(65534) if os.getuid() == 0 and self.random.random() < 0.7 else None
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=change) as target:
            time.sleep(self.random.uniform(0, 0.005))  # a random moment is what this is about
            options = ["-q", "-o", self.path("profile"), "-d", "0.05", "-r", "1000", "-p", target.pid]
            with Sampler(*options, preexec_fn=change) as sampler:
                status = wait_process(sampler.process, "the sampler of a program that ends")
                told = sampler.process.stderr.read().decode(errors="replace")
            ended = wait_process(target, f"{command[0]}, whose end was near,")
        check(ended == 0, f"{command[0]} ended with {ended}")
        says_why = told.count("\n") == 1 and re.search("no such process|zombie|has ended", told)
        check(status == 0 or (status == 1 and says_why), f"the sampler of a program that ends ended with {status}: {told!r}")
        self.facts[f"exit-race status {status}"] += 1
        self.check_profile()

    def exit_races(self, runs):
        os.chmod(self.directory, 0o777)
        for _ in range(runs):
            after = self.random.uniform(0, 0.04)  # the sampler takes some 10 ms to begin
            with self.run("exit-race"):
                self.exit_race_once(self.random.choice((
                    ["/bin/sh", "-c", "exec /bin/true"],
                    ["/bin/sh", "-c", f"sleep {after}; exec /bin/true"],
                    [program("dying"), "group", str(1000 * after), "3", "0"])))

    # Threads come and go

    def churn_once(self, target, seconds, limit):
        """One attached run; returns the most descriptors that it had open at one time."""
        most, over = [0], threading.Event()

        def watch(pid):
            while not over.wait(0.01):
                most[0] = max(most[0], descriptors(pid))

        with Sampler(*self.options("-d", seconds, "--stats", self.path("stats"), "-p", target.pid)) as sampler:
            watcher = threading.Thread(target=watch, args=(sampler.pid,))
            watcher.start()
            try:
                status = wait_process(sampler.process, "the sampler of churning threads")
            finally:
                over.set()
                watcher.join()
        check(status == 0, f"the sampler of churning threads ended with {status}")
        check(most[0] <= limit, f"{most[0]} descriptors were open at one time")
        stats = harness.read_stats(self.path("stats"))
        check_let_go(target.pid)
        check(harness.read_profile(self.path("profile")).leaf("steady_spin") > 0, "no sample of the steady thread")
        self.facts["churn threads vanished"] += stats["threads_vanished"]
        self.facts["churn stops"] += stats["stops"]
        self.check_profile()
        return most[0]

    def churn(self, runs, seconds=0.3):
        """2,000 threads a second. Three live at one time, a thread costs two descriptors; a leak would be of hundreds."""
        kind = "churn"
        before = self.facts["churn threads vanished"]
        most = 0
        while self.runs[kind] < runs:
            with Target("threads", "churn", 3600) as target:
                for _ in range(100):
                    if self.runs[kind] == runs:
                        break
                    with self.run(kind):
                        most = max(most, self.churn_once(target, seconds, 100))
                with self.run_again(kind):
                    harness.wait_until(lambda pid=target.pid: len(harness.tasks(pid)) <= 4, "short threads are gone")
        self.facts["churn most descriptors"] = max(most, self.facts["churn most descriptors"])
        if self.facts["churn threads vanished"] == before:
            self.note(kind, "no thread was seen to vanish")

    def check_no_child_left(self):
        """Everything that was started was also reaped, by us or by its parent."""
        try:
            left = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        self.faults.append(f"a child is left: {left}")


def children_of(pid):
    result = []
    for tid in harness.tasks(pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as file:
                result += [int(word) for word in file.read().split()]
    return result


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
