"""Which file the names come from: files that are gone, replaced, in memory, in other mounts, moved to anonymous memory, or not to be had.

Decoys are the same code at the same offsets with other names: none of theirs may appear.
"""

import contextlib
import os
import shutil
import struct
import unittest

import harness
from harness import Target, program

IS_ROOT = os.getuid() == 0
NOBODY = 65534
CHAIN = ("level_19", "level_20", "leaf_spin")
LIBRARY = ("main", "call_library", "library_outer", "library_spin")
EXPORTED = ("main", "call_library", "library_outer")
DECOYS = "decoyed_|fake_"


def library(name):
    return os.path.join(harness.TESTPROGS, f"lib{name}.so")


def drop_map_files():
    """For preexec_fn: a root who may not follow /proc/PID/map_files, and so has to find files by their paths."""
    for capability in (21, 40):  # CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE
        if harness.prctl(24, capability) != 0:  # PR_CAPBSET_DROP
            os._exit(98)


class Case(harness.Case):
    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)

    # How the sampler comes to files: all that root may; by paths; as an ordinary user whose process it is.
    WAYS = {"root": (None, None), "paths": (None, drop_map_files), "user": (harness.set_uid(NOBODY),) * 2}

    def ways(self, *names):
        """Each way that is possible here: its name, and the preexec_fn of target and sampler."""
        for name in names or self.WAYS:
            if IS_ROOT:
                yield (name, *self.WAYS[name])
            elif name == "user":
                yield name, None, None

    def sample(self, pid, change, *options, seconds="0.15"):
        for name in ("profile", "stats"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))
        profile, _, _ = self.attach(pid, "-r", "997", "-d", seconds, *options, preexec_fn=change)
        harness.assert_healthy(pid, "RSD")
        self.assertEqual(profile.matching(DECOYS), 0, profile)
        return profile

    def replace(self, source, path):
        """Another file at that path: what was mapped lives on."""
        shutil.copy(source, path + ".new")
        os.rename(path + ".new", path)

    def patch(self, path, change):
        """A copy of a library or program with its bytes changed by change(bytearray)."""
        with open(path, "rb") as file:
            data = bytearray(file.read())
        change(data)
        return self.write(os.path.basename(path) + ".patched", bytes(data), 0o755)


