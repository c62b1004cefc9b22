"""Saved snapshots: they change nothing, give the same profile again without the process, and bear files that are not as they were."""

import glob
import os
import resource
import shutil
import stat
import struct

import harness
from harness import Sampler, Target, program, run

MAGIC = b"SMPLSNAP"
CHAIN = ("main", *(f"level_{n}" for n in range(1, 21)), "leaf_spin")

# Threads, JIT code with a perf map, the vDSO, forks and execs, all at once; sh waits for the rest.
MIXTURE = """
jit now 1.2 & jit late 1.2 & clocks 1.2 & spinners 3 1.2 & forker chain_nofp 1.2 & execloop_a 60 2 worker & wait
"""


def mixture():
    words = " ".join(program(word) if os.path.exists(program(word)) else word for word in MIXTURE.split())
    return ["/bin/sh", "-c", words]


class Case(harness.Case):
    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def report(self, *arguments, name="report"):
        """Reports from the file `snap`: (profile, run)."""
        result = run("report", *arguments, "-o", self.path(name), self.path("snap"))
        self.assert_ok(result)
        self.assertEqual(result.out, "", result)
        return harness.read_profile(self.path(name)), result

    def assert_warnings(self, result, *wanted):
        """One warning for each of the wanted lists of words, and no other."""
        warnings = [line for line in result.err.splitlines() if line.startswith("sampler:")]
        self.assertEqual(len(warnings), len(wanted), result)
        for words in wanted:
            self.assertTrue(any(all(word in line for word in words) for line in warnings), (words, result))

    def save(self, command, *options, **more):
        """Launches a program, saves snapshots in `snap` and returns (profile, stats, run)."""
        return self.launch(["--save-snapshots", self.path("snap"), *options], command, **more)

    def chain(self, *options):
        """Samples a copy of a program, so that a test may do something to it."""
        shutil.copy(program("chain_nofp"), self.path("chain"))
        profile, _, _ = self.save([self.path("chain"), "0.5"], "-r", "250", *options)
        # What the program does before that can take its time; how exact stacks are is for other tests.
        self.assert_share(profile, profile.ending(*CHAIN), 0.5)
        return profile


class Replay(Case):
    def assert_same(self, *options, output=()):
        """A run with these options, and its report with those of its output only, give the same bytes; also at the second time."""
        profile, stats, result = self.save(mixture(), "-r", "500", *options)
        saved = self.read("profile")
        for _ in range(2):
            again, report = self.report(*output, "--stats", self.path("report.stats"))
            self.assert_warnings(report)
            self.assertEqual(self.read("report"), saved, result)
        report_stats = harness.read_stats(self.path("report.stats"))
        not_in_a_report = {"symbol_ns", "unwind_ns", "events", "events_lost", "events_repairs", "sleeps", "stopped_asleep", "interrupted", "interrupted_ns", "ticks_skipped",
                           "ticks_in_gaps", "wait_ns_target", "processes", "threads_live", "threads_eligible", "left_out", "overhead_percent"}
        for key in set(stats) - not_in_a_report:
            self.assertEqual(report_stats[key], stats[key], key)
        for name in (r"^jit_inner_\[j\]$", "^read_clock$", "vdso", "^spin_loop$", "^child_spin$", "^leaf_spin$", "^spin_in_[ab]$"):
            self.assertGreater(again.matching(name), 0, f"{name}\n{again}")
        return profile

    def test_cpu(self):
        profile = self.assert_same()
        self.assertGreater(profile.ending("run_jit", "jit_outer_[j]", "jit_middle_[j]", "jit_inner_[j]"), 0, profile)

    def test_wall_in_nanoseconds_by_threads(self):
        self.assert_same("-m", "wall", "--value", "ns", "--threads", output=("--value", "ns", "--threads"))

    def test_cpu_in_nanoseconds(self):
        self.assert_same("--value", "ns", output=("--value", "ns"))

    def test_other_modes(self):
        for mode in ("fp", "dwarf"):
            with self.subTest(mode=mode):
                self.assert_same("-u", mode, "--max-depth", "9")

    def test_signal_frames(self):
        for kind in ("async", "altstack"):
            with self.subTest(kind=kind):
                self.save([program("sighandler"), kind, "0.5"], "-r", "500")
                self.report()
                self.assertEqual(self.read("report"), self.read("profile"))

    def test_without_names(self):
        """JIT code without a perf map has no names in either."""
        profile, _, _ = self.save([program("jit"), "absent", "0.5"], "-r", "250")
        self.report()
        self.assertEqual(self.read("report"), self.read("profile"))
        self.assertGreater(profile.containing("[anon]"), 0)

    def test_standard_output(self):
        self.save([program("demo"), "0.4"], "-r", "250")
        result = run("report", "-q", self.path("snap"))
        self.assert_ok(result)
        self.assertEqual((result.out.encode(), result.err), (self.read("profile"), ""))

    def test_attached(self):
        """A process that was there before and is after, blocked."""
        with Target("idle") as target:
            profile, _, _ = self.attach(target.pid, "-m", "wall", "-d", "0.3", "--save-snapshots", self.path("snap"))
        self.assertGreater(profile.total, 10)
        self.report()
        self.assertEqual(self.read("report"), self.read("profile"))

    def test_counters_of_sleeping_threads(self):
        """Calls that were started again after a stop; registers by BPF, where that can be."""
        for bpf, counter in (("off", "eintr_restarted"), ("auto", "registers_by_bpf")):
            with self.subTest(bpf=bpf), Target("sleepframes_fp", "open", 4) as target:
                _, stats, _ = self.attach(target.pid, "-m", "wall", "-r", "100", "-d", "0.5", "--bpf", bpf, "--save-snapshots",
                                          self.path("snap"))
                self.report("--stats", self.path("report.stats"))
                self.assertEqual(harness.read_stats(self.path("report.stats"))[counter], stats[counter])
                if bpf == "off":
                    self.assertGreaterEqual(stats[counter], 1)


