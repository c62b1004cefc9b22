"""Names: C++, Rust, JIT code with good and bad perf maps, odd paths, mapped files that are no ELF or lie about themselves."""

import contextlib
import os
import re
import shutil
import struct

import harness
from harness import Target, program


class Demangling(harness.Case):
    def test_cxx(self):
        with Target("cxx_names") as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
        patterns = (r"main", r"geometry::Shape::measure", r"geometry::twice<int>", r"\(anonymous namespace\)::hidden",
                    r"geometry::run_lambda", r"geometry::run_lambda.*lambda.*::operator\(\)", r"geometry::leaf_spin")
        exact = 0
        for stack, count in profile.stacks.items():
            frames = stack[-len(patterns):]
            if len(frames) == len(patterns) and all(re.fullmatch(pattern + r"(\(.*\))?( const)?", frame)
                                                    for pattern, frame in zip(patterns, frames)):
                exact += count
        self.assert_share(profile, exact, 0.98)
        self.assertEqual(profile.matching("_ZN"), 0)

    def test_rust(self):
        with Target("rust_names") as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
        expected = ("main", "mycrate::hot", "mycrate::inner::hot_v0", "mycrate::run::{closure#0}")
        self.assert_share(profile, profile.ending(*expected), 0.98)


JIT = ("main", "run_jit", "jit_outer_[j]", "jit_middle_[j]", "jit_inner_[j]")
UNNAMED = ("main", "run_jit", "[anon]", "[anon]", "[anon]")


class PerfMaps(harness.Case):
    def sample(self, mode, *options, seconds="0.5"):
        with Target("jit", mode) as target:
            try:
                profile, _, _ = self.attach(target.pid, "-r", "250", "-d", seconds, *options)
                harness.assert_healthy(target.pid, "R")
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(f"/tmp/perf-{target.pid}.map")
        return profile

    def test_there_from_the_start(self):
        for mode in ("auto", "fp"):
            with self.subTest(unwind=mode):
                profile = self.sample("now", "--unwind", mode)
                self.assert_share(profile, profile.ending(*JIT), 0.98)
                self.assertEqual(profile.containing("[truncated]"), 0, profile)

    def test_late_and_in_pieces(self):
        """Names that come after the samples hold for them too; no name is cut."""
        profile = self.sample("late", seconds="1.6")
        self.assert_share(profile, profile.ending(*JIT), 0.98)

    def test_later_line_wins(self):
        profile = self.sample("reuse")
        self.assert_share(profile, profile.ending(*JIT), 0.98)
        self.assertEqual(profile.matching("stale"), 0, profile)

    def test_launched(self):
        """The file that the program removes at its end was opened in time."""
        profile, _, _ = self.launch(["-r", "250"], [program("jit"), "now", "0.6"])
        self.assert_share(profile, profile.ending(*JIT), 0.95)

    def test_absent(self):
        profile = self.sample("absent")
        self.assert_share(profile, profile.ending(*UNNAMED), 0.98)

    def with_map(self, make, *options, limit=15):
        """Samples the JIT program with a map that make(path, facts) puts there; nothing may hang or hurt."""
        with Target("jit", "absent") as target:
            path = f"/tmp/perf-{target.pid}.map"
            try:
                make(path, target.facts)
                profile, _, result = self.attach(target.pid, "-r", "250", "-d", "0.4", *options, limit=limit)
                harness.assert_healthy(target.pid, "R")
            finally:
                if os.path.isdir(path) and not os.path.islink(path):
                    os.rmdir(path)
                elif os.path.lexists(path):
                    os.unlink(path)
        return profile, result

    def good_lines(self, facts):
        return "".join(f"{facts[name]} {facts['size']} {name}\n" for name in ("jit_outer", "jit_middle", "jit_inner"))

    def refuse(self, make):
        profile, _ = self.with_map(make)
        self.assert_share(profile, profile.ending(*UNNAMED), 0.98)
        self.assertEqual(profile.matching(r"_\[j\]"), 0, profile)

    def test_fifo(self):
        self.refuse(lambda path, _: os.mkfifo(path))

    def test_directory(self):
        self.refuse(lambda path, _: os.mkdir(path))

    def test_symlink(self):
        def make(path, facts):
            os.symlink(self.write("map", self.good_lines(facts).encode()), path)
        self.refuse(make)

    def test_symlink_to_a_device(self):
        self.refuse(lambda path, _: os.symlink("/dev/zero", path))

    def test_empty_and_binary(self):
        for data in (b"", b"\0" * 5000, b"\xff\xfe\n\n\n", b"zzz qqq name\n" * 100, b"1" * 100000):
            with self.subTest(data=data[:10]):
                def make(path, _, data=data):
                    with open(path, "wb") as file:
                        file.write(data)
                self.refuse(make)

    def test_half_written(self):
        """The last line has no end: its name is not shown cut; the lines before hold."""
        def make(path, facts):
            with open(path, "w", encoding="ascii") as file:
                file.write(self.good_lines(facts)[:-4])
        profile, _ = self.with_map(make)
        self.assert_share(profile, profile.ending("main", "run_jit", "jit_outer_[j]", "jit_middle_[j]", "[anon]"), 0.98)

    def test_hostile_lines(self):
        """Overflowing, empty and absurd lines among good ones; separators and control bytes in a name."""
        def make(path, facts):
            with open(path, "wb") as file:
                file.write(b"ffffffffffffffff ffffffffffffffff all\n0 0 none\n10000000000000000000000 10 big\n-1 10 negative\n")
                file.write(self.good_lines(facts).replace("jit_inner", "in;ner\t\x01 \xe9 7").encode("latin-1"))
                file.write(b"x" * 1000000 + b"\n")
        profile, _ = self.with_map(make)
        self.assert_share(profile, profile.ending("main", "run_jit", "jit_outer_[j]", "jit_middle_[j]", "in:ner   ?_7_[j]"), 0.98)

    def test_hundred_megabytes(self):
        def make(path, facts):
            filler = "".join(f"{0x10000000 + n * 64:x} 40 LazyCompile:~some_function_name_{n:06d} /app/file.js:{n % 997}\n"
                             for n in range(16384)).encode()
            with open(path, "wb") as file:
                while file.tell() < 100 << 20:
                    file.write(filler)
                file.write(self.good_lines(facts).encode())
        profile, result = self.with_map(make, limit=40)
        self.assert_share(profile, profile.ending(*JIT), 0.98)
        self.assertLess(result.seconds, 20)


