"""Launching a program: its status, its streams, its world, and what ends the sampling."""

import ctypes
import os
import pty
import re
import resource
import select
import signal
import subprocess
import time

import harness
from harness import Sampler, program, run


class Status(harness.Case):
    def test_exit_status(self):
        for number in (0, 1, 42, 255):
            with self.subTest(status=number):
                self.launch([], [program("exiter"), "exit", str(number), "0.2"], expect=number)

    def test_killed_by_signal(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGRTMIN):
            with self.subTest(signal=number):
                profile, _, _ = self.launch(["-r", "200"], [program("exiter"), "signal", str(int(number)), "0.3"],
                                            expect=128 + number)
                self.assert_share(profile, profile.containing("exiter_spin"), 0.9)

    def test_not_found(self):
        result = run("-o", self.path("profile"), "--", self.path("nothing-here"))
        self.assertEqual(result.status, 127, result)
        self.assert_one_line(result, "nothing-here", "No such file")
        self.assertEqual(os.listdir(self.directory), [], "a profile is claimed")

    def test_not_found_in_path(self):
        result = run("--", "no-such-program-anywhere")
        self.assertEqual(result.status, 127, result)
        self.assert_one_line(result, "no-such-program-anywhere")

    def test_not_executable(self):
        for name, data, mode in (("plain", b"text\n", 0o644), ("bad-interpreter", b"#!/no/such/interpreter\n", 0o755)):
            with self.subTest(name=name):
                result = run("-o", self.path("profile"), "--", self.write(name, data, mode))
                self.assertEqual(result.status, 126, result)
                self.assert_one_line(result, name)
                self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")
        result = run("--", self.directory)
        self.assertEqual(result.status, 126, result)

    def test_found_in_path(self):
        result = run("-o", self.path("profile"), "--", "sh", "-c", "exit 5")
        self.assertEqual(result.status, 5, result)

    def test_too_short_for_a_sample(self):
        profile, stats, _ = self.launch(["-r", "1"], ["/bin/true"])
        self.assertLessEqual(profile.total, 1)
        self.assertEqual(stats["samples"], profile.total)

    def test_trouble_with_the_output_does_not_change_it(self):
        with open("/dev/full", "wb") as full:
            result = run("--", program("exiter"), "exit", "42", "0.2", stdout=full)
        self.assertEqual(result.status, 42, result)
        self.assertIn("No space left on device", result.err)

    def test_never_shows_our_own_image(self):
        profile, _, _ = self.launch(["-r", "5000"], [program("exiter"), "exit", "0", "0.2"])
        self.assertEqual(set(profile.threads()), {"exiter"}, profile)
        self.assertEqual(profile.matching(r"^\[sampler\]$|launch|exec"), 0, profile)


