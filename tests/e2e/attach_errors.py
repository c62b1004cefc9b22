"""Processes that cannot be sampled: one line names the cause, status 1, no profile, the target is untouched."""

import os
import resource
import shutil
import signal
import subprocess

import harness
from harness import Target, run


class Errors(harness.Case):
    def refuse(self, pid, *words, **options):
        result = run("-d", "5", "-o", self.path("profile"), "-p", pid, **options)
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, *words)
        self.assertLess(result.seconds, 4)
        self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")
        return result

    def test_no_such_process(self):
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        self.refuse(gone.pid, "no such process", str(gone.pid))

    def test_pid_beyond_all(self):
        self.refuse(2147483647, "no such process")

    def test_zombie(self):
        with subprocess.Popen(["true"]) as zombie:
            os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
            self.refuse(zombie.pid, "zombie", str(zombie.pid))
            self.assertEqual(harness.state(zombie.pid), "Z", "somebody else's child was reaped")

    def test_thread_id(self):
        """The id of a thread that is not a process: either taken for its process or refused in one line."""
        with Target("spinners", 1) as target:
            tid = next(tid for tid in harness.tasks(target.pid) if tid != target.pid)
            result = run("-d", "0.3", "-o", self.path("profile"), "-p", tid)
            if result.status != 0:
                self.assertEqual(result.status, 1, result)
                self.assert_one_line(result, str(tid))
            harness.assert_healthy(target.pid)

    def test_few_descriptors(self):
        """How many are needed depends on what is open already. Too few: a word and an end; enough: a profile; never neither."""
        with Target("chain_nofp") as target:
            for limit in range(6, 20):
                with self.subTest(limit=limit):
                    result = run("-q", "-d", "0.2", "-o", self.path("profile"), "-p", target.pid,
                                 preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                    self.assertLess(result.seconds, 5)
                    self.assertLessEqual(result.err.count("\n"), 1, result)
                    if not result.err:
                        self.assertEqual(result.status, 0, result)
                        self.assertGreater(harness.read_profile(self.path("profile")).total, 0)
                    harness.assert_healthy(target.pid, "R")

    def test_itself(self):
        script = f"exec '{harness.SAMPLER}' -d 5 -o '{self.path('profile')}' -p $$"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=harness.LIMIT, check=False)
        self.assertIn(done.returncode, (1, 2))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_traced_by_another(self):
        with Target("chain_fp") as target, Target("tracer_holder", target.pid) as tracer:
            self.refuse(target.pid, "traced", str(tracer.pid), "tracer_holder")
            self.assertEqual(harness.status(target.pid)["TracerPid"], str(tracer.pid), "the tracer has lost its target")
            tracer.kill()
            harness.assert_healthy(target.pid, "R")

    def test_another_thread_is_traced(self):
        """Whoever has one of its threads is in the middle of something: not only the main thread is asked."""
        with Target("spinners", 2) as target:
            tid = max(harness.tasks(target.pid))
            with Target("tracer_holder", tid) as tracer:
                self.refuse(target.pid, "traced", str(tracer.pid), "tracer_holder")
                self.assertEqual(harness.status(target.pid, tid)["TracerPid"], str(tracer.pid))

    def test_traced_by_gdb(self):
        if shutil.which("gdb") is None:
            return
        command = ["gdb", "-nx", "-q", "-batch", "-ex", "echo here\\n", "-ex", "shell read end", "-p"]
        with Target("chain_fp") as target:
            with subprocess.Popen([*command, str(target.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, bufsize=0) as gdb:
                while harness.read_line(gdb.stdout) != "here":
                    pass
                self.refuse(target.pid, "traced", str(gdb.pid), "gdb")
                self.assertEqual(harness.status(target.pid)["TracerPid"], str(gdb.pid))
                gdb.communicate(b"\n", timeout=harness.LIMIT)
            harness.assert_healthy(target.pid, "R")

    def test_traced_by_strace(self):
        if shutil.which("strace") is None:
            return  # the case above is the same; this one is with the tool that people use
        with Target("chain_fp") as target, subprocess.Popen(["strace", "-q", "-p", str(target.pid), "-o", "/dev/null"]) as strace:
            try:
                harness.wait_until(lambda: harness.status(target.pid)["TracerPid"] == str(strace.pid), "strace has attached")
                self.refuse(target.pid, "traced", str(strace.pid), "strace")
                self.assertEqual(harness.status(target.pid)["TracerPid"], str(strace.pid))
            finally:
                strace.send_signal(signal.SIGTERM)
                strace.wait(harness.LIMIT)
            harness.assert_healthy(target.pid, "R")

    def test_tracer_that_comes_later(self):
        """Another tracer takes the thread while it is being sampled: both come to their end, and the target runs on."""
        with Target("chain_fp") as target:
            with harness.Sampler("-r", "200", "-d", "2", "-o", self.path("profile"), "-p", target.pid) as sampler:
                harness.wait_sampled(target.pid)
                try:
                    with Target("tracer_holder", target.pid):
                        harness.wait_until(lambda: sampler.process.poll() is not None, "the sampler ends")
                        result = sampler.end()
                        self.assertEqual(result.status, 0, result)
                except AssertionError as error:  # the holder came in the very moment of a stop
                    self.assertIn("end of output", str(error))
            harness.assert_healthy(target.pid, "R")

    def test_not_permitted(self):
        """An ordinary user and somebody else's process: the line names what forbids it and what to do."""
        root = os.getuid() == 0
        with Target("chain_fp") as target:
            pid = target.pid if root else 1
            os.chmod(self.directory, 0o777)
            result = self.refuse(pid, str(pid), preexec_fn=harness.set_uid(65534) if root else None)
            self.assertRegex(result.err.lower(), r"not permitted|permission")
            self.assertRegex(result.err.lower(), r"\buid\b|\buser\b|root")
            harness.assert_healthy(target.pid, "R")

    def test_one_of_two_is_missing(self):
        """All or nothing: what is asked for and cannot be had is an error, and the other one is left alone."""
        with subprocess.Popen(["true"]) as gone:
            gone.wait()
        with Target("chain_fp") as target:
            result = run("-d", "1", "-o", self.path("profile"), "-p", f"{target.pid},{gone.pid}")
            self.assertIn(str(gone.pid), result.err)
            self.assertIn("no such process", result.err.lower())
            self.assertIn(result.status, (0, 1))
            harness.assert_healthy(target.pid, "R")

    def test_ordinary_user_samples_what_is_his(self):
        """Needs nothing but the right to trace one's own processes, which Yama takes away with ptrace_scope."""
        try:
            with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
                scope = int(file.read())
        except OSError:
            scope = 0
        change = harness.set_uid(65534) if os.getuid() == 0 else None
        os.chmod(self.directory, 0o777)
        with Target("chain_fp", preexec_fn=change) as target:
            if scope == 0:
                result = run("-d", "0.5", "-r", "200", "-o", self.path("profile"), "-p", target.pid, preexec_fn=change)
                self.assert_ok(result)
                self.assertGreater(harness.read_profile(self.path("profile")).ending("level_20", "leaf_spin"), 0)
            else:
                self.refuse(target.pid, "ptrace_scope", preexec_fn=change)
            harness.assert_healthy(target.pid, "R")


if __name__ == "__main__":
    harness.main()