class Paths(harness.Case):
    def test_blanks_and_newline(self):
        """Directories and files with blanks, parentheses and a newline in their names."""
        os.mkdir(self.path("a b (x)"))
        library = shutil.copy(program("libdso_library.so"), self.path("a b (x)/lib c.so"))
        binary = shutil.copy(program("dso"), self.path("n\nl"))
        with Target(binary, library) as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
        self.assert_share(profile, profile.ending("main", "call_library", "library_outer", "library_spin"), 0.98)
        self.assertEqual(set(profile.threads()), {"n l"})

    def test_label_of_a_file_without_names(self):
        binary = shutil.copy(program("chain_stripped"), self.path("s;t\n 1"))
        with Target(binary) as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
        self.assert_share(profile, profile.leaf("[s:t  1]"), 0.98)

    def test_deleted_binary(self):
        """The file is gone, and another one stands in its place: names come from what is mapped."""
        binary = shutil.copy(program("chain_nofp"), self.path("chain"))
        with Target(binary) as target:
            os.unlink(binary)
            shutil.copy(program("recurse"), binary)
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
        self.assert_share(profile, profile.ending("level_19", "level_20", "leaf_spin"), 0.98)

    def test_target_that_ends_keeps_its_names(self):
        binary = shutil.copy(program("exiter"), self.path("exiter"))
        with Target(binary, "exit", "0", "0.8") as target:
            os.unlink(binary)
            profile, _, _ = self.attach(target.pid, "-r", "250")
        self.assert_share(profile, profile.containing("exiter_spin"), 0.95)


# push %rbp; mov %rsp, %rbp; 1: inc %rax; cmpb $0, (%rdi); je 1b; pop %rbp; ret
CODE = bytes.fromhex("55 4889e5 48ffc0 803f00 74f8 5d c3")
OFFSET = 0x800


def elf(phoff=64, phnum=1, shoff=0, shnum=0, shstrndx=0, ident=b"\x7fELF\x02\x01\x01", entsize=64):
    header = ident.ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, OFFSET, phoff, shoff, 0, 64, 56, phnum, entsize,
                                                  shnum, shstrndx)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x1000, 0x1000, 0x1000)


def section(kind, offset, size, link=0, entsize=0, name=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, link, 0, 8, entsize)


def image(head, more=b"", size=0x1000):
    """A file with that beginning, `more` at 0x200 and the code at OFFSET."""
    data = bytearray(size)
    data[:len(head)] = head
    data[0x200:0x200 + len(more)] = more
    data[OFFSET:OFFSET + len(CODE)] = CODE
    return bytes(data)


