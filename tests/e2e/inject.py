"""Loads a library into running programs that notice whatever is not as it was (sampler/inject.h)."""

import contextlib
import os
import random
import signal
import socket
import subprocess

import harness

INJECTOR = os.environ["INJECTOR"]
CALLKILLER = harness.program("callkiller")
LIBRARY = harness.program("libinjectee_library.so")
WAITS = ("read", "poll", "ppoll", "select", "epoll", "futex", "accept", "sigwait", "nanosleep")


def inject(pid, function="injected_plus_one", argument=41, count=1, timeout_ms=5000, library=LIBRARY, prefix=()):
    """The lines that the injector has printed."""
    run = subprocess.run([*prefix, INJECTOR, str(pid), library, function, str(argument), str(count), str(timeout_ms)],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=harness.LIMIT, check=False)
    return run.stdout.decode().splitlines()


def facts(line):
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


class Injectee(harness.Target):
    def __init__(self, *arguments, name="injectee", prefix=()):
        super().__init__(*prefix, harness.program(name), *arguments, stdin=subprocess.PIPE)
        self.mode = arguments[0]

    def kill(self):
        super().kill()
        self.process.stdin.close()

    def finish(self):
        """Ends its wait as its mode wants it, and returns what it says of itself."""
        if self.mode in ("read", "poll", "ppoll", "select", "epoll", "futex"):
            self.process.stdin.write(b"x")
            self.process.stdin.flush()
        elif self.mode == "accept":
            socket.create_connection(("127.0.0.1", int(self.facts["port"])), harness.LIMIT).close()
        else:
            self.process.send_signal(signal.SIGUSR1 if self.mode == "sigwait" else signal.SIGTERM)
        line = harness.read_line(self.process.stdout)
        self.process.wait(harness.LIMIT)
        return harness.last_json(line)