class Gone(Case):
    """Deleted and replaced programs and libraries."""

    def program_gone(self, then):
        for name, of_target, of_sampler in self.ways():
            with self.subTest(way=name):
                binary = shutil.copy(program("chain_nofp"), self.path("chain"))
                with Target(binary, preexec_fn=of_target) as target:
                    then(binary)
                    profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*CHAIN), 0.98)

    def test_program_deleted(self):
        self.program_gone(os.unlink)

    def test_program_replaced(self):
        self.program_gone(lambda path: self.replace(program("chain_decoy"), path))

    def library_gone(self, source, then, ways, expected):
        for name, of_target, of_sampler in self.ways(*ways):
            with self.subTest(way=name):
                path = shutil.copy(library(source), self.path("library.so"))
                with Target("dso", path, preexec_fn=of_target) as target:
                    then(path)
                    profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*expected), 0.98)

    def test_library_deleted(self):
        self.library_gone("dso_library", os.unlink, ("root",), LIBRARY)

    def test_library_replaced(self):
        self.library_gone("dso_library", lambda path: self.replace(library("dso_decoy"), path), ("root",), LIBRARY)
        self.library_gone("dso_no_id", lambda path: self.replace(library("dso_no_id_decoy"), path), ("root",), LIBRARY)

    def test_library_from_memory(self):
        """Exported names and unwind information are in memory, names of local functions are not."""
        for source in ("dso_library", "dso_no_id", "dso_prelinked", "dso_sysv_hash"):
            self.library_gone(source, os.unlink, ("user",), (*EXPORTED, "[library.so]"))
        for then in (os.unlink, lambda path: self.replace(library("dso_decoy"), path)):
            self.library_gone("dso_library", then, ("paths",), (*EXPORTED, "[library.so]"))

    def test_library_without_build_id_replaced(self):
        self.library_gone("dso_no_id", lambda path: self.replace(library("dso_no_id_decoy"), path), ("paths", "user"),
                          (*EXPORTED, "[library.so]"))

    def test_large_library_from_memory(self):
        """So large that not all of it is read."""
        self.library_gone("dso_large", os.unlink, ("paths", "user"), (*EXPORTED, "[library.so]"))

    def test_saved(self):
        """Images from memory are in a file of snapshots; of one that is too large for that, the file is missed and told."""
        for source, expected in (("dso_library", (*EXPORTED, "[library.so]")), ("dso_large", None)):
            for name, of_target, of_sampler in self.ways("user"):
                with self.subTest(way=name, source=source):
                    path = shutil.copy(library(source), self.path("library.so"))
                    with Target("dso", path, preexec_fn=of_target) as target:
                        os.unlink(path)
                        profile = self.sample(target.pid, of_sampler, "--save-snapshots", self.path("snapshots"))
                    result = harness.run("report", "-o", self.path("again"), self.path("snapshots"))
                    self.assert_ok(result)
                    again = harness.read_profile(self.path("again"))
                    os.unlink(self.path("snapshots"))
                    if expected:
                        self.assertEqual(again.stacks, profile.stacks)
                        self.assert_share(again, again.ending(*expected), 0.98)
                    else:
                        self.assertRegex(result.err, r"library\.so: .*: its frames are named \[library\.so\]")
                        self.assert_share(again, again.leaf("[library.so]"), 0.98)

    def test_same_build_elsewhere(self):
        """An upgrade that puts the same build there again: another inode, the same file."""
        self.library_gone("dso_library", lambda path: self.replace(library("dso_library"), path), (), LIBRARY)


class InMemory(Case):
    """Files that never had a path."""

    def test_library(self):
        for name, of_target, of_sampler in self.ways():
            with self.subTest(way=name), Target("memfile", "load", library("dso_library"), preexec_fn=of_target) as target:
                profile = self.sample(target.pid, of_sampler)
                expected = LIBRARY if name == "root" else (*EXPORTED, "[memfd:hidden]")
                self.assert_share(profile, profile.ending(*expected), 0.98)

    def test_program(self):
        for name, of_target, of_sampler in self.ways():
            with self.subTest(way=name), Target("memfile", "exec", program("chain_nofp"), preexec_fn=of_target) as target:
                profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*CHAIN), 0.98)


class Names(Case):
    """Names that look in maps like something else."""

    def check(self, real, decoy, ways=()):
        for name, of_target, of_sampler in self.ways(*ways):
            with self.subTest(way=name, file=real):
                binary = shutil.copy(program("chain_nofp"), self.path(real))
                shutil.copy(program("chain_decoy"), self.path(decoy))
                with Target(binary, preexec_fn=of_target) as target:
                    profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*CHAIN), 0.98)

    def test_as_if_deleted(self):
        self.check("a b (deleted)", "a b")
        self.check("c", "c (deleted)")

    def test_newline(self):
        self.check("n\nl", "n\\012l")
        self.check("n\\012m", "n\nm")

    def test_newline_as_if_deleted(self):
        self.check("n\\012l (deleted)", "n\nl")

    def test_label(self):
        """A file that is there is named by its whole name, one that is gone without the kernel's addition."""
        for name, of_target, of_sampler in self.ways():
            for then, label in ((lambda path: None, "[x (deleted)]"), (os.unlink, "[y]")):
                with self.subTest(way=name, label=label):
                    file = "x (deleted)" if "deleted" in label else "y"
                    binary = shutil.copy(program("chain_stripped"), self.path(file))
                    with Target(binary, preexec_fn=of_target) as target:
                        then(binary)
                        profile = self.sample(target.pid, of_sampler)
                    self.assert_share(profile, profile.leaf(label), 0.98)


