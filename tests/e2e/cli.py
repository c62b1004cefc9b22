"""The command line: usage errors, --help, --version, where the output goes, --stats."""

import os
import stat

import harness
from harness import Target, run

LATER_FORMATS = ("pprof", "speedscope", "firefox", "trace", "html", "recording")
LATER_COMMANDS = ("dump", "top", "diff")


class Usage(harness.Case):
    """Each is one line that says what is wrong and how to see help, status 2, and nothing happens."""

    def refuse(self, *arguments, words=()):
        with self.subTest(arguments=arguments):
            before = sorted(os.listdir(self.directory))
            result = run(*arguments, cwd=self.directory)
            self.assertEqual(result.status, 2, result)
            self.assert_one_line(result, "--help", *words)
            self.assertEqual(sorted(os.listdir(self.directory)), before, "a file was touched")

    def refuse_both(self, *options, words=()):
        """A bad option, where everything else is right: no process is attached or started, no output file made."""
        self.refuse(*options, "-o", "profile", "--", "/usr/bin/touch", "started", words=words)

    def test_nothing_to_do(self):
        self.refuse()
        self.refuse("-o", "profile")
        self.refuse("-r", "99", "-d", "1")

    def test_unknown_option(self):
        self.refuse_both("--no-such-option", words=["no-such-option"])
        self.refuse_both("-Z", words=["Z"])
        self.refuse_both("--no-such-option=3", words=["no-such-option"])

    def test_missing_argument(self):
        self.refuse("-p")
        self.refuse("--rate")
        self.refuse("-o")

    def test_pid_and_program(self):
        self.refuse("-p", os.getpid(), "-o", "profile", "--", "/usr/bin/touch", "started")

    def test_program_without_dashes(self):
        self.refuse("-o", "profile", "/usr/bin/touch", "started")

    def test_no_program(self):
        self.refuse("-o", "profile", "--")

    def test_bad_pid(self):
        for value in ("", "abc", "0", "-1", "12x", "1,", ",1", "1,,2", "99999999999999999999"):
            self.refuse("-o", "profile", "-p", value)

    def test_bad_rate(self):
        for value in ("0", "10001", "-1", "abc", "", "99x", "99999999999999999999"):
            self.refuse_both("-r", value)
            self.refuse_both(f"--rate={value}")

    def test_bad_duration(self):
        for value in ("-1", "abc", "", "5x", "1s2", "nan", "inf", "1e400"):
            self.refuse_both("-d", value)

    def test_bad_choice(self):
        self.refuse_both("-m", "nothing", words=["nothing"])
        self.refuse_both("-u", "nothing", words=["nothing"])
        self.refuse_both("-f", "nothing", words=["nothing"])
        self.refuse_both("--value", "nothing", words=["nothing"])
        self.refuse_both("--jitter", "nothing", words=["nothing"])
        self.refuse_both("--events", "nothing", words=["nothing"])
        self.refuse_both("--mode=")

    def test_bad_depth(self):
        for value in ("0", "-1", "abc", ""):
            self.refuse_both("--max-depth", value)

    def test_flag_with_value(self):
        self.refuse_both("--threads=1")

    def test_target_is_not_touched(self):
        with Target("chain_fp") as target:
            before = harness.status(target.pid)["voluntary_ctxt_switches"]
            self.refuse("-p", target.pid, "-r", "0", "-o", "profile")
            self.assertEqual(harness.status(target.pid)["voluntary_ctxt_switches"], before)
            harness.assert_healthy(target.pid)


class Later(harness.Case):
    """What is described but does not exist yet says so in one line."""

    def test_formats(self):
        for name in LATER_FORMATS:
            with self.subTest(format=name):
                result = run("-f", name, "-o", "profile", "--", "/usr/bin/touch", "started", cwd=self.directory)
                self.assertEqual(result.status, 2, result)
                self.assert_one_line(result, name)
                self.assertEqual(os.listdir(self.directory), [])

    def test_commands(self):
        for name in LATER_COMMANDS:
            with self.subTest(command=name):
                result = run(name, "-p", os.getpid(), cwd=self.directory)
                self.assertEqual(result.status, 2, result)
                self.assert_one_line(result, name)


class Information(harness.Case):
    def test_help(self):
        result = run("--help")
        self.assert_ok(result)
        self.assertEqual(result.err, "")
        for word in ("--pid", "--thread", "--rate", "--duration", "--mode", "--unwind", "--max-depth", "--jitter", "--events", "--children",
                     "--format", "--output", "--value", "--threads", "--stats", "--quiet", "--verbose", "--version"):
            self.assertIn(word, result.out)

    def test_version(self):
        result = run("--version")
        self.assert_ok(result)
        self.assertEqual(result.err, "")
        self.assertRegex(result.out, r"^sampler [0-9]+\.[0-9]+")
        self.assertEqual(result.out.count("\n"), 1)


