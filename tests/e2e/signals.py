"""Signals of the target under sampling: none is lost, doubled, reordered or swallowed; stops stay stops."""

import collections
import contextlib
import itertools
import os
import pty
import random
import resource
import signal
import subprocess
import threading
import time

import harness
from harness import Counters, Sampler, Target, program, run


class Storm(harness.Case):
    def storm(self, *options):
        with Target("storm") as target:
            with Sampler("-q", "-r", "1000", *options, "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                sender = subprocess.run([program("storm_sender"), str(target.pid), "10000"], capture_output=True, text=True,
                                        timeout=60, check=True)
                os.kill(target.pid, signal.SIGTERM)
                status, output = target.end()
                self.assert_ok(sampler.end())
        self.assertEqual(status, 0)
        counts, sent = harness.last_json(output), harness.last_json(sender.stdout)
        exact = {"queued": 10000, "disordered": 0, "foreign": 0, "traps": 1000, "faults": 1000, "reaped": 200, "interrupted": 0}
        self.assertEqual({name: counts[name] for name in exact}, exact)
        self.assertLessEqual(counts["usr1"], sent["usr1"])
        self.assertGreaterEqual(counts["usr1"], sent["usr1"] * 0.1)  # while one is pending, another changes nothing
        self.assertLessEqual(counts["chld"], 200)
        self.assertGreater(counts["chld"], 0)
        self.assertGreater(harness.read_profile(self.path("profile")).containing("storm_spin"), 500)

    def test_cpu_mode(self):
        self.storm()

    def test_wall_mode(self):
        self.storm("-m", "wall")

    def test_killed_sampler(self):
        """Samplers are killed in the middle of it, one after the other; still no signal is lost."""
        with Target("storm") as target:
            with subprocess.Popen([program("storm_sender"), str(target.pid), "4000"], stdout=subprocess.PIPE, text=True) as sender:
                while sender.poll() is None:
                    with Sampler("-q", "-r", "5000", "-o", self.path("profile"), "-p", target.pid) as sampler:
                        time.sleep(0.06)  # anywhere in its work
                        sampler.process.kill()
                        sampler.process.wait(harness.LIMIT)
            os.kill(target.pid, signal.SIGTERM)
            status, output = target.end()
        counts = harness.last_json(output)
        self.assertEqual(status, 0)
        exact = {"queued": 4000, "disordered": 0, "foreign": 0, "traps": 1000, "faults": 1000, "reaped": 200}
        self.assertEqual({name: counts[name] for name in exact}, exact)


class Kinds(harness.Case):
    """sigkinds checks each signal's siginfo, order and handler's stack, and sends most only when the last one has come."""

    EXACT = {"alarm": 500, "prof": 60, "timer": 800, "thread_timer": 800, "ping": 2000, "thread_queue": 4000, "signalfd": 4000,
             "sigwait": 4000, "child": 200, "fpe": 300, "ill": 300, "segv": 300, "bus": 300, "step": 300, "sys": 300, "io": 500,
             "wrong": 0, "first": "", "interrupted": 0, "missed": 0}

    def kinds(self, mode):
        with Target("sigkinds", stdin=subprocess.PIPE) as target:
            with Sampler("-r", "1000", "-m", mode, "-o", self.path("profile"), "--stats", self.path("stats"), "-p",
                         target.pid) as sampler:
                target.process.stdin.write(b"\n")
                status, output = target.end(60)
                self.assert_ok(sampler.end())
        self.assertEqual((status, harness.last_json(output)), (0, self.EXACT))
        stats = harness.read_stats(self.path("stats"))
        self.assertGreater(stats["stops"] if harness.BPF == "off" else stats["samples"], 10)
        self.assertGreater(harness.read_profile(self.path("profile")).containing("sigkinds_spin"), 0)

    def test_cpu_mode(self):
        self.kinds("cpu")

    def test_wall_mode(self):
        self.kinds("wall")

    def test_samplers_that_are_ended(self):
        """Signals end samplers, or stop and continue them, at any moment: the target notices nothing of it."""
        ends = itertools.cycle((signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP))
        ended = collections.Counter()
        with Target("sigkinds", stdin=subprocess.PIPE) as target:
            target.process.stdin.write(b"\n")
            while harness.state(target.pid) not in "Z?":
                number = next(ends)
                mode = random.choice(("cpu", "wall"))
                with Sampler("-q", "-r", "5000", "-m", mode, "-o", self.path("profile"), "-p", target.pid, process_group=0,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))) as sampler:
                    time.sleep(random.uniform(0, 0.05))  # anywhere in its work
                    sampler.signal(number)
                    if number == signal.SIGTSTP:
                        # To signal it reaps it if it has ended: there is no state to ask for then.
                        harness.wait_until(lambda: sampler.process.poll() is not None or harness.state(sampler.pid) == "T",
                                           "the sampler has stopped, or ended")
                        sampler.signal(signal.SIGCONT)
                        sampler.signal(signal.SIGINT)
                    sampler.end()
                    ended[number] += 1
            status, output = target.end()
        self.assertGreaterEqual(len(ended), 2, ended)
        self.assertEqual((status, harness.last_json(output)), (0, self.EXACT))


