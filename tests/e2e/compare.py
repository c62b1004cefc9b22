"""sampler compare: windows in turn, one table; what it says when an engine is refused, the target ends, or somebody loses patience.

Whether this build has --helper does not matter here: the inside column has numbers then, and else a reason.
"""

import json
import os
import signal
import subprocess
import time

import harness
from harness import Sampler, Target, run

QUICK = ("-d", "1.2", "--window", "0.2")  # two windows of each kind
KINDS = ("outside", "inside", "nothing")


def alive(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        facts = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return facts["State"][0] in "RS" and facts["TracerPid"] == "0"


class Compare(harness.Case):
    def table(self, *arguments, status=0, limit=harness.LIMIT, **options):
        path = self.path("table")
        result = run("compare", "--json", "-o", path, *arguments, limit=limit, **options)
        self.assertEqual(result.status, status, result)
        with open(path, encoding="utf-8") as file:
            return json.load(file), result

    def check_table(self, table):
        """Each number is what the windows have."""
        windows = table["windows"]
        for kind, column in table["columns"].items():
            mine = [window for window in windows if window["kind"] == kind and window["refused"] is None]
            self.assertEqual(column["windows"], len(mine))
            self.assertAlmostEqual(column["seconds"], sum(window["seconds"] or 0 for window in mine), places=3)
            if kind == "nothing" or not mine:
                self.assertIsNone(column["samples"])
                continue
            self.assertEqual(column["samples"], sum(window["samples"] for window in mine))
            self.assertEqual(column["samples"], sum(window["profile_total"] for window in mine))
            if column["samples"]:
                self.assertGreaterEqual(column["depth_max"], column["depth_p50"])
        for distance in table["distances"]:
            if distance["stacks"]["tvd"] is not None:
                self.assertTrue(0 <= distance["innermost"]["tvd"] <= distance["stacks"]["tvd"] + 1e-5 <= 1.0001, distance)
                self.assertLessEqual(distance["hot_in_both"], distance["hot"])
        # Windows come in random order: a target that ends early may have had none of a kind.
        if table["columns"]["outside"]["samples"]:
            self.assertLessEqual(sum(hot["outside"] for hot in table["hottest"]), 1.0001)
        else:
            self.assertEqual({hot["outside"] for hot in table["hottest"]} - {None}, set())

    def check_inside(self, table):
        """Numbers, or the reason why there are none."""
        inside = table["columns"]["inside"]
        self.assertEqual(inside["windows"] == 0, inside["refused"] is not None, inside)
        if inside["refused"] is not None:
            self.assertTrue(inside["refused"] and "\n" not in inside["refused"])
            self.assertEqual(sum(window["kind"] == "inside" for window in table["windows"]), 1, "a refused engine is not asked again")

    def test_spinners(self):
        with Target("spinners", 2, 60) as target:
            table, result = self.table("-p", target.pid, "-r", 200, *QUICK)
            self.assertTrue(alive(target.pid))
        self.assertEqual(result.out, "")
        self.assertEqual(table["pid"], target.pid)
        self.assertEqual((table["name"], table["mode"], table["rate_hz"], table["window_s"]), ("spinners", "cpu", 200, 0.2))
        self.assertEqual((table["target_ended"], table["interrupted"]), (False, False))
        self.assertEqual(set(table["columns"]), set(KINDS))
        self.check_table(table)
        self.check_inside(table)
        outside = table["columns"]["outside"]
        self.assertEqual((outside["windows"], outside["eintr_seen"]), (2, 0))
        self.assertGreater(outside["samples"], 0)
        self.assertGreater(outside["engine_cpu_ns"], 0)
        self.assertGreater(table["columns"]["nothing"]["target_cpus"], 0)
        self.assertEqual({hot["stack"].split(";")[-1] for hot in table["hottest"][:2]}, {"spin_loop"})
        self.assertEqual(table["work"], "unknown")
        self.assertIsNone(outside["slowdown_percent"])
        self.assertEqual([name for name in os.listdir(self.directory) if name != "table"], [])

    def test_wall_mode_and_text(self):
        with Target("sleepers", 60) as target:
            result = run("compare", "-p", target.pid, "-m", "wall", *QUICK, env={**os.environ, "TMPDIR": self.directory})
            self.assertTrue(alive(target.pid))
        self.assert_ok(result)
        lines = result.out.split("\n")
        self.assertIn("wall mode", lines[0])
        self.assertEqual(lines[1].split(), list(KINDS))
        cells = {line[:26].strip(): line[26:].split() for line in lines[2:]}
        self.assertEqual(cells["windows"][0], "2")
        self.assertGreater(int(cells["samples"][0]), 10)
        self.assertEqual(cells["EINTR, target saw"][0], "0")
        self.assertIn("hottest stacks, %", lines)
        self.assertEqual(os.listdir(self.directory), [], "a temporary file was left")

    def test_work_is_counted_by_a_command(self):
        """The clock as work: as much of it is done in each window."""
        with Target("spinners", 1, 60) as target:
            seen = self.path("seen")
            command = f"echo $SAMPLER_PID > {seen}; cut -d' ' -f1 /proc/uptime"
            table, _ = self.table("-p", target.pid, "--work", command, "-d", 1.5, "--window", 0.5)
            with open(seen, encoding="ascii") as file:
                self.assertEqual(int(file.read()), target.pid)
        self.check_table(table)
        self.assertEqual(table["work"], "--work")
        for kind in ("outside", "nothing"):
            # /proc/uptime has hundredths, and the moment of reading is known to the command's own time.
            self.assertAlmostEqual(table["columns"][kind]["work_per_second"], 1, delta=0.6)
        self.assertIsNotNone(table["columns"]["outside"]["slowdown_percent"])
        self.assertIsNone(table["columns"]["nothing"]["slowdown_percent"])

    def test_work_that_tells_nothing(self):
        with Target("spinners", 1, 60) as target:
            table, result = self.table("-p", target.pid, "--work", "echo none", "-d", 0.6, "--window", 0.2)
        self.assertIn("--work", result.err)
        self.assertIsNone(table["columns"]["outside"]["work_per_second"])

    def test_the_target_ends(self):
        with Target("spinners", 1, 1) as target:
            table, result = self.table("-p", target.pid, "-d", 30, "--window", 0.5)
        self.assertTrue(table["target_ended"])
        self.assertIn("ended", result.err)
        self.assertLess(len(table["windows"]), 8)
        self.check_table(table)
        self.assertLess(result.seconds, 15)

    def test_a_launched_program(self):
        """Its status is ours, its output its own, and the table has what there was."""
        table, result = self.table("-d", 20, "--window", 0.3, "--", harness.program("exiter"), "exit", 7, 1.2, status=7)
        self.assertTrue(result.out.startswith("ready"), result)
        self.assertTrue(table["target_ended"])
        self.assertEqual(table["name"], "exiter")
        self.check_table(table)
        result = run("compare", "-d", 0.6, "--window", 0.2, "--", harness.program("exiter"), "exit", 3, 2.5)
        self.assertEqual(result.status, 3, result)
        self.assertIn("outside", result.out)
        self.assertNotIn("ready", result.out)
        self.assertIn("ready", result.err)

    def test_programs_that_cannot_be_launched(self):
        result = run("compare", "--", self.path("none"))
        self.assertEqual(result.status, 127, result)
        self.assert_one_line(result, "none")

    def test_a_process_that_does_not_exist(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        result = run("compare", "-p", gone.pid, "-o", self.path("table"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, str(gone.pid), "no such process")
        self.assertEqual(os.listdir(self.directory), [])

    def test_wrong_command_lines(self):
        for arguments in ((), ("-p", 1, "--", "true"), ("-p", "1,2"), ("-p", 1, "--window", "x"), ("-p", 1, "--stats", "x"),
                          ("-p", 1, "-d", 1, "--window", 2), ("-p", 1, "-r", 0), ("-p", 1, "--work=")):
            with self.subTest(arguments=arguments):
                result = run("compare", *arguments, cwd=self.directory)
                self.assertEqual(result.status, 2, result)
                self.assert_one_line(result, "--help")
        self.assertEqual(os.listdir(self.directory), [])

    def interrupt(self, number):
        with Target("spinners", 1, 60) as target:
            path = self.path("table")
            with Sampler("compare", "-v", "--json", "-o", path, "-p", target.pid, "-d", 100, "--window", 0.2) as sampler:
                for _ in range(3):  # a line for each window
                    harness.read_line(sampler.process.stderr)
                sampler.signal(number)
                start = time.monotonic()
                self.assert_ok(sampler.end())
                self.assertLess(time.monotonic() - start, 10)
            harness.wait_until(lambda: alive(target.pid), "the target runs on, untraced")
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        self.assertTrue(table["interrupted"])
        self.check_table(table)

    def test_ctrl_c_ends_it(self):
        self.interrupt(signal.SIGINT)

    def test_sigterm_ends_it(self):
        self.interrupt(signal.SIGTERM)


if __name__ == "__main__":
    harness.main()
