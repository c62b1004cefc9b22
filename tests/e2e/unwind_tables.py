"""Where the unwind tables are, and in what state: search table damaged or lying, no header, .debug_frame, no sections, nothing."""

import os
import struct

import harness
from harness import Target

CHAIN = ("main", "outer_fn", "aligned_fn", "burn")
PT_GNU_EH_FRAME = 0x6474E550


class Elf:
    """A program's bytes, to be damaged."""

    def __init__(self, name):
        with open(harness.program(name), "rb") as file:
            self.data = bytearray(file.read())

    def eh_frame_hdr(self):
        table, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        for at in range(table, table + size * count, size):
            if struct.unpack_from("<I", self.data, at)[0] == PT_GNU_EH_FRAME:
                return struct.unpack_from("<Q", self.data, at + 8)[0]
        raise AssertionError("no PT_GNU_EH_FRAME")

    def search_table(self):
        """(offset, [(start, entry), …])"""
        at = self.eh_frame_hdr()
        if self.data[at + 2:at + 4] != b"\x03\x3b":
            raise AssertionError("another kind of search table")
        count, = struct.unpack_from("<I", self.data, at + 8)
        return at + 12, list(struct.iter_unpack("<ii", self.data[at + 12:at + 12 + 8 * count]))

    def put_search_table(self, entries):
        at, before = self.search_table()
        if len(before) < 4 or before == entries:
            raise AssertionError(f"nothing to test: {before}")
        self.data[at:at + 8 * len(entries)] = b"".join(struct.pack("<ii", *entry) for entry in entries)

    def strip_section_headers(self):
        struct.pack_into("<Q", self.data, 40, 0)      # e_shoff
        struct.pack_into("<HH", self.data, 60, 0, 0)  # e_shnum, e_shstrndx


class Tables(harness.Case):
    def sample(self, path, mode):
        with Target(path) as target:
            harness.wait_until(lambda: harness.cpu_ns(target.pid) > 20_000_000, "it is past its beginning")
            profile, stats, _ = self.attach(target.pid, "-r", "250", "-d", "0.5", "--unwind", mode)
            harness.assert_healthy(target.pid, "R")
        self.assertGreater(profile.total, 0)
        self.assert_caught(profile.total, stats)
        self.assertEqual(sum(stats["samples_failed"].values()), 0, stats)
        return profile

    def start_up(self):
        """The frames above main, from the program as the compiler makes it."""
        profile = self.sample(harness.program("tables"), "dwarf")
        self.assertEqual(len(profile.stacks), 1, profile)
        stack = next(iter(profile.stacks))
        self.assertEqual((stack[0], stack[1], stack[-len(CHAIN):]), ("tables", "_start", CHAIN))
        return stack[1:-len(CHAIN)]

    def assert_whole(self, path, named=True):
        """Every sample, in both modes that use tables, is the whole stack and nothing else."""
        frames = self.start_up() + CHAIN
        if not named:
            own = {"_start", *CHAIN}
            frames = tuple(f"[{os.path.basename(path)}]" if frame in own else frame for frame in frames)
        for mode in ("dwarf", "auto"):
            with self.subTest(mode=mode):
                profile = self.sample(path, mode)
                self.assertEqual(set(profile.stacks), {(harness.comm(path), *frames)}, profile)

    def damaged(self, name, elf):
        return self.write(name, elf.data, 0o755)

    def test_no_search_table(self):
        """The header says that it has neither a count nor a table."""
        elf = Elf("tables")
        at = elf.eh_frame_hdr()
        elf.data[at + 2:at + 4] = b"\xff\xff"
        self.assert_whole(self.damaged("no_search", elf))

    def test_no_header(self):
        self.assertRaises(AssertionError, Elf("tables_no_header").eh_frame_hdr)
        self.assert_whole(harness.program("tables_no_header"))

    def test_debug_frame(self):
        """.eh_frame is there, but only for the start files."""
        for name in ("tables_debug", "tables_debug_gz"):
            with self.subTest(build=name):
                self.assert_whole(harness.program(name))

    def test_debug_frame_without_header(self):
        """Both ways to be without: the search table is damaged, and it knows nothing of these functions anyway."""
        elf = Elf("tables_debug")
        at = elf.eh_frame_hdr()
        elf.data[at + 2:at + 4] = b"\xff\xff"
        self.assert_whole(self.damaged("debug_no_search", elf))

    def test_no_section_headers(self):
        elf = Elf("tables")
        elf.strip_section_headers()
        self.assert_whole(self.damaged("no_sections", elf), named=False)

    def test_no_section_headers_and_no_search_table(self):
        elf = Elf("tables")
        at = elf.eh_frame_hdr()
        elf.data[at + 2:at + 4] = b"\xff\xff"
        elf.strip_section_headers()
        self.assert_whole(self.damaged("no_sections", elf), named=False)

    def test_shuffled_search_table(self):
        elf = Elf("tables")
        _, entries = elf.search_table()
        elf.put_search_table(entries[1::2] + entries[::2])
        self.assert_whole(self.damaged("shuffled", elf))

    def test_search_table_that_lies(self):
        """Sorted, but each start has its neighbour's entry; or each start is a little late; or most are missing."""
        _, entries = Elf("tables").search_table()
        starts, fdes = zip(*entries)
        lies = {
            "rotated": list(zip(starts, fdes[1:] + fdes[:1])),
            "late": [(start + 3, fde) for start, fde in entries],
            "missing": [entries[0]] * len(entries),
        }
        for name, lie in lies.items():
            with self.subTest(lie=name):
                elf = Elf("tables")
                elf.put_search_table(lie)
                self.assert_whole(self.damaged(name, elf))

    def test_nothing(self):
        """Frame pointers lead through all of it where there are some."""
        start = self.start_up()
        for mode in ("fp", "auto"):
            with self.subTest(mode=mode):
                profile = self.sample(harness.program("tables_none_fp"), mode)
                whole = profile.count(lambda stack: stack[1:][-len(CHAIN):] == CHAIN)
                self.assertEqual(whole, profile.total, profile)
                self.assert_in_chain(profile, start + CHAIN)

    def test_nothing_and_no_frame_pointers(self):
        """What cannot be known is left out, and the rest is true."""
        start = self.start_up()
        for mode in ("fp", "dwarf", "auto"):
            with self.subTest(mode=mode):
                self.assert_in_chain(self.sample(harness.program("tables_none"), mode), start + CHAIN)

    def assert_in_chain(self, profile, chain):
        """Each stack ends in the function that works, and its frames are of the chain, in order, none twice."""
        for stack in profile.stacks:
            self.assertEqual(stack[-1], "burn", profile)
            rest = iter(chain)
            for frame in stack[1:]:
                self.assertTrue(frame == "[truncated]" or frame in rest, (stack, chain))


if __name__ == "__main__":
    harness.main()