class Differently(Case):
    """The same snapshots, seen otherwise than the run saw them."""

    def test_unwind(self):
        profile, stats, _ = self.save([program("chain_fp"), "0.6"], "-r", "250", "-u", "dwarf")
        self.assertEqual(stats["frames_by"]["fp"], 0)
        fp, _ = self.report("-u", "fp", "--stats", self.path("report.stats"))
        stats = harness.read_stats(self.path("report.stats"))
        self.assertGreater(stats["frames_by"]["fp"], stats["frames"] * 0.5)
        self.assertEqual(fp.total, profile.total)
        self.assert_share(fp, fp.ending(*CHAIN), 0.95)

    def test_as_a_run_in_that_mode(self):
        """JIT stacks, which only frame pointers can follow: none by unwind information alone, all of them otherwise."""
        self.save([program("jit"), "now", "0.6"], "-r", "250")
        fp, _ = self.report("-u", "fp")
        self.assert_share(fp, fp.ending("main", "run_jit", "jit_outer_[j]", "jit_middle_[j]", "jit_inner_[j]"), 0.9)
        dwarf, _ = self.report("-u", "dwarf")
        self.assertEqual(dwarf.containing("jit_outer_[j]"), 0)
        self.assertEqual(dwarf.total, fp.total)

    def test_max_depth(self):
        profile, _, _ = self.save([program("chain_nofp"), "0.6"], "-r", "250", "--max-depth", "5")
        self.assert_share(profile, profile.count(lambda stack: len(stack) == 7), 0.9)  # thread, [truncated], 5 frames
        whole, _ = self.report("--max-depth", "4096")
        self.assert_share(whole, whole.ending(*CHAIN), 0.9)
        three, _ = self.report("--max-depth", "3")
        self.assert_share(three, three.count(lambda stack: len(stack) == 5 and stack[-3:] == CHAIN[-3:]), 0.9)

    def test_threads(self):
        profile, _, _ = self.save([program("spinners"), "3", "0.6"], "-r", "250")
        for value in ("samples", "ns"):
            one, _ = self.report("-t", "spin-1", "--value", value)
            self.assertEqual(set(one.threads()), {"spin-1"})
        one, _ = self.report("-t", "spin-1")
        self.assertEqual(one.total, profile.threads()["spin-1"])
        two, _ = self.report("-t", "spin-[02]")
        self.assertEqual(two.total, profile.threads()["spin-0"] + profile.threads()["spin-2"])