class Stopped(harness.Case):
    def test_stopped_target_stays_stopped(self):
        for mode in ("wall", "cpu"):
            with self.subTest(mode=mode), Target("spinners", 2) as target:
                os.kill(target.pid, signal.SIGSTOP)
                harness.wait_until(lambda: {harness.state(target.pid, tid) for tid in harness.tasks(target.pid)} == {"T"},
                                   "it is stopped")
                profile, stats, result = self.attach(target.pid, "-m", mode, "-r", "50", "-d", "1")
                self.assertLess(result.seconds, 3)
                for tid in harness.tasks(target.pid):
                    # Let go, it enters its stop again, for which it needs a CPU; its own code does not run.
                    harness.wait_until(lambda tid=tid: harness.state(target.pid, tid) == "T", "it is stopped again")
                    self.assertEqual(harness.status(target.pid, tid)["TracerPid"], "0")
                if mode == "wall":
                    self.assertEqual(set(profile.threads()), {"spinners", "spin-0", "spin-1"})
                    whole = profile.count(lambda stack: "spin_main" in stack and "[truncated]" not in stack)
                    self.assertGreaterEqual(whole, 1.8 * stats["ticks"], profile)
                else:
                    self.assertEqual(profile.total, 0)
                before = harness.cpu_ns(target.pid)
                os.kill(target.pid, signal.SIGCONT)
                harness.wait_until(lambda: harness.cpu_ns(target.pid) > before + 20000000, "it goes on")
                harness.assert_healthy(target.pid, "RS")

    def test_parent_sees_the_stop_once(self):
        """The parent that waits for stops is told of its child's stop, and of no other."""
        with Target("chain_fp") as target:
            with Sampler("-q", "-r", "500", "-d", "1", "-m", "wall", "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                target.process.send_signal(signal.SIGSTOP)
                first = os.waitid(os.P_PID, target.pid, os.WSTOPPED)
                self.assertEqual((first.si_code, first.si_status), (os.CLD_STOPPED, signal.SIGSTOP))
                self.assert_ok(sampler.end())
            self.assertIsNone(os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOHANG), "a stop of the sampler's own")
            harness.wait_until(lambda: harness.state(target.pid) == "T", "it is stopped again")
            target.process.send_signal(signal.SIGCONT)
            harness.assert_healthy(target.pid, "R")

    def next_event(self, pid):
        """The next thing that a parent which waits for everything is told of its child: (code, signal)."""
        what = harness.wait_until(lambda: os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOHANG),
                                  "the parent is told")
        return what.si_code, what.si_status

    def test_parent_is_told_of_each_once(self):
        """Stopped and continued as fast as the parent is told of it: as often as it was done, and of nothing else."""
        for mode in ("cpu", "wall"):
            with self.subTest(mode=mode), Target("counters", self.path("counters")) as target:
                with Sampler("-q", "-r", "300", "-d", "1.5", "-m", mode, "-o", self.path("profile"), "-p", target.pid) as sampler:
                    times = 0
                    while sampler.process.poll() is None:
                        os.kill(target.pid, signal.SIGSTOP)
                        self.assertEqual(self.next_event(target.pid), (os.CLD_STOPPED, signal.SIGSTOP))
                        os.kill(target.pid, signal.SIGCONT)
                        self.assertEqual(self.next_event(target.pid), (os.CLD_CONTINUED, signal.SIGCONT))
                        times += 1
                    self.assert_ok(sampler.end())
                self.assertGreater(times, 10)
                self.assertIsNone(os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG))
                harness.assert_healthy(target.pid, "RS")
                Counters(self.path("counters")).assert_alive()

    def storm_events(self, sampled):
        """What the parent is told in 300 stops and continues, 3 ms from one to the next, which the kernel may merge."""
        events = collections.Counter()
        with Target("counters", self.path("counters")) as target, contextlib.ExitStack() as stack:
            def collect():
                while True:
                    what = os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOWAIT)
                    if what.si_code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
                        return
                    os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
                    events[what.si_code] += 1
            if sampled:
                sampler = stack.enter_context(Sampler("-q", "-r", "300", "-m", "wall", "-o", self.path("profile"), "-p", target.pid))
            thread = threading.Thread(target=collect)
            thread.start()
            for _ in range(300):
                os.kill(target.pid, signal.SIGSTOP)
                time.sleep(0.003)
                os.kill(target.pid, signal.SIGCONT)
                time.sleep(0.003)
            Counters(self.path("counters")).assert_alive()
            if sampled:
                sampler.signal(signal.SIGINT)
                self.assert_ok(sampler.end())
            harness.assert_healthy(target.pid, "RS")
            os.kill(target.pid, signal.SIGKILL)
            thread.join(harness.LIMIT)
        return events

    def test_a_parent_is_told_as_often_as_without_us(self):
        plain, sampled = self.storm_events(False), self.storm_events(True)
        for code in (os.CLD_STOPPED, os.CLD_CONTINUED):
            self.assertLessEqual(max(plain[code], sampled[code]), 300)
            self.assertGreater(sampled[code], 0.6 * plain[code])

    def test_stop_and_continue_storm(self):
        """A CPU limiter at work: SIGSTOP and SIGCONT every 3 ms."""
        path = self.path("counters")
        with Target("counters", path) as target:
            over = threading.Event()

            def limiter():
                while not over.wait(0.003):
                    os.kill(target.pid, signal.SIGSTOP)
                    over.wait(0.003)
                    os.kill(target.pid, signal.SIGCONT)

            thread = threading.Thread(target=limiter)
            thread.start()
            try:
                for mode in ("cpu", "wall"):
                    with self.subTest(mode=mode):
                        result = run("-m", mode, "-r", "300", "-d", "1.2", "-o", self.path("profile"), "-p", target.pid)
                        self.assert_ok(result)
                        self.assertLess(result.seconds, 3)
            finally:
                over.set()
                thread.join(harness.LIMIT)
                os.kill(target.pid, signal.SIGCONT)
            harness.assert_healthy(target.pid, "RSD")
            Counters(path).assert_alive()

    def test_stop_during_sampling(self):
        """Stopped and continued while sampled: it is stopped when it was told so, and runs when it was told so."""
        with Target("chain_fp") as target:
            with Sampler("-q", "-r", "1000", "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                for _ in range(20):
                    os.kill(target.pid, signal.SIGSTOP)
                    harness.wait_until(lambda: harness.state(target.pid) == "T", "it is stopped")
                    before = harness.cpu_ns(target.pid)
                    time.sleep(0.01)  # in which it would run, if it could; entering the stop again costs it some microseconds
                    self.assertLess(harness.cpu_ns(target.pid) - before, 1_000_000)
                    os.kill(target.pid, signal.SIGCONT)
                    harness.wait_until(lambda: harness.cpu_ns(target.pid) > before, "it goes on")
                sampler.signal(signal.SIGINT)
                self.assert_ok(sampler.end())
            harness.assert_healthy(target.pid, "R")


class Shell(harness.Case):
    """Ctrl-Z on a terminal, with a shell that does job control."""

    def job(self, command, told):
        """A shell's part, in a process of its own: `command` as the job in the foreground, and a line for all that is told of it."""
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execv(command[0], command)
        while True:
            _, code = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
            what = (f"stopped {os.WSTOPSIG(code)}" if os.WIFSTOPPED(code) else "continued" if os.WIFCONTINUED(code) else
                    f"killed {os.WTERMSIG(code)}" if os.WIFSIGNALED(code) else f"exited {os.WEXITSTATUS(code)}")
            os.write(told, f"{pid} {what}\n".encode())
            if os.WIFEXITED(code) or os.WIFSIGNALED(code):
                os._exit(0)

    @contextlib.contextmanager
    def shell(self, command):
        """(terminal, what is told of the job, line by line)"""
        read_end, write_end = os.pipe()
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                self.job(command, write_end)
            finally:
                os._exit(99)
        os.close(write_end)
        with os.fdopen(read_end, "rb", 0) as told:
            try:
                yield terminal, told
            finally:
                os.close(terminal)  # hangs up, which ends the shell and the job
                os.waitpid(pid, 0)

    def stop_and_continue(self, terminal, told, pids, times):
        for _ in range(times):
            os.write(terminal, b"\x1a")
            self.assertRegex(harness.read_line(told), f" stopped {int(signal.SIGTSTP)}$")
            for pid in pids:
                harness.wait_until(lambda pid=pid: harness.state(pid) == "T", "it is stopped")
            before, start = harness.cpu_ns(pids[0]), time.monotonic()
            time.sleep(0.01)  # in which it would run, if it could; entering the stop again costs it some microseconds
            ran = harness.cpu_ns(pids[0]) - before
            self.assertLess(ran, 0.1e9 * (time.monotonic() - start))
            os.killpg(os.getpgid(pids[0]), signal.SIGCONT)
            self.assertRegex(harness.read_line(told), " continued$")
            harness.wait_until(lambda before=before: harness.cpu_ns(pids[0]) > before + 3_000_000, "it goes on")

    def ready_pid(self, terminal):
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(terminal, 1)
        return int(text.split(b"pid=")[1].split()[0])

    def test_target(self):
        for mode in ("cpu", "wall"):
            with self.subTest(mode=mode), self.shell([program("chain_fp")]) as (terminal, told):
                pid = self.ready_pid(terminal)
                with Sampler("-q", "-r", "1000", "-m", mode, "-o", self.path("profile"), "-p", pid) as sampler:
                    harness.wait_sampled(pid)
                    self.stop_and_continue(terminal, told, [pid], 10)
                    sampler.signal(signal.SIGINT)
                    self.assert_ok(sampler.end())
                harness.assert_healthy(pid, "R")
                os.kill(pid, signal.SIGTERM)
                self.assertEqual(harness.read_line(told), f"{pid} killed {int(signal.SIGTERM)}")

    def test_sampler_and_launched_program(self):
        """Both stop and go on, as one job."""
        for mode in ("cpu", "wall"):
            command = [harness.SAMPLER, "-q", "--bpf", harness.BPF, "-r", "1000", "-m", mode, "-o", self.path("profile"), "--", program("chain_fp")]
            with self.subTest(mode=mode), self.shell(command) as (terminal, told):
                pid = self.ready_pid(terminal)
                harness.wait_sampled(pid)
                self.stop_and_continue(terminal, told, [pid, os.getpgid(pid)], 10)
                harness.wait_sampled(pid)
                os.kill(pid, signal.SIGTERM)
                self.assertRegex(harness.read_line(told), f" exited {128 + signal.SIGTERM}$")
            profile = harness.read_profile(self.path("profile"))
            self.assertGreater(profile.ending("level_20", "leaf_spin"), 0, profile)


class Suspended(harness.Case):
    """Ctrl-Z stops the sampler only when it holds nothing of the target; and again and again, also in the target's execs."""

    def test_nothing_is_held(self):
        with Target("execloop_a", 150, 8, "worker") as target:
            # A process group of its own, with a parent in the same session: else the kernel leaves SIGTSTP out.
            with Sampler("-q", "-r", "1000", "-m", "wall", "-o", self.path("profile"), "-p", target.pid, process_group=0) as sampler:
                for _ in range(40):
                    sampler.signal(signal.SIGTSTP)
                    harness.wait_until(lambda: harness.state(sampler.pid) in "TZ?", "the sampler has stopped, or ended")
                    if harness.state(sampler.pid) != "T":
                        break
                    traced = [tid for tid in harness.tasks(target.pid)
                              if harness.status(target.pid, tid).get("TracerPid", "0") != "0"]
                    self.assertEqual(traced, [])
                    sampler.signal(signal.SIGCONT)
                    time.sleep(0.003)
                status, output = target.end(60)
                self.assert_ok(sampler.end())
        self.assertEqual((status, harness.last_json(output)), (0, {"execs": 150}))


if __name__ == "__main__":
    harness.main()