HUGE = 0xffffffffffffff00
HOSTILE = {
    "no ELF": image(b"this is no ELF file at all"),
    "only the magic": image(b"\x7fELF"),
    "32-bit class": image(elf(ident=b"\x7fELF\x01\x01\x01")),
    "big endian": image(elf(ident=b"\x7fELF\x02\x02\x01")),
    "program headers far away": image(elf(phoff=HUGE, phnum=65535)),
    "no program headers": image(elf(phnum=0)),
    "sections far away": image(elf(shoff=HUGE, shnum=65535)),
    "sections beyond the end": image(elf(shoff=0xfc0, shnum=100)),
    "section size of nothing": image(elf(shoff=0x200, shnum=3, entsize=1)),
    "huge symbol table": image(elf(shoff=0x200, shnum=3, shstrndx=2),
                               section(0, 0, 0) + section(2, 0x400, HUGE, 2, 24) + section(3, 0x600, HUGE)),
    "symbol table of odd entries": image(elf(shoff=0x200, shnum=3, shstrndx=2),
                                         section(0, 0, 0) + section(2, 0x400, 0x300, 2, 0) + section(3, 0x600, 16)),
    "strings that point outside": image(elf(shoff=0x200, shnum=3, shstrndx=2), section(0, 0, 0) + section(2, 0x400, 48, 2, 24)
                                        + section(3, 0x600, 16) + bytes(0x140)
                                        + struct.pack("<IBBHQQ", 0xfffffff0, 0x12, 0, 1, OFFSET, 64) * 2),
    "links in a circle": image(elf(shoff=0x200, shnum=3, shstrndx=1), section(0, 0, 0) + section(2, 0x400, 48, 1, 24)
                               + section(18, 0x400, 0x100, 2, 4)),
    "frame table far away": image(elf(phnum=2) + struct.pack("<IIQQQQQQ", 0x6474e550, 4, HUGE, HUGE, HUGE, HUGE, HUGE, 4)),
    "frame table of nonsense": image(elf(phnum=2) + struct.pack("<IIQQQQQQ", 0x6474e550, 4, 0x200, 0x200, 0x200, 0x100, 0x100, 4),
                                     b"\x01\x1b\x03\x3b" + struct.pack("<iI", -0x7fffffff, 0xffffffff) + b"\xff" * 64),
    "frame table of circles": image(elf(phnum=2) + struct.pack("<IIQQQQQQ", 0x6474e550, 4, 0x200, 0x200, 0x200, 0x100, 0x100, 4),
                                    b"\x01\x1b\x03\x3b" + struct.pack("<iI", 12, 1) + struct.pack("<ii", OFFSET - 0x200, 20)
                                    + struct.pack("<Ii", 4, 0) + b"\xff" * 16),
    "notes of nonsense": image(elf(phnum=2) + struct.pack("<IIQQQQQQ", 4, 4, 0x200, 0x200, 0x200, 0x100, 0x100, 4),
                               struct.pack("<III", 0xffffffff, 0xffffffff, 3) + b"GNU\0"),
}


class MappedFiles(harness.Case):
    """A program runs code in a mapped file that is broken in some way: samples count, nothing hangs, names are never wrong."""

    def sample(self, data):
        path = self.write("bad.bin", data)
        with Target("mapbad", path, OFFSET) as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 20_000_000, "it is past its beginning")
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.25", limit=15)
            harness.assert_healthy(target.pid, "R")
        return profile

    def test_hostile(self):
        for name, data in HOSTILE.items():
            with self.subTest(file=name):
                profile = self.sample(data)
                named = profile.leaf("[bad.bin]")
                failed = profile.containing("[failed]")
                self.assert_share(profile, named + failed, 0.98)
                self.assert_share(profile, named, 0.9)
                wrong = {frame for stack in profile.stacks if "run_mapped" in stack
                         for frame in stack[stack.index("run_mapped") + 1:]} - {"[bad.bin]"}
                self.assertEqual(wrong, set())

    def test_stack_through_a_file_that_is_no_elf(self):
        profile = self.sample(HOSTILE["no ELF"])
        self.assert_share(profile, profile.ending("main", "run_mapped", "[bad.bin]"), 0.98)

    def test_cut_behind_our_back(self):
        """The file is cut while it is mapped and sampled: reading it may fail, never kill the sampler."""
        path = self.write("bad.bin", image(b"text") + bytes(0x4000))
        with Target("mapbad", path, OFFSET) as target:
            os.truncate(path, 0x1000)
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.3")
            harness.assert_healthy(target.pid, "R")
        self.assert_share(profile, profile.leaf("[bad.bin]"), 0.95)

    def test_truncated_program(self):
        """A copy of a real program, cut in the middle, mapped as a file."""
        with open(program("chain_nofp"), "rb") as file:
            real = file.read()
        for size in (0x1000, 0x1800, 0x3000):
            with self.subTest(size=size):
                data = bytearray(real[:size].ljust(0x1000, b"\0"))
                data[OFFSET:OFFSET + len(CODE)] = CODE
                profile = self.sample(bytes(data))
                self.assert_share(profile, profile.leaf("[bad.bin]"), 0.95)


if __name__ == "__main__":
    harness.main()