class Saving(Case):
    def test_changes_nothing(self):
        """With and without saving: all samples, the same stacks, a target that is as before."""
        with Target("chain_nofp") as target:
            profiles = []
            for options in ((), ("--save-snapshots", self.path("snap"))):
                profile, stats, _ = self.attach(target.pid, "-r", "250", "-d", "0.8", *options)
                self.assert_caught(profile.total, stats)
                self.assertEqual((stats["samples_failed"], stats["samples_truncated"]), ({}, 0))
                self.assert_share(profile, profile.ending(*CHAIN), 0.98)
                profiles.append(profile.from_frame("main"))
            harness.assert_healthy(target.pid, "R")
        self.assertEqual(set(profiles[0]), set(profiles[1]))

    def test_file(self):
        """There when the run is over, under its name only, and a file like any other."""
        mask = os.umask(0o027)
        self.addCleanup(os.umask, mask)
        self.write("snap", b"older", 0o604)
        self.save([program("demo"), "0.3"])
        self.assertEqual(self.read("snap")[:8], MAGIC)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("snap")).st_mode), 0o604)
        self.assertEqual(glob.glob(self.path("snap*")), [self.path("snap")])

    def test_refused(self):
        """An error before anything is attached, launched or written."""
        os.mkfifo(self.path("fifo"))
        os.mkdir(self.path("directory"))
        for name, words in (("none/snap", ["none/snap", "no such"]), ("directory", ["directory"]), ("fifo", ["fifo"]),
                            ("profile", ["profile", "another output"])):
            with self.subTest(file=name):
                before = sorted(os.listdir(self.directory))
                if name == "fifo":  # its reader is there: opening it would not wait
                    reader = os.open(self.path("fifo"), os.O_RDONLY | os.O_NONBLOCK)
                    self.addCleanup(os.close, reader)
                result = run("--save-snapshots", self.path(name), "-o", self.path("profile"), "--", "/usr/bin/touch",
                             self.path("started"))
                self.assertEqual(result.status, 1, result)
                self.assert_one_line(result, *words)
                self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_unreadable_target(self):
        self.write("snap", b"older")
        result = run("--save-snapshots", self.path("snap"), "-p", "2147483647")
        self.assertEqual(result.status, 1, result)
        self.assertEqual(self.read("snap"), b"older")
        self.assertEqual(os.listdir(self.directory), ["snap"])

    def limit_files(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def assert_lost(self, result, status):
        self.assertEqual(result.status, status, result)
        self.assertEqual(result.err.count("cannot write to"), 1, result)
        self.assertIn(f"cannot write to {self.path('snap')}: File too large", result.err)
        self.assertEqual(glob.glob(self.path("snap*")), [])
        profile = harness.read_profile(self.path("profile"))
        self.assert_share(profile, profile.ending(*CHAIN), 0.9)
        return profile

    def test_full_attached(self):
        with Target("chain_nofp") as target:
            with Sampler("-r", "500", "-d", "2.5", "-o", self.path("profile"), "--stats", self.path("stats"), "--save-snapshots",
                         self.path("snap"), "-p", target.pid, preexec_fn=self.limit_files) as sampler:
                result = sampler.end()
            harness.assert_healthy(target.pid, "R")
        profile = self.assert_lost(result, 1)
        self.assert_caught(profile.total, harness.read_stats(self.path("stats")))

    def test_full_launched(self):
        """Trouble with the sampling is not the program's."""
        with Sampler("-r", "500", "-o", self.path("profile"), "--save-snapshots", self.path("snap"), "--", program("chain_nofp"), "2.5",
                     preexec_fn=self.limit_files) as sampler:
            self.assert_lost(sampler.end(), 0)

    def test_killed(self):
        """What was written until then can be read, and the target goes on."""
        with Target("chain_nofp") as target:
            with Sampler("-r", "500", "--save-snapshots", self.path("snap"), "-o", self.path("profile"), "-p", target.pid) as sampler:
                def written():
                    files = glob.glob(self.path("snap.*"))
                    return files and os.path.getsize(files[0]) > 100_000 and files[0]
                temporary = harness.wait_until(written, "something is saved")
                sampler.process.kill()
                sampler.process.wait(harness.LIMIT)
            harness.assert_healthy(target.pid, "R")
        os.rename(temporary, self.path("snap"))
        profile, result = self.report()
        self.assert_warnings(result, ["cut off"])
        self.assertGreater(profile.total, 10)
        self.assert_share(profile, profile.ending(*CHAIN), 0.95)
        result = run("report", "--value", "ns", "-o", self.path("none"), self.path("snap"))
        self.assertEqual(result.status, 1, result)
        self.assertIn("CPU times", result.err)
        self.assertFalse(os.path.exists(self.path("none")))


class Images(Case):
    """Programs that are not where or what they were when the report is made."""

    def assert_unnamed(self, *words):
        profile, result = self.report()
        self.assert_warnings(result, [self.path("chain"), "[chain]", *words])
        self.assertEqual(profile.matching("level_|leaf_spin"), 0, profile)
        self.assert_share(profile, profile.leaf("[chain]"), 0.9)
        self.assertEqual(profile.total, harness.read_profile(self.path("profile")).total)
        quiet = run("report", "-q", self.path("snap"))
        self.assertEqual((quiet.status, quiet.out.encode(), quiet.err), (0, self.read("report"), ""))

    def test_missing(self):
        self.chain()
        os.unlink(self.path("chain"))
        self.assert_unnamed("No such file")

    def test_replaced(self):
        self.chain()
        os.unlink(self.path("chain"))
        shutil.copy(program("recurse"), self.path("chain"))
        self.assert_unnamed("another build")

    def test_no_program_any_more(self):
        self.chain()
        for kind in ("fifo", "directory", "text", "short"):
            with self.subTest(kind=kind):
                path = self.path("chain")
                os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
                if kind == "fifo":
                    os.mkfifo(path)
                elif kind == "directory":
                    os.mkdir(path)
                else:
                    self.write("chain", b"\x7fELF" if kind == "short" else b"this is no program")
                self.assert_unnamed()

    def test_moved_with_its_build_id(self):
        """Another inode and another time, but the same build: names as before."""
        self.chain()
        os.rename(self.path("chain"), self.path("was"))
        shutil.copy(self.path("was"), self.path("chain"))
        os.utime(self.path("chain"), (1, 1))
        _, result = self.report()
        self.assert_warnings(result)
        self.assertEqual(self.read("report"), self.read("profile"))

    def test_without_build_id(self):
        """The file itself then: by inode, size and time."""
        with open(program("chain_nofp"), "rb") as file:
            data = file.read()
        note = struct.pack("<III", 4, 20, 3) + b"GNU\0"
        self.assertEqual(data.count(note), 1, "the test program has a build-id")
        self.write("chain", data.replace(note, struct.pack("<III", 4, 20, 99) + b"GNU\0"), 0o755)
        self.save([self.path("chain"), "0.5"], "-r", "250")
        _, result = self.report()
        self.assert_warnings(result)
        self.assertEqual(self.read("report"), self.read("profile"))
        os.utime(self.path("chain"), (1, 1))
        self.assert_unnamed("another build")


class Files(Case):
    """Files that report cannot read, or not to their end."""

    def refuse(self, *words):
        self.write("kept", b"kept")
        result = run("report", "-o", self.path("kept"), self.path("snap"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, self.path("snap"), *words)
        self.assertEqual(self.read("kept"), b"kept")

    def test_no_such_kind(self):
        self.refuse("No such file")
        for data in (b"", b"main;work 3\n", MAGIC[:7], bytes(100)):
            with self.subTest(data=data):
                self.write("snap", data)
                self.refuse("not a file that the sampler has saved")
        os.unlink(self.path("snap"))
        os.mkfifo(self.path("snap"))
        self.refuse("not a regular file")
        os.unlink(self.path("snap"))
        os.mkdir(self.path("snap"))
        self.refuse("not a regular file")

    def test_version_and_beginning(self):
        self.write("snap", MAGIC + struct.pack("<II", 3, 0))
        self.refuse("version")
        for rest in (b"", struct.pack("<II", 1, 0), struct.pack("<II", 2, 0), struct.pack("<IIII", 1, 0, 1, 48)):
            self.write("snap", MAGIC + rest)
            self.refuse("damaged")

    def test_cut_anywhere(self):
        """Never more samples than were there; each cut one warning."""
        self.chain()
        data, last = self.read("snap"), 0
        for size in sorted({*range(200, len(data), max(1, len(data) // 25)), len(data) - 1}):
            self.write("snap", data[:size])
            profile, result = self.report()
            self.assert_warnings(result, ["cut off"])
            self.assertGreaterEqual(profile.total, last)
            last = profile.total
        self.assertEqual(last, harness.read_profile(self.path("profile")).total)

    def test_damaged(self):
        """A chunk that cannot be: what stands before it counts, and the byte is told."""
        self.chain()
        data = self.read("snap")
        chunks, at = [], 16
        while at < len(data):
            kind, size = struct.unpack_from("<II", data, at)
            chunks.append((kind, at))
            at += 8 + size
        samples = [at for kind, at in chunks if kind == 8]
        middle = samples[len(samples) // 2]
        bad = bytearray(data)
        struct.pack_into("<I", bad, middle + 8 + 8, 0xffffffff)  # the thread
        self.write("snap", bytes(bad))
        profile, result = self.report()
        self.assert_warnings(result, ["damaged", f"byte {middle}:"])
        # A sample can stand for several ticks.
        counts = [struct.unpack_from("<Q", data, at + 8 + 24)[0] for at in samples]
        self.assertEqual(profile.total, sum(counts[:len(samples) // 2]))
        self.assertEqual(sum(counts), harness.read_profile(self.path("profile")).total)

    def test_unwritable_output(self):
        self.chain()
        result = run("report", "-o", self.path("none/profile"), self.path("snap"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, "none/profile")
        result = run("report", "-q", "-o", "/dev/full", self.path("snap"))
        self.assertEqual(result.status, 1, result)
        self.assert_one_line(result, "/dev/full", "no space")


if __name__ == "__main__":
    harness.main()
