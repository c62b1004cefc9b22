#!/usr/bin/env python3
"""Are the names right? What the sampler's symbolizer says of random addresses, beside eu-addr2line -i -f.

    bench/setup.sh && bench/names_check.py [--addresses N] [--seed N] [--show N] [FILE...]

Without FILE: the C library, the C++ library, node and python3, as far as they are installed. For each address of the executable sections both say
functions, inlined ones too, and lines. Both are equal, or one of these differences explains why not:

alias     theirs is the name in the debug information, ours by the rule for names another one of the same code's (several symbols begin there)
symbol    theirs is the name in the debug information, or the nearest symbol where there is none; ours that of the symbol that covers the address, as of a copy
          that the compiler has made of the function (foo.part.0)
scope     ours has the namespaces and types before the name that theirs lacks
gap       the address lies between functions: theirs has the name or line of what is before, ours none
binutils  binutils' addr2line -i -f says what ours says (theirs does not show functions that are inlined in programs optimised as a whole, nor such whose stretches
          are not within those of their callers)
unnamed   theirs has no name, ours has one
no line   the line is 0 or missing in the table for this address: theirs prints it, or the last one known, ours leaves it out

Status 1 when there is another difference.
"""

import argparse
import bisect
import collections
import glob
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = os.path.join(ROOT, "build/release/bench/names")
DEFAULT = ("/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/debug/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
           "/usr/bin/node", "/usr/bin/python3.11")


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False).stdout


def code_ranges(path):
    ranges = []
    for line in run("readelf", "-SW", path).splitlines():
        match = re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\S+\s+(\S*X\S*)\s", line)
        if match and not match[1].startswith(".plt"):
            ranges.append((int(match[2], 16), int(match[3], 16)))
    return ranges


def choose(path, count, seed):
    ranges = code_ranges(path)
    chance = random.Random(seed)
    picks = chance.choices(ranges, weights=[size for _, size in ranges], k=count)
    return sorted({start + chance.randrange(size) for start, size in picks})


def short(name, readable):
    return readable.get(name, name)


class Symbols:
    """All symbols of the file and of its debug file: by start, for the words of a difference."""

    def __init__(self, path):
        self.names, self.sizes = collections.defaultdict(set), {}
        files = [path]  # the last one has the debug information
        build_id = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-nW", path))
        if build_id:
            files += glob.glob(f"/usr/lib/debug/.build-id/{build_id[1][:2]}/{build_id[1][2:]}.debug")
        self.debug = files[-1]
        for file in files:
            for line in run("readelf", "-sW", file).splitlines():
                words = line.split()
                if len(words) >= 8 and words[0].rstrip(":").isdigit() and words[6].isdigit() and words[3] in ("FUNC", "NOTYPE", "IFUNC", "OBJECT"):
                    start = int(words[1], 16)
                    self.names[start].add(words[7].split("@")[0])
                    self.sizes[start] = max(self.sizes.get(start, 0), int(words[2], 0))
        self.starts = sorted(self.names)

    def at(self, address):
        """Names of the symbols that begin last at or before it."""
        index = bisect.bisect_right(self.starts, address)
        return self.names[self.starts[index - 1]] if index else set()

    def covers(self, address):
        index = bisect.bisect_right(self.starts, address)
        return index > 0 and address < self.starts[index - 1] + self.sizes[self.starts[index - 1]]

    def holding(self, address, reach=4096):
        """Names of all symbols that hold it."""
        index, found = bisect.bisect_right(self.starts, address), set()
        for start in self.starts[max(0, index - reach):index]:
            if address < start + self.sizes[start]:
                found |= self.names[start]
        return found


def frames_of(text, read_place):
    """What an addr2line says: a line with each address, then two for each frame."""
    found, lines, at = {}, text.splitlines(), 0
    while at < len(lines):
        address, frames, at = int(lines[at], 16), [], at + 1
        while at + 1 < len(lines) and not lines[at].startswith("0x"):
            file, line = read_place(re.sub(r" \(.*\)$", "", lines[at + 1]))
            frames.append((lines[at].split(" inlined at ")[0], file, int(line) if line.isdigit() else 0))
            at += 2
        found[address] = frames
    return found


def ask(program, path, addresses):
    return run(program, "-a", "-f", "-i", "-e", path, text="".join(f"{address:#x}\n" for address in addresses))


def theirs_of(path, addresses):
    """For each address: its frames, innermost first, as (name, file, line). The place is file:line:column."""
    return frames_of(ask("eu-addr2line", path, addresses), lambda place: (place.split(":")[0], (place.split(":") + [""])[1]))


def binutils_of(path, addresses):
    """As theirs_of, by binutils. The place is file:line."""
    return frames_of(ask("addr2line", path, addresses), lambda place: place.rpartition(":")[::2])