class Streams(harness.Case):
    def test_standard_output_is_kept_with_o(self):
        result = run("-q", "-o", self.path("profile"), "--", program("exiter"), "exit", "0", "0.2")
        self.assert_ok(result)
        self.assertRegex(result.out, r"^ready pid=[0-9]+ \n$")
        self.assertEqual(result.err, "")

    def test_standard_output_is_joined_to_standard_error(self):
        result = run("-r", "200", "--", program("exiter"), "exit", "0", "0.4")
        self.assert_ok(result)
        self.assertRegex(result.err, r"(?m)^ready pid=[0-9]+ $")
        profile = harness.Profile(result.out)
        self.assert_share(profile, profile.containing("exiter_spin"), 0.9)

    def test_standard_error_is_kept(self):
        result = run("-q", "-o", self.path("profile"), "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.status, result.out, result.err), (0, "out\n", "err\n"))

    def test_standard_input_passes(self):
        data = os.urandom(1 << 20) * 10
        source = self.write("data", data)
        with open(source, "rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as feeder:
            with open(self.path("copy"), "wb") as copy:
                result = run("-r", "1000", "-o", self.path("profile"), "--", "cat", stdin=feeder.stdout, stdout=copy)
            feeder.stdout.close()
        self.assert_ok(result)
        with open(self.path("copy"), "rb") as copy:
            self.assertTrue(copy.read() == data, "the data has changed on its way")


class World(harness.Case):
    """show_world prints the same under the sampler as after a plain fork and exec."""

    def compare(self, preexec=None, process_group_differs=False, **options):
        stdout = self.path("world")
        texts = []
        for prefix in ([program("plainly")], [harness.SAMPLER, "-q", "-o", self.path("profile"), "--"]):
            with open(stdout, "wb") as out, open(self.path("errors"), "wb") as err:
                done = subprocess.run([*prefix, program("show_world"), "an argument", ""], stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=err, preexec_fn=preexec, timeout=harness.LIMIT, check=False, **options)
            self.assertEqual(done.returncode, 0)
            with open(stdout, encoding="utf-8", errors="surrogateescape") as out:
                text = out.read()
            if process_group_differs:
                text, count = re.subn(r"(?m)^process group: [0-9]+$", "process group: of the launcher", text)
                self.assertEqual(count, 1)
            texts.append(text.split("\n"))
        self.assertGreater(len(texts[0]), 60)
        self.assertEqual(*texts)
        return texts[1]

    def facts_but_output(self, name):
        with open(self.path(name), encoding="utf-8", errors="surrogateescape") as file:
            return [line for line in file.read().splitlines() if not line.startswith("fd 1:")]

    def test_plain(self):
        self.compare()

    def test_special(self):
        def special():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGRTMIN + 3])
            for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_IGN)
            os.nice(5)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            os.umask(0o077)
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            harness.prctl(29, 123456)  # PR_SET_TIMERSLACK
        lines = self.compare(preexec=special, restore_signals=False, env={"PATH": "/usr/bin:/bin", "ONLY": "a=b c"}, cwd="/")
        for line in ("SigBlk:\t0000001000000800", "nice: 5", "timer slack: 123456", "rlimit 7: 200 300", "Umask:\t0077",
                     "directory: /", "environment: 10 bytes ONLY=a=b c"):
            self.assertIn(line, lines)  # it was special indeed

    def test_more_special(self):
        """What only few programs change; each as far as it may be changed here."""
        libc = ctypes.CDLL(None)

        def write(path, text):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)

        def special():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGUSR1])
            os.kill(os.getpid(), signal.SIGUSR2)  # pending, which a child does not inherit
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            libc.syscall(251, 1, 0, 2 << 13 | 7)  # ioprio_set(IOPRIO_WHO_PROCESS, 0, best effort, 7)
            libc.syscall(238, 3, (ctypes.c_ulong * 1)(1), 64)  # set_mempolicy(MPOL_INTERLEAVE, node 0)
            write("/proc/self/oom_score_adj", "300")
            write("/proc/self/coredump_filter", "0x1f")
            libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE
            harness.prctl(1, signal.SIGUSR1)  # PR_SET_PDEATHSIG: a child does not inherit it
            harness.prctl(41, 1)  # PR_SET_THP_DISABLE
            harness.prctl(28, 1 << 5)  # PR_SET_SECUREBITS: SECBIT_KEEP_CAPS_LOCKED; for root
            harness.prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
            signal.setitimer(signal.ITIMER_REAL, 1000)  # nor this
            for limit, value in ((resource.RLIMIT_STACK, 4 << 20), (resource.RLIMIT_MEMLOCK, 16384), (resource.RLIMIT_MSGQUEUE, 100000)):
                resource.setrlimit(limit, (value, value))
            os.setpgid(0, 0)
        with open(self.path("passed"), "wb") as passed:
            lines = self.compare(preexec=special, pass_fds=[passed.fileno()], process_group_differs=True,
                                 env={"PATH": "/usr/bin:/bin", "EMPTY": "", "BYTES": b"\xff\x01\n;", "A": "x" * 100000})
        # Personality, I/O priority and memory policy may be forbidden, then they are compared as they are.
        for line in ("policy: 3", "/proc/self/oom_score_adj: 300", "/proc/self/coredump_filter: 0000001f", "death signal: 0",
                     "huge pages off: 1", "NoNewPrivs:\t1", "timer 0: 0", "ShdPnd:\t0000000000000000",
                     f"rlimit 3: {4 << 20} {4 << 20}"):
            self.assertIn(line, lines)

    def test_closed_descriptors(self):
        for numbers in ([0], [2], [0, 2]):
            with self.subTest(closed=numbers):
                self.compare(preexec=lambda numbers=numbers: [os.close(number) for number in numbers])

    def test_own_process_group(self):
        """The group is the caller's, whatever it is: here that of a shell in a session of its own, on a terminal."""
        prefix = f"'{harness.SAMPLER}' -q -o '{self.path('profile')}' --"
        script = f"'{program('show_world')}' >'{self.path('plain')}'; {prefix} '{program('show_world')}' >'{self.path('sampled')}'"
        pid, terminal = pty.fork()
        if pid == 0:
            os.execl("/bin/sh", "sh", "-c", script)
        try:
            drain(terminal)
            _, code = os.waitpid(pid, 0)
        finally:
            os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(code), 0)
        first, second = (self.facts_but_output(name) for name in ("plain", "sampled"))
        self.assertIn("isatty 1", "\n".join(first))
        self.assertEqual(first, second)

    def test_sigchld_ignored_by_the_parent(self):
        result = run("-o", self.path("profile"), "--", program("exiter"), "exit", "42", "0.2", restore_signals=False,
                     preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(result.status, 42, result)


def drain(terminal, until=None, limit=harness.LIMIT):
    """Reads a terminal to its end, or until the text has come."""
    end, text = time.monotonic() + limit, b""
    while until is None or until not in text:
        if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            raise AssertionError(f"the terminal is silent after {text!r}")
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            data = b""
        if data == b"":
            break
        text += data
    return text.decode(errors="replace")


class Ending(harness.Case):
    def test_duration_shorter_than_the_program(self):
        profile, stats = self.path("profile"), self.path("stats")
        command = [program("exiter"), "exit", "9", "4"]
        with Sampler("-d", "0.5", "-r", "200", "-o", profile, "--stats", stats, "--", *command) as sampler:
            harness.wait_until(lambda: os.path.exists(profile), "the profile is there")
            self.assertIsNone(sampler.process.poll(), "the sampler has not waited for the program")
            self.assertLess(time.monotonic() - sampler.start, 3.5, "the profile came only at the program's end")
            found = harness.read_profile(profile)
            self.assert_share(found, found.containing("exiter_spin"), 0.9)
            result = sampler.end()
        self.assertEqual(result.status, 9, result)
        self.assertGreaterEqual(result.seconds, 3.9)
        self.assertAlmostEqual(harness.read_stats(stats)["wall_ns"] / 1e9, 0.5, delta=0.3)

    def signal_program(self, number):
        """The signal goes to the sampler; the program gets it too, once; the profile is written before the program ends."""
        profile = self.path("profile")
        with Sampler("-r", "500", "-o", profile, "--", program("listener"), "2") as sampler:
            pid = sampler.ready_pid()
            harness.wait_sampled(pid, 50)  # so that the few samples of its beginning do not count
            sampler.signal(number)
            harness.wait_until(lambda: os.path.exists(profile), "the profile is there")
            self.assertIsNone(sampler.process.poll(), "the sampler has not waited for the program")
            harness.assert_healthy(pid)
            os.kill(pid, signal.SIGINT)
            result = sampler.end()
        self.assertEqual(result.status, 7, result)
        counts = harness.last_json(result.out)
        self.assertEqual(counts, {"INT": 1, "TERM": int(number == signal.SIGTERM), "HUP": int(number == signal.SIGHUP)})
        found = harness.read_profile(profile)
        self.assert_share(found, found.containing("listener_spin"), 0.9)

    def test_sigterm_is_passed_on(self):
        self.signal_program(signal.SIGTERM)

    def test_sighup_is_passed_on(self):
        self.signal_program(signal.SIGHUP)

    def test_sigterm_kills_the_program(self):
        with Sampler("-r", "500", "-o", self.path("profile"), "--", program("exiter"), "exit", "0", "20") as sampler:
            pid = sampler.ready_pid()
            harness.wait_sampled(pid)
            sampler.signal(signal.SIGTERM)
            result = sampler.end()
        self.assertEqual(result.status, 128 + signal.SIGTERM, result)
        self.assertGreater(harness.read_profile(self.path("profile")).containing("exiter_spin"), 0)

    def test_control_c_on_a_terminal(self):
        """The terminal gives Ctrl-C to both; the program gets it once and goes on; the profile is written at once."""
        profile = self.path("profile")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execl(harness.SAMPLER, harness.SAMPLER, "-q", "-r", "500", "-o", profile, "--", program("listener"), "2")
        try:
            text = drain(terminal, until=b"\n")
            program_pid = int(text.split("pid=")[1].split()[0])
            harness.wait_sampled(program_pid)
            os.write(terminal, b"\x03")
            harness.wait_until(lambda: os.path.exists(profile), "the profile is there")
            self.assertEqual(os.waitpid(pid, os.WNOHANG), (0, 0), "the sampler has not waited for the program")
            os.kill(program_pid, signal.SIGTERM)
            counts = harness.last_json(drain(terminal))
            _, code = os.waitpid(pid, 0)
        finally:
            os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(code), 7)
        self.assertEqual(counts, {"INT": 1, "TERM": 1, "HUP": 0})
        self.assertGreater(harness.read_profile(profile).containing("listener_spin"), 0)

    def test_program_reads_the_terminal(self):
        """It is in the foreground: no SIGTTIN."""
        pid, terminal = pty.fork()
        if pid == 0:
            script = "read line; echo got $line"
            os.execl(harness.SAMPLER, harness.SAMPLER, "-q", "-o", self.path("profile"), "--", "sh", "-c", script)
        try:
            os.write(terminal, b"hello\n")
            self.assertIn("got hello", drain(terminal, until=b"got hello"))
            _, code = os.waitpid(pid, 0)
        finally:
            os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(code), 0)

    def test_children_that_outlive_the_program(self):
        """Sampling ends with the launched process; what it left behind lives on and is not traced."""
        script = f"'{program('exiter')}' exit 0 20 >/dev/null 2>&1 & echo $!; sleep 0.3; exit 3"
        start = time.monotonic()
        result = run("-r", "500", "-o", self.path("profile"), "--", "sh", "-c", script)
        pid = int(result.out)
        try:
            self.assertEqual(result.status, 3, result)
            self.assertLess(time.monotonic() - start, 10)
            self.assertIn(harness.state(pid), "RS")
            harness.assert_healthy(pid)
            found = harness.read_profile(self.path("profile"))
            self.assertGreater(found.containing("exiter_spin"), 0, found)
        finally:
            os.kill(pid, signal.SIGKILL)

    def test_killed_sampler_leaves_the_program(self):
        with Sampler("-r", "1000", "-o", self.path("profile"), "--", program("exiter"), "exit", "0", "20") as sampler:
            pid = sampler.ready_pid()
            try:
                harness.wait_sampled(pid)
                sampler.process.kill()
                sampler.process.wait(harness.LIMIT)
                before = harness.cpu_ns(pid)
                harness.wait_until(lambda: harness.cpu_ns(pid) > before + 100000000, "the program goes on")
                harness.assert_healthy(pid)
                self.assertFalse(os.path.exists(self.path("profile")), "half a profile under the real name")
            finally:
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    harness.main()