class Mounts(Case):
    """The same path is another file for the target than for us."""

    def sample_mounted(self, *options, ways, source="dso_library", decoy="dso_decoy"):
        path = shutil.copy(library(decoy), self.path("library.so"))
        script = f"mount --bind '{library(source)}' '{path}' && exec '{program('dso')}' '{path}'"
        for name, of_target, of_sampler in self.ways(*ways):
            if not harness.can_unshare(*options, preexec_fn=of_target):
                self.skipTest("cannot make mount namespaces")
            with self.subTest(way=name, source=source):
                with Target(shutil.which("unshare"), *options, "/bin/sh", "-c", script, preexec_fn=of_target) as target:
                    with open(f"/proc/{target.pid}/maps", encoding="utf-8") as maps:
                        if not any(line.endswith(f" {path}\n") for line in maps):
                            self.skipTest("maps has another path: we are in a chroot, and the kernel tells where it is in the other namespace")
                    profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*LIBRARY), 0.98)

    @unittest.skipIf(not IS_ROOT, "mounting needs root")
    def test_bind_mount_in_another_namespace(self):
        self.sample_mounted("-m", ways=("root", "paths"))
        self.sample_mounted("-m", ways=("root", "paths"), source="dso_no_id", decoy="dso_no_id_decoy")

    def test_bind_mount_of_a_user(self):
        self.sample_mounted("-U", "-r", "-m", ways=("user",))

    @unittest.skipIf(not IS_ROOT, "chroot needs root")
    def test_another_root(self):
        """Of a process with another root in our mounts, maps has the path from our root."""
        os.makedirs(self.path("root/lib"))
        binary = shutil.copy(program("chain_static"), self.path("root/chain"))
        decoy = self.path(f"root{self.path('root')}")
        os.makedirs(decoy)
        shutil.copy(program("chain_decoy"), os.path.join(decoy, "chain"))

        def enter():
            os.chroot(self.path("root"))
            os.chdir("/")
        for name, _, of_sampler in self.ways("root", "paths"):
            with self.subTest(way=name), Target("/chain", preexec_fn=enter) as target:
                profile = self.sample(target.pid, of_sampler)
                self.assert_share(profile, profile.ending(*CHAIN), 0.98)
        self.assertTrue(os.path.exists(binary))


class Layouts(Case):
    """Addresses, offsets and segments of all kinds."""

    def test_programs(self):
        names = ["chain_nopie", "chain_static", "chain_static_pie", "chain_one_segment", "chain_many_segments"]
        if os.path.exists(os.path.join(harness.TESTPROGS, "chain_lld")):
            names.append("chain_lld")
        for name in names:
            with self.subTest(program=name), Target(name) as target:
                profile = self.sample(target.pid, None)
                self.assert_share(profile, profile.ending("main", *(f"level_{n}" for n in range(1, 21)), "leaf_spin"), 0.98)

    def test_two_code_segments(self):
        with Target("split") as target:
            profile = self.sample(target.pid, None)
        self.assert_share(profile, profile.ending("main", "cold_outer", "hot_outer", "hot_spin"), 0.98)

    def test_prelinked_library(self):
        for mode in ("auto", "dwarf"):
            with self.subTest(unwind=mode), Target("dso", library("dso_prelinked")) as target:
                profile = self.sample(target.pid, None, "--unwind", mode)
                self.assert_share(profile, profile.ending(*LIBRARY), 0.98)

    def test_without_section_headers(self):
        """As sstrip leaves them: exported names are found all the same."""
        def strip(data):
            data[40:48] = bytes(8)
            data[58:64] = struct.pack("<HHH", 0, 0, 0)
        for source in ("dso_library", "dso_sysv_hash"):
            with self.subTest(source=source), Target("dso", self.patch(library(source), strip)) as target:
                profile = self.sample(target.pid, None)
                self.assert_share(profile, profile.ending(*EXPORTED, f"[lib{source}.so.patched]"), 0.98)