def ours_of(path, addresses):
    found = {}
    for row in run(NAMES, path, "--lines", text="".join(f"{address:x}\n" for address in addresses)).splitlines():
        address, *frames = row.split("\t")
        parts = [re.fullmatch(r"(.*)\|(.*):(\d+)", frame) for frame in frames]
        found[int(address, 16)] = [(part[1], part[2], int(part[3])) for part in parts]
    return found


def demangle(names):
    names = sorted(names)
    readable = run("c++filt", "-p", "-i", text="".join(f"{name}\n" for name in names)).splitlines()
    return dict(zip(names, readable))


def same_file(a, b):
    return os.path.normpath(a) == os.path.normpath(b) or os.path.basename(a) == os.path.basename(b)


def plain(name):
    """Without what demanglers write in one way or another: blanks, return types, [abi:...], clones."""
    name = re.sub(r"\[abi:\w+\]| \[clone [^]]*\]", "", name)
    return re.sub(r"\s+", "", re.sub(r"(\.(cold|part|isra|constprop|lto_priv)(\.\d+)*)+$", "", name))


def compare_name(ours, theirs, address, symbols, readable, is_function):
    if plain(ours) == plain(readable.get(theirs, theirs)):
        return "equal"
    if theirs == "??":
        return "unnamed"
    shown = plain(readable.get(theirs, theirs))
    if is_function:
        begins = {plain(readable.get(name, name)) for name in symbols.holding(address) | symbols.at(address)}
        if ours == "??":
            return "gap" if not symbols.covers(address) else "other"
        if plain(ours) in begins:
            return "alias" if shown in begins else "symbol"
    if plain(ours).endswith("::" + shown) or plain(ours).split("(")[0].endswith("::" + shown):
        return "scope"
    return "other"


def agree(ours, theirs, address, symbols, readable):
    """All frames and lines. Of an inlined function that has no name for the linker, binutils gives that of the function around it."""
    def same_name(index):
        kind = compare_name(ours[index][0], theirs[index][0], address, symbols, readable, index + 1 == len(ours))
        around = ours[index + 1][0] if index + 1 < len(ours) else None
        return kind != "other" or plain(readable.get(theirs[index][0], theirs[index][0])) == plain(around or "")
    return len(ours) == len(theirs) and all(ours[i][2] == theirs[i][2] and same_name(i) for i in range(len(ours)))


def compare(ours, theirs, address, symbols, readable):
    """The kind of the first difference, or "equal"."""
    if len(ours) != len(theirs):
        if theirs == [("??", "??", 0)] or ours == [("??", "??", 0)]:
            return "unnamed" if ours != [("??", "??", 0)] else "gap"
        return "chain"
    kinds = []
    for index, (our, their) in enumerate(zip(ours, theirs)):
        kinds.append(compare_name(our[0], their[0], address, symbols, readable, index + 1 == len(ours)))
        if (our[2], their[2]) != (0, 0) and (our[2] != their[2] or not same_file(our[1], their[1])):
            kinds.append("no line" if our[2] == 0 else "line")
    rest = [kind for kind in kinds if kind != "equal"]
    return rest[0] if rest else "equal"


EXPLAINED = ("equal", "alias", "symbol", "scope", "gap", "binutils", "unnamed", "no line")


def check(path, arguments):
    addresses = choose(path, arguments.addresses, arguments.seed)
    ours, theirs, symbols = ours_of(path, addresses), theirs_of(path, addresses), Symbols(path)
    names = {frame[0] for frames in theirs.values() for frame in frames} | {name for found in symbols.names.values() for name in found}
    readable = demangle(names)
    kinds = {address: compare(ours.get(address, []), theirs.get(address, []), address, symbols, readable) for address in addresses}
    others = binutils_of(symbols.debug, [address for address in addresses if kinds[address] not in EXPLAINED])
    readable.update(demangle({frame[0] for frames in others.values() for frame in frames}))
    for address, frames in others.items():
        if agree(ours[address], frames, address, symbols, readable):
            kinds[address] = "binutils"
    examples = collections.defaultdict(list)
    for address in addresses:
        examples[kinds[address]].append(address)
    kinds = collections.Counter(kinds.values())
    inlined = sum(len(frames) - 1 for frames in ours.values())
    print(f"\n{path}: {len(addresses)} addresses, {inlined} inlined frames, "
          + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()), flush=True)
    for kind, found in examples.items():
        if kind != "equal":
            for address in found[:arguments.show if kind in EXPLAINED else max(arguments.show, 5)]:
                print(f"  {kind}: {address:x}\n    ours   {ours.get(address)}\n    theirs {theirs.get(address)}")
                if address in others:
                    print(f"    others {others[address]}")
    return all(kind in EXPLAINED for kind in kinds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addresses", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="so many examples of each explained difference")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    subprocess.run(["cmake", "--preset", "release", "-DSAMPLER_E2E=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "names"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    good = [check(path, arguments) for path in arguments.files or filter(os.path.exists, DEFAULT)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
