"""Targets behind walls: other namespaces, seccomp, no dumps, other users, added rights; and samplers that lack rights.

Each is either sampled whole, with its own names, or refused in one line that names the cause; and never changed.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import unittest

import harness
from harness import Target, program, run

IS_ROOT = os.getuid() == 0
NOBODY = 65534
OTHER = 65533
CHAIN_END = ("level_20", "leaf_spin")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class InNamespaces(harness.Case):
    """Everything that names need is in the target's own mounts, under its own pid; the host has decoys in the same places."""

    UNSHARE = ("-p", "-f", "-m", "--mount-proc", "--kill-child")

    def setUp(self):
        super().setUp()
        if not IS_ROOT or not harness.can_unshare(*self.UNSHARE):
            self.skipTest("cannot make pid and mount namespaces")

    @contextlib.contextmanager
    def inside(self, script, name):
        """Runs `script` as process 1 of new namespaces, in which self.directory is another file system; yields (target, host's pid)."""
        with Target(shutil.which("unshare"), *self.UNSHARE, "/bin/sh", "-c", script) as target:
            self.assertEqual(target.facts["pid"], "1", "its own view of its pid")
            pid = harness.wait_until(lambda: [one for one in children(target.pid) if harness.status(one).get("Name") == name],
                                     f"{name} runs")[0]
            yield target, pid
            harness.assert_healthy(pid, "RS")

    def script(self, *sources, command):
        """Copies `sources` into file systems over /tmp and self.directory that only the target sees, and runs `command` there."""
        opened = "".join(f"exec {number}<'{source}'; " for number, source in enumerate(sources, 3))
        mounted = f"mount -t tmpfs none /tmp; mkdir -p '{self.directory}'; mount -t tmpfs none '{self.directory}'; "
        copies = "".join(f"cat <&{number} >'{self.path(os.path.basename(source))}'; exec {number}<&-; "
                         for number, source in enumerate(sources, 3))
        return f"{opened}{mounted}{copies}chmod 755 '{self.directory}'/*; exec {command}"

    def test_perf_map_of_the_inner_pid(self):
        shutil.copy(program("chain_fp"), self.path("jit"))  # a decoy: another program where the target's is
        script = self.script(program("jit"), command=f"'{self.path('jit')}' now")
        with self.inside(script, "jit") as (_, pid):
            decoy = f"/tmp/perf-{pid}.map"
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                code = next(line.split()[0] for line in maps if "r-xp" in line and len(line.split()) == 5)
            start, end = (int(word, 16) for word in code.split("-"))
            try:
                with open(decoy, "w", encoding="ascii") as file:
                    file.write(f"{start:x} {end - start:x} decoy_host\n")
                profile, _, _ = self.attach(pid, "-r", "250", "-d", "0.5")
            finally:
                os.unlink(decoy)
        self.assert_share(profile, profile.ending("run_jit", "jit_outer_[j]", "jit_middle_[j]", "jit_inner_[j]"), 0.95)
        self.assertEqual(profile.matching("decoy_host|level_"), 0, profile)

    def test_files_of_its_own_mounts(self):
        """Program and library exist where the target says only for it; on the host there is another program, and no library."""
        library = os.path.join(harness.TESTPROGS, "libdso_library.so")
        shutil.copy(program("chain_fp"), self.path("dso"))
        script = self.script(program("dso"), library, command=f"'{self.path('dso')}' '{self.path('libdso_library.so')}'")
        with self.inside(script, "dso") as (_, pid):
            profile, _, _ = self.attach(pid, "-r", "250", "-d", "0.5")
        self.assert_share(profile, profile.ending("main", "call_library", "library_outer", "library_spin"), 0.95)

    def test_launched_with_children(self):
        """--children goes into a namespace that the program makes."""
        script = self.script(program("chain_nofp"), command=f"'{self.path('chain_nofp')}' 1")
        profile, stats, _ = self.launch(["-r", "250"], ["unshare", *self.UNSHARE, "/bin/sh", "-c", script])
        self.assertGreater(profile.of_thread("chain_nofp").ending(*CHAIN_END), 20, profile)
        self.assertGreaterEqual(stats["processes_seen"], 2)

    def test_attached_with_children(self):
        script = f"'{program('chain_nofp')}' 20 & exec '{program('forker')}' '{program('chain_fp')}' 20 >&1"
        with Target(shutil.which("unshare"), *self.UNSHARE, "/bin/sh", "-c", script) as target:
            profile, _, _ = self.attach(target.pid, "--children", "-r", "250", "-d", "1")
        for name in ("parent_spin", "child_spin"):
            self.assertGreater(profile.containing(name), 10, profile)
        self.assertGreater(profile.of_thread("chain_nofp").ending(*CHAIN_END), 10, profile)

    def test_sampler_inside(self):
        """The sampler and its target share a namespace: ids are those of there."""
        script = (f"'{program('chain_fp')}' 20 >/dev/null & '{harness.SAMPLER}' -q -r 250 -d 0.5 --threads -p $!; "
                  "echo target=$! >&2; kill -9 $!")
        done = subprocess.run(["unshare", *self.UNSHARE, "/bin/sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=harness.LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile, inner = harness.Profile(done.stdout), int(done.stderr.split("target=")[1].split()[0])
        self.assertLess(inner, 100)
        self.assertEqual(set(profile.threads()), {f"chain_fp ({inner})"})
        self.assert_share(profile, profile.ending(*CHAIN_END), 0.95)


class UserNamespaces(harness.Case):
    def setUp(self):
        super().setUp()
        if not harness.can_unshare("-U", "-r"):
            self.skipTest("cannot make user namespaces")
        os.chmod(self.directory, 0o777)
        self.change = harness.set_uid(NOBODY) if IS_ROOT else None

    def target(self, *options):
        return Target(shutil.which("unshare"), "-U", *options, program("chain_fp"), preexec_fn=self.change)

    def test_from_its_parent_namespace(self):
        """By root, and by the ordinary user who has made the namespace."""
        for change in [None, self.change] if IS_ROOT else [None]:
            with self.subTest(root=change is None), self.target("-r") as target:
                profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.4", preexec_fn=change)
                harness.assert_healthy(target.pid, "R")
                self.assert_share(profile, profile.ending(*CHAIN_END), 0.95)
                os.unlink(self.path("profile"))
                os.unlink(self.path("stats"))

    def test_from_within(self):
        """Being root there gives no right to what is outside: refused, in one line."""
        with Target("chain_fp") as target:
            command = ["unshare", "-U", "-r", harness.SAMPLER, "-d", "5", "-o", self.path("profile"), "-p", str(target.pid)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=harness.LIMIT, check=False,
                                  preexec_fn=self.change)
            harness.assert_healthy(target.pid, "R")
        if IS_ROOT:
            self.assertEqual((done.returncode, done.stdout), (1, ""), done)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertRegex(done.stderr, f"cannot attach to {target.pid}: not permitted")
            self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")


class Confined(harness.Case):
    """Programs that have given up rights themselves."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)

    def sample_to_its_end(self, how, *options, threads=("confined", "sleeper"), name="confined"):
        with Target(name, how, 1) as target:
            with harness.Sampler("-q", "-r", "1000", *options, "-o", self.path("profile"), "-p", target.pid) as sampler:
                status, output = target.end()
                self.assert_ok(sampler.end())
        self.assertEqual(status, 0, f"it was harmed: {output}")
        if "sleeper" in threads:
            # 50 naps of 20 ms; a stop may have begun some of them once more.
            self.assertGreater(harness.last_json(output)["naps"], 5, "it could not finish its naps")
        profile = harness.read_profile(self.path("profile"))
        self.assertGreater(profile.ending("main", "confined_spin") + profile.ending("spin_strictly", "confined_spin"), 3, profile)
        self.assertLessEqual(set(profile.threads()), set(threads))
        return profile

    def test_seccomp_filter(self):
        """Nothing of ours runs in it, so what it may not do does not matter."""
        self.sample_to_its_end("filter")
        profile = self.sample_to_its_end("filter", "-m", "wall")
        self.assertGreater(profile.containing("confined_nap"), 20, profile)

    def test_seccomp_filter_without_restart(self):
        """A stop in a nap would have the kernel make a call that the filter kills for."""
        for name in ("confined", "confined_fp"):
            with self.subTest(name=name):
                threads = (name, "sleeper")
                self.sample_to_its_end("bare", name=name, threads=threads)
                profile = self.sample_to_its_end("bare", "-m", "wall", name=name, threads=threads)
                self.assertGreater(profile.of_thread("sleeper").total, 20, profile)

    def test_seccomp_strict(self):
        for mode in ("cpu", "wall"):
            self.sample_to_its_end("strict", "-m", mode, threads=("confined",))

    def test_undumpable(self):
        with Target("confined", "undumpable", preexec_fn=harness.set_uid(NOBODY) if IS_ROOT else None) as target:
            result = run("-d", "5", "-o", self.path("profile"), "-p", target.pid, preexec_fn=harness.set_uid(NOBODY) if IS_ROOT else None)
            self.assertEqual(result.status, 1, result)
            self.assert_one_line(result, str(target.pid), "not permitted", "non-dumpable")
            self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")
            harness.assert_healthy(target.pid, "RS")
            if IS_ROOT:
                profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.4")
                harness.assert_healthy(target.pid, "RS")
                self.assert_share(profile, profile.ending("main", "confined_spin"), 0.95)

    def test_undumpable_launched(self):
        """It takes away the sampler's right in the middle: what was sampled before counts, its own end is its own."""
        change = harness.set_uid(NOBODY) if IS_ROOT else None
        result = run("-r", "250", "-o", self.path("profile"), "--", program("confined"), "undumpable", "0.6", preexec_fn=change)
        self.assertEqual(result.status, 0, result)
        self.assertRegex(result.err, r"(?m)^sampler: cannot sample [0-9]+: not permitted: .*non-dumpable")

    def test_ptracer_is_of_yama_only(self):
        """PR_SET_PTRACER adds a right where Yama restricts them, and takes none away."""
        try:
            with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
                scope = int(file.read())
        except OSError:
            scope = 0
        change = harness.set_uid(NOBODY) if IS_ROOT else None
        with Target("confined", "ptracer", preexec_fn=change) as target:
            result = run("-q", "-r", "250", "-d", "0.4", "-o", self.path("profile"), "-p", target.pid, preexec_fn=change)
            harness.assert_healthy(target.pid, "RS")
        if scope == 0:
            self.assert_ok(result)
            profile = harness.read_profile(self.path("profile"))
            self.assert_share(profile, profile.ending("main", "confined_spin"), 0.95)
        else:
            self.assertEqual(result.status, 1, result)
            self.assert_one_line(result, "ptrace_scope")


@unittest.skipIf(not IS_ROOT, "set-uid copies need root")
class SetUid(harness.Case):
    """A launched program keeps the rights that its set-uid bit gives it; who may not sample it says so."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)
        if os.statvfs(self.directory).f_flag & os.ST_NOSUID:
            self.skipTest("the temporary directory is mounted with nosuid")
        self.copy = shutil.copy(program("confined"), self.path("privileged"))

    def set_owner(self, uid):
        os.chown(self.copy, uid, uid)
        os.chmod(self.copy, 0o755 | stat.S_ISUID)

    def launch_as(self, uid, *command, rate=500):
        return run("-r", rate, "-o", self.path("profile"), "--", *command, preexec_fn=harness.set_uid(uid) if uid else None)

    def test_by_an_ordinary_user(self):
        self.set_owner(0)
        result = self.launch_as(NOBODY, self.copy, "ids", "0.4")
        self.assertEqual(result.status, 0, result)
        self.assertIn(f"uid={NOBODY} euid=0", result.out)
        self.assertRegex(result.err, r"(?m)^sampler: cannot sample [0-9]+: not permitted: it runs as uid 0 and the sampler as uid 65534")
        self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")

    def test_of_a_third_user(self):
        self.set_owner(OTHER)
        result = self.launch_as(NOBODY, self.copy, "ids", "0.4")
        self.assertEqual(result.status, 0, result)
        self.assertIn(f"uid={NOBODY} euid={OTHER}", result.out)
        self.assertRegex(result.err, f"(?m)^sampler: cannot sample [0-9]+: not permitted: it runs as uid {OTHER}")

    def test_as_a_child(self):
        """A followed shell starts it: the shell is sampled, the child keeps its rights and is told of. An exec during a stop would give it
        none (docs/limits.md): stops are rare here."""
        self.set_owner(0)
        script = f"'{program('exiter')}' exit 0 1.5 >/dev/null; '{self.copy}' ids 0.4; exit 9"
        result = self.launch_as(NOBODY, "/bin/sh", "-c", script, rate=40)
        self.assertEqual(result.status, 9, result)
        self.assertIn(f"uid={NOBODY} euid=0", result.out)
        self.assertRegex(result.err, r"(?m)^sampler: cannot sample [0-9]+: not permitted: it runs as uid 0")
        profile = harness.read_profile(self.path("profile"))
        self.assertGreater(profile.containing("exiter_spin"), 8, profile)

    def test_by_root(self):
        self.set_owner(OTHER)
        result = self.launch_as(0, self.copy, "ids", "0.4")
        self.assertEqual(result.status, 0, result)
        self.assertIn(f"uid=0 euid={OTHER}", result.out)
        self.assertNotIn("cannot sample", result.err)
        profile = harness.read_profile(self.path("profile"))
        self.assert_share(profile, profile.ending("main", "confined_spin"), 0.9)


class Powerless(harness.Case):
    """The sampler itself may not do what it needs, as in containers."""

    def refuse(self, prefix, pid, *words):
        command = [*prefix, harness.SAMPLER, "-d", "5", "-o", self.path("profile"), "-p", str(pid)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=harness.LIMIT, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")

    @unittest.skipIf(not IS_ROOT, "giving up capabilities needs some")
    def test_without_the_capability(self):
        """Root of a container has no CAP_SYS_PTRACE: enough for what has no more rights than it, not for others."""
        prefix = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
        with Target("chain_fp") as target:
            self.refuse(prefix, target.pid, f"cannot attach to {target.pid}: not permitted", "CAP_SYS_PTRACE")
            harness.assert_healthy(target.pid, "R")
        with Target(shutil.which("setpriv"), *prefix[1:], program("chain_fp")) as target:
            command = [*prefix, harness.SAMPLER, "-q", "-r", "250", "-d", "0.4", "-o", self.path("profile"), "-p", str(target.pid)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=harness.LIMIT, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            harness.assert_healthy(target.pid, "R")
        profile = harness.read_profile(self.path("profile"))
        self.assert_share(profile, profile.ending(*CHAIN_END), 0.95)

    def test_ptrace_is_forbidden(self):
        """A seccomp filter on the sampler, as some containers have: said at once, not a profile of failures."""
        with Target("chain_fp") as target:
            self.refuse([program("forbid")], target.pid, "ptrace", "seccomp")
            harness.assert_healthy(target.pid, "R")

    def test_ptrace_is_forbidden_launching(self):
        command = [program("forbid"), harness.SAMPLER, "-o", self.path("profile"), "--", program("exiter"), "exit", "5", "0.2"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=harness.LIMIT, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("seccomp", done.stderr)
        self.assertFalse(os.path.exists(self.path("profile")), "a profile is claimed")


if __name__ == "__main__":
    harness.main()