class HugeText(Case):
    """Programs that move their text to anonymous memory."""

    MOVED = ("main", "text_outer", "text_middle", "text_spin")

    def assert_anonymous(self, target):
        with open(f"/proc/{target.pid}/maps", encoding="utf-8") as maps:
            line = next(line for line in maps if int(line.split("-")[0], 16) == int(target.facts["start"], 16))
        self.assertRegex(line, r" r-xp 0+ 00:00 0 *\n")

    def test_moved(self):
        for name in ("hugetext", "hugetext_one_segment", "hugetext_nopie"):
            for how in ("whole", "middle"):
                for way, of_target, of_sampler in self.ways("user" if (name, how) == ("hugetext", "middle") or not IS_ROOT else "root"):
                    with self.subTest(program=name, how=how, way=way), Target(name, how, preexec_fn=of_target) as target:
                        self.assert_anonymous(target)
                        profile = self.sample(target.pid, of_sampler)
                        self.assert_share(profile, profile.ending(*self.MOVED), 0.98)

    def test_other_code(self):
        """Not the file's bytes: not the file's names."""
        for name in ("hugetext", "hugetext_nopie"):
            with self.subTest(program=name), Target(name, "changed") as target:
                self.assert_anonymous(target)
                profile = self.sample(target.pid, None)
                self.assert_share(profile, profile.leaf("[anon]"), 0.98)
                self.assertEqual(profile.matching("text_"), 0, profile)

    def test_saved(self):
        with Target("hugetext", "whole") as target:
            profile = self.sample(target.pid, None, "--save-snapshots", self.path("snapshots"))
        self.assert_share(profile, profile.ending(*self.MOVED), 0.98)
        self.assert_ok(harness.run("report", "-o", self.path("again"), self.path("snapshots")))
        self.assertEqual(harness.read_profile(self.path("again")).stacks, profile.stacks)


class Swapped(Case):
    """Two libraries of one size, one after the other at one address."""

    def check(self, events, phase, share):
        for name, of_target, of_sampler in self.ways("root" if IS_ROOT else "user"):
            with self.subTest(way=name, events=events):
                with Target("swapper", library("dso_library"), library("dso_decoy"), phase, 4, preexec_fn=of_target) as target:
                    profile, stats, _ = self.attach(target.pid, "-r", "500", "--events", events, preexec_fn=of_sampler)
                    status, output = target.end()
                if events == "auto" and not stats["events"].startswith("perf"):
                    self.skipTest("records of the whole machine are not allowed here")
                self.assertEqual(status, 0)
                self.assertEqual(harness.last_json(output)["places"], 1, "they lay at several addresses")
                right = (profile.ending("main", "call_library", "library_outer", "library_spin")
                         + profile.ending("main", "call_decoyed", "decoyed_outer", "decoyed_spin"))
                self.assertGreater(profile.ending("call_decoyed", "decoyed_outer", "decoyed_spin"), 30, profile)
                wrong = profile.count(lambda stack: ("call_library" in stack) == any("decoyed" in frame for frame in stack))
                self.assertLessEqual(profile.share(wrong), share, profile)
                self.assert_share(profile, right, 1 - share - 0.02)
                for file in ("profile", "stats"):
                    os.unlink(self.path(file))

    def test_without_news_of_mappings(self):
        """Nothing tells of the change: until the maps are read again, 105 ms later at most, names are the old ones'. Of 0.7 s that is 15 %."""
        self.check("proc", 0.7, 0.16)

    @unittest.skipIf(not IS_ROOT, "events of the whole machine need root")
    def test_with_news(self):
        """Told by perf's records: the next tick reads them."""
        self.check("auto", 0.7, 0.02)


if __name__ == "__main__":
    harness.main()
