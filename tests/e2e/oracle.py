"""Our walks against libdwfl's and libunwind's of the same stopped thread (tests/oracle), and what that leaves of the target."""

import json
import os
import signal
import subprocess

import harness
from harness import Target

ORACLE = os.environ["ORACLE"]
STOPS = 100
WORK = """
import json, re
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print("ready", flush=True)
while True:
    text = json.dumps([{"a": i, "b": [i / 7, str(i)]} for i in range(200)])
    json.loads(text)
    re.findall(r"([0-9]+)\\.([0-9]+)", text)
    fib(12)
"""


class Case(harness.Case):
    def compare(self, pid, *arguments, stops=STOPS):
        """The oracle's JSON after so many stops of a process, which is left as it was."""
        path = self.path("oracle.json")
        done = subprocess.run([ORACLE, "-n", str(stops), "-r", "1000", "--json", path, *arguments, "-p", str(pid)], check=False,
                              capture_output=True, text=True, timeout=harness.LIMIT)
        self.assertEqual(done.returncode, 0, done)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(result["stops"], stops, done.stdout)
        self.assertEqual(result["failed"], 0, done.stdout)
        self.assertEqual(result["impossible"], 0, done.stdout)
        self.assertEqual(result["unexplained"], {}, done.stdout)
        self.assertEqual(result["reduced_different"], 0, done.stdout + done.stderr)
        self.assertEqual(result["same_best"] + sum(sum(result[name].values()) for name in ("better", "explained")),
                         result["compared"], done.stdout)
        return result, done.stdout


class Stacks(Case):
    def assert_same(self, *command, depth=5):
        with Target(*command) as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 40_000_000, "it is past its beginning")
            result, table = self.compare(target.pid)
            harness.assert_healthy(target.pid, "R")
        self.assertEqual(result["compared"], STOPS, table)
        self.assertEqual(result["same_best"], STOPS, table)
        self.assertEqual(result["complete"], STOPS, table)
        self.assertGreaterEqual(result["libdwfl_at_root"], STOPS, table)
        self.assertGreaterEqual(result["frames"], STOPS * depth, table)

    def test_chains(self):
        for name in ("chain_fp", "chain_nofp", "chain_nopie", "chain_static", "chain_static_pie", "chain_stripped"):
            with self.subTest(build=name):
                self.assert_same(name, depth=22)

    def test_recursion(self):
        self.assert_same("recurse", 300, depth=302)

    def test_signal_handlers(self):
        for how in ("raise", "async"):
            with self.subTest(how=how):
                self.assert_same("sighandler", how, depth=6)

    def test_alternate_signal_stack(self):
        """The others read the stack below, too. Ours says what it lacks, or is as good."""
        with Target("sighandler", "altstack") as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 40_000_000, "it is past its beginning")
            result, table = self.compare(target.pid)
        self.assertLessEqual(set(result["explained"]), {"memory"}, table)

    def test_jit(self):
        self.assert_same("jit", "now", depth=6)

    def test_python(self):
        path = self.write("work.py", WORK.encode())
        with Target("/usr/bin/python3", path) as target:
            result, table = self.compare(target.pid, stops=2 * STOPS)
            harness.assert_healthy(target.pid, "RS")
        self.assertGreaterEqual(result["same_best"], 0.99 * result["compared"], table)
        self.assertGreaterEqual(result["complete"], 0.99 * result["compared"], table)


class Unstopped(Case):
    """Walks without the registers that only a stop tells, of threads blocked below frames with frame pointers."""

    BUILDS = ("fp", "plain", "small", "probed", "static")

    def test_frame_pointer_inferred(self):
        for build in self.BUILDS:
            with self.subTest(build=build), Target(f"sleepframes_{build}", "whole") as target:
                harness.wait_until(lambda pid=target.pid: harness.state(pid) == "S", "it sleeps")
                result, table = self.compare(target.pid, "-s")
                harness.assert_healthy(target.pid, "S")
            self.assertEqual(result["complete"], STOPS, table)
            self.assertEqual(result["reduced_inferred"], STOPS, table)

    def test_frames_of_unknown_size(self):
        """They are cut there; main's is not one of them."""
        for build in self.BUILDS:
            with self.subTest(build=build), Target(f"sleepframes_{build}", "open") as target:
                harness.wait_until(lambda pid=target.pid: harness.state(pid) == "S", "it sleeps")
                result, table = self.compare(target.pid, "-s")
            self.assertGreater(result["reduced_cut"], STOPS / 3, table)
            self.assertEqual(result["reduced_cut"] + result["reduced_inferred"], STOPS, table)


class Differences(Case):
    def test_a_walk_that_stops_is_told(self):
        """CFI alone does not leave JIT code; the others do, by its frame pointers."""
        directory = self.path("fixtures")
        with Target("jit", "absent") as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 40_000_000, "it is past its beginning")
            result, table = self.compare(target.pid, "-u", "dwarf", "--save", directory)
        self.assertEqual(result["same_best"], 0, table)
        self.assertEqual(result["explained"], {"no_rule_root": result["compared"]}, table)
        self.assertEqual(sum(each["count"] for each in result["differences"]), result["compared"], table)
        self.assertEqual(len(os.listdir(directory)), len(result["differences"]))
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                words = {line.split()[0] for line in file}
            self.assertLessEqual({"register", "region", "ours", "libdwfl", "libunwind", "ours-end", "stack"}, words)


class TargetAfterwards(Case):
    def test_no_signal_is_lost(self):
        count = 4000
        path = self.path("oracle.json")
        with Target("storm") as target:
            oracle = [ORACLE, "-n", "1000000", "-r", "1000", "--json", path, "-p", str(target.pid)]
            with subprocess.Popen(oracle, stdout=subprocess.DEVNULL) as running:
                sent = subprocess.run([harness.program("storm_sender"), str(target.pid), str(count)], check=True,
                                      capture_output=True, text=True, timeout=harness.LIMIT)
                running.send_signal(signal.SIGINT)
                self.assertEqual(running.wait(harness.LIMIT), 0)
            os.kill(target.pid, signal.SIGTERM)
            status, out = target.end()
        with open(path, encoding="utf-8") as file:
            self.assertGreater(json.load(file)["stops"], 20)
        self.assertEqual(status, 0, out)
        counts = harness.last_json(out)
        self.assertEqual((counts["queued"], counts["disordered"], counts["foreign"]), (count, 0, 0), (counts, sent.stdout))
        self.assertEqual((counts["traps"], counts["faults"], counts["reaped"]), (1000, 1000, 200), counts)

    def test_stopped_process_stays_stopped(self):
        with Target("sleepers", "1") as target:
            os.kill(target.pid, signal.SIGSTOP)
            harness.wait_until(lambda: harness.state(target.pid) == "T", "it is stopped")
            self.compare(target.pid, stops=5)
            harness.wait_until(lambda: harness.state(target.pid) == "T", "it is stopped again")
            harness.assert_healthy(target.pid, "T")
            os.kill(target.pid, signal.SIGCONT)
            harness.wait_until(lambda: harness.state(target.pid) in "RS", "it goes on")


if __name__ == "__main__":
    harness.main()