class Output(harness.Case):
    def test_missing_directory_before_attaching(self):
        with Target("chain_fp") as target:
            before = harness.status(target.pid)["voluntary_ctxt_switches"]
            result = run("-p", target.pid, "-d", "20", "-o", self.path("missing/profile"))
            self.assertEqual(result.status, 1, result)
            self.assert_one_line(result, "No such file or directory", "missing")
            self.assertLess(result.seconds, 10)
            self.assertEqual(harness.status(target.pid)["voluntary_ctxt_switches"], before, "the target was stopped")

    def test_missing_directory_before_launching(self):
        result = run("-o", self.path("missing/profile"), "--", "/usr/bin/touch", self.path("started"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, "No such file or directory")
        self.assertEqual(os.listdir(self.directory), [])

    def test_output_is_a_directory(self):
        with Target("chain_fp") as target:
            result = run("-p", target.pid, "-d", "20", "-o", self.directory)
            self.assertEqual(result.status, 1, result)
            self.assertLess(result.seconds, 10)

    def test_full_device(self):
        device = "/dev/full"
        if os.getuid() == 0:  # a private one where that can be had: whoever renames over it breaks nothing
            try:
                os.mknod(self.path("full"), 0o666 | stat.S_IFCHR, os.makedev(1, 7))
                with open(self.path("full"), "wb"):
                    device = self.path("full")
            except OSError:
                pass
        with Target("chain_fp") as target:
            result = run("-p", target.pid, "-d", "0.5", "-o", device)
            self.assertEqual(result.status, 1, result)
            self.assertIn("No space left on device", result.err)
            harness.assert_healthy(target.pid)
        self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode), "the device was replaced by a file")

    def test_full_standard_output(self):
        with Target("chain_fp") as target, open("/dev/full", "wb") as full:
            result = run("-p", target.pid, "-d", "0.5", stdout=full)
            self.assertEqual(result.status, 1, result)
            self.assertIn("No space left on device", result.err)
            harness.assert_healthy(target.pid)

    def test_dash_is_standard_output(self):
        with Target("chain_fp") as target:
            result = run("-p", target.pid, "-d", "0.5", "-o", "-", cwd=self.directory)
        self.assert_ok(result)
        self.assertGreater(harness.Profile(result.out).ending("level_20", "leaf_spin"), 0)
        self.assertEqual(os.listdir(self.directory), [])

    def test_replaces_an_older_file_and_leaves_no_other(self):
        self.write("profile", b"older")
        with Target("chain_fp") as target:
            self.attach(target.pid, "-d", "0.3")
        self.assertEqual(sorted(os.listdir(self.directory)), ["profile", "stats"])

    def test_quiet(self):
        with Target("chain_fp") as target:
            result = run("-q", "-p", target.pid, "-d", "0.3")
        self.assert_ok(result)
        self.assertEqual(result.err, "")

    def test_summary(self):
        with Target("chain_fp") as target:
            result = run("-p", target.pid, "-d", "0.3")
        self.assert_ok(result)
        self.assertRegex(result.err, r"[0-9]+ ticks, [0-9]+ samples")
        # Where the machine let no tick through for a moment, that is told in a line more.
        lines = [line for line in result.err.splitlines() if "without a tick" not in line]
        self.assertLessEqual(len(lines), 2, result.err)


class Values(harness.Case):
    def test_durations(self):
        with Target("chain_fp") as target:
            for value, seconds in (("0.5", 0.5), ("1", 1.0), ("1s", 1.0), ("0.01m", 0.6)):
                with self.subTest(duration=value):
                    _, stats, result = self.attach(target.pid, f"--duration={value}", "--jitter", "off")
                    self.assertGreaterEqual(result.seconds, seconds - 0.01)
                    self.assertLess(result.seconds, seconds + 3)
                    self.assertAlmostEqual(stats["wall_ns"] / 1e9, seconds, delta=0.25)

    def test_rates(self):
        with Target("chain_fp") as target:
            for rate in (1, 99, 997):
                with self.subTest(rate=rate):
                    _, stats, _ = self.attach(target.pid, "-r", rate, "-d", "1")
                    self.assertEqual(stats["rate_hz"], rate)
                    self.assertAlmostEqual(stats["ticks"] + stats["ticks_missed"], rate, delta=2 + rate * 0.05)
                    self.assertLessEqual(stats["samples"], stats["ticks"] + 1)

    def test_stats(self):
        with Target("chain_fp") as target:
            profile, stats, _ = self.attach(target.pid, "-r", "200", "-d", "1")
        numbers = ("ticks", "ticks_late", "ticks_missed", "samples", "samples_truncated", "threads_seen", "threads_vanished",
                   "threads_unsampled", "stops", "eintr_restarted", "signals_forwarded", "cpu_ns_target", "cpu_ns_sampled",
                   "wall_ns", "frames", "symbol_ns", "unwind_ns", "unstopped", "inferred", "stopped", "rate_hz")
        missing = [name for name in numbers if not isinstance(stats.get(name), (int, float))]
        self.assertEqual(missing, [], "numbers that are missing")
        self.assertIsInstance(stats["samples_failed"], dict)
        self.assertLessEqual({"p50", "p90", "p99", "max"}, set(stats["stop_ns"]))
        self.assertLessEqual({"fp", "cfi", "libunwind", "helper"}, set(stats["frames_by"]))
        self.assertEqual(stats["mode"], "cpu")
        self.assertEqual(stats["threads_seen"], 1)
        self.assertEqual(stats["samples"], profile.total)
        self.assertGreater(stats["stops"], 0)
        quantiles = [stats["stop_ns"][name] for name in ("p50", "p90", "p99", "max")]
        self.assertEqual(quantiles, sorted(quantiles))
        self.assertGreater(quantiles[0], 0)

    def test_stats_into_a_missing_directory(self):
        with Target("chain_fp") as target:
            result = run("-p", target.pid, "-d", "20", "-o", self.path("profile"), "--stats", self.path("missing/stats"))
        self.assertEqual(result.status, 1, result)
        self.assertLess(result.seconds, 10)
        self.assertIn("missing/stats", result.err)


if __name__ == "__main__":
    harness.main()