class Inject(harness.Case):
    def assert_good(self, target):
        harness.assert_healthy(target.pid)
        said = target.finish()
        self.assertEqual(said["good"], 1, said)
        return said

    def assert_value(self, lines, value):
        self.assertEqual([facts(line).get("value") for line in lines], [str(value)], lines)

    def assert_refused(self, lines, error, *words):
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(f"error={error} "), lines)
        for word in words:
            self.assertIn(word, lines[0])

    def asleep(self, target):
        if target.mode in WAITS:
            harness.wait_until(lambda: harness.state(target.pid) == "S", "the target sleeps")

    def test_waits_go_on(self):
        for mode in WAITS:
            with self.subTest(mode), Injectee(mode) as target:
                self.asleep(target)
                for argument in range(3):
                    self.assert_value(inject(target.pid, argument=argument), argument + 1)
                self.assert_value(inject(target.pid, "injected_calls"), 3)
                self.assert_good(target)

    def test_waits_after_a_stop(self):
        """The number of the call is not in the registers any more (restart_syscall)."""
        for mode in ("poll", "nanosleep"):
            with self.subTest(mode), Injectee(mode) as target:
                self.asleep(target)
                target.process.send_signal(signal.SIGSTOP)
                harness.wait_until(lambda pid=target.pid: harness.state(pid) == "T", "it stops")
                self.assert_refused(inject(target.pid), "EBUSY", "-CONT")
                target.process.send_signal(signal.SIGCONT)
                self.asleep(target)
                self.assert_value(inject(target.pid), 42)
                self.assert_good(target)

    def test_registers_of_a_spinning_thread(self):
        with Injectee("spin") as target:
            lines = inject(target.pid, argument=1, count=100)
            self.assertEqual([facts(line).get("value") for line in lines], [str(n) for n in range(2, 102)], lines)
            self.assertEqual({facts(line)["unmapped"] for line in lines}, {"1"}, lines)
            self.assert_good(target)

    def test_busy_places(self):
        for arguments in (("longjmp",), ("malloc", 0), ("malloc", 3), ("join",), ("alone",)):
            with self.subTest(arguments), Injectee(*arguments) as target:
                for _ in range(5):
                    self.assert_value(inject(target.pid), 42)
                self.assert_good(target)

    def test_only_loaders(self):
        """Whether there is a good moment is chance; nothing may go wrong."""
        with Injectee("dl", 2) as target:
            for _ in range(3):
                line = inject(target.pid, timeout_ms=300)[0]
                self.assertTrue(line.startswith("value=42 ") or line.startswith("error=EAGAIN "), line)
            self.assert_good(target)

    def test_long_calls(self):
        """It does not stop within the time that a look takes, but between two calls there is a way in."""
        with harness.Target("longcall", 400) as target:
            for _ in range(3):
                self.assert_value(inject(target.pid, timeout_ms=10000), 42)
            harness.assert_healthy(target.pid)

    def test_does_not_stop(self):
        with harness.Target("longcall", 60000) as target:
            if float(target.facts["max_ms"]) < 600:
                self.skipTest("no call is so long here")
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 8e7, "it is in the call")
            self.assert_refused(inject(target.pid, timeout_ms=100), "ETIMEDOUT", "does not stop", "try again")
            harness.assert_healthy(target.pid)

    def test_time_is_over_in_the_function(self):
        with Injectee("read") as target:
            self.asleep(target)
            self.assert_refused(inject(target.pid, "injected_sleep_ms", 700, timeout_ms=200), "EINPROGRESS", "in the function", "by itself")
            harness.assert_healthy(target.pid)
            self.assert_good(target)

    def test_what_dlopen_says(self):
        bad = self.write("bad.so", b"no library")
        with Injectee("read") as target:
            self.asleep(target)
            self.assert_refused(inject(target.pid, library=bad), "ELIBBAD", "dlopen", bad)
            self.assert_refused(inject(target.pid, "nothing_like_it"), "ELIBBAD", "dlsym", "nothing_like_it")
            self.assert_refused(inject(target.pid, library="/nonexistent.so"), "ENOENT")
            self.assert_value(inject(target.pid), 42)
            self.assert_good(target)

    def test_programs_that_cannot(self):
        with Injectee("read", name="injectee_static") as target:
            self.assert_refused(inject(target.pid), "ENOEXEC", "statically")
            self.assert_good(target)
        with Injectee("read", prefix=(harness.program("forbid"),)) as target:
            self.assert_refused(inject(target.pid), "EOPNOTSUPP", "seccomp")
            self.assert_good(target)
        musl = harness.program("threadends_musl_dynamic")
        if os.path.exists(musl):
            with harness.Target(musl) as target:
                self.assert_refused(inject(target.pid), "ENOEXEC", "musl")

    def test_another_tracer(self):
        with Injectee("read") as target, harness.Target("tracer_holder", target.pid) as _:
            self.assert_refused(inject(target.pid), "EPERM", "traced")

    def test_killed_at_any_of_its_calls(self):
        """callkiller kills the injector at each stop of the system calls that it traces with. (Not with epoll_wait: killed before it
        has hidden that a stop ends that call with EINTR, nobody can.)"""
        for mode, step in (("spin", 7), ("poll", 13), ("nanosleep", 29), ("join", 29)):
            with self.subTest(mode), Injectee(mode) as target:
                self.asleep(target)
                number, killed = 0, 1
                while killed and number < 600:
                    run = subprocess.run([CALLKILLER, "tracing", str(number), INJECTOR, str(target.pid), LIBRARY, "injected_plus_one", "1"],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=harness.LIMIT, check=False)
                    killed = harness.last_json(run.stdout.decode())["killed"]
                    self.assertIsNone(target.process.poll(), f"killed by stop {number}")
                    number += step
                self.assertGreater(number, 100)  # else it was not killed often enough
                self.assert_value(inject(target.pid), 42)
                self.assert_good(target)

    def test_killed_at_random(self):
        chance = random.Random(7)
        for mode in ("spin", "futex", "malloc"):
            with self.subTest(mode), Injectee(mode) as target:
                for _ in range(40):
                    with subprocess.Popen([INJECTOR, str(target.pid), LIBRARY, "injected_plus_one", "1", "20"], stdout=subprocess.DEVNULL) as injector:
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            injector.wait(chance.uniform(0.001, 0.03))
                        injector.kill()
                    self.assertIsNone(target.process.poll())
                self.assert_value(inject(target.pid), 42)
                self.assert_good(target)


if __name__ == "__main__":
    harness.main()
