"""Names of Go programs without symbols: from the table that Go's runtime needs itself. The Go tools, if they were there when this was configured,
are the program GO; what they have built is kept in GOCACHE."""

import os
import re
import shutil
import struct
import subprocess
import unittest

import harness
from harness import Target

GO = os.environ.get("GO", "")

# What is hot has a frame of its own, so that a frame pointer tells its caller.
PROGRAM = """package main

import (
	"fmt"
	"time"
)
IMPORT
type T struct{ sum uint64 }

//go:noinline
func hot(n int) uint64 {
	var held [32]uint64
	for i := 0; i < n; i++ {
		held[i%32] = held[(i+7)%32]*31 + uint64(i)
	}
	return held[n%32]
}

//go:noinline
func (t *T) Method(n int) { t.sum += hot(n) }

func main() {
	t := &T{}
	fmt.Println("ready")
	func() {
		for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
			t.Method(1000000)
		}
	}()
	fmt.Println(t.sumDECOY)
}
"""

CGO = """
/*
static int decoy_before(int x) { return x + 1; }
int decoy_exported(int x) { return decoy_before(x) * 3; }
*/
import "C"
"""

STACK = ("runtime.goexit", "runtime.main", "main.main", "main.main.func1", "main.(*T).Method", "main.hot")
LINKED_OUTSIDE = "-linkmode=external -extldflags=-rdynamic"


def plain(name):
    """As Go's table has it: .symtab tells of assembly, and what stands in brackets."""
    return re.sub(r"\[.*\]", "[...]", name.removesuffix(".abi0"))


def without_sections(data):
    """An ELF file whose section headers nobody finds."""
    data = bytearray(data)
    struct.pack_into("<Q", data, 0x28, 0)  # e_shoff
    struct.pack_into("<HH", data, 0x3c, 0, 0)  # e_shnum, e_shstrndx
    return bytes(data)


@unittest.skipUnless(GO and os.access(GO, os.X_OK), "no Go tools (golang-go) here")
class Go(harness.Case):
    def build(self, name, *options, link="-s -w", cgo=False):
        """The program's path."""
        source = PROGRAM.replace("IMPORT", CGO if cgo else "").replace("DECOY", ", C.decoy_exported(1)" if cgo else "")
        path = self.path(name)
        environment = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOPROXY": "off",
                       "CGO_ENABLED": "1" if cgo else "0"}
        subprocess.run([GO, "build", "-o", path, f"-ldflags={link}", *options, self.write(name + ".go", source.encode())],
                       check=True, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, timeout=240)
        return path

    def sample(self, path):
        with Target(path) as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "0.5")
            harness.assert_healthy(target.pid)
        return profile

    def check(self, path, names=None):
        """Stacks are named to their root; no frame has a name that is not Go's (of `names`, if they are given)."""
        profile = self.sample(path)
        self.assert_share(profile, profile.count(lambda stack: tuple(map(plain, stack[1:])) == STACK), 0.9)
        self.assertEqual(profile.matching("decoy"), 0, profile)
        self.assertEqual(profile.containing(f"[{os.path.basename(path)}]"), 0, profile)
        if names:
            wrong = {frame for stack in profile.stacks for frame in stack[1:]
                     if not re.match(r"\[|__vdso_", frame)} - names
            self.assertEqual(wrong, set(), profile)

    def variants(self, path, names=None):
        """As the linker made it, without symbols, and without section headers."""
        with self.subTest(linked=path):
            self.check(path, names)
        stripped = path + "_s"
        subprocess.run(["strip", "-s", "-o", stripped, path], check=True, timeout=60)
        with self.subTest(stripped=path):
            self.check(stripped, names)
        with open(path, "rb") as file:
            data = without_sections(file.read())
        with self.subTest(without_sections=path):
            self.check(self.write(os.path.basename(path) + "_n", data, 0o755), names)

    def names(self, path):
        """What the Go tools say of a program that is not stripped."""
        listing = subprocess.run([GO, "tool", "nm", path], check=True, capture_output=True, text=True, timeout=60).stdout
        return {line.split(maxsplit=2)[2] for line in listing.splitlines() if re.match(r"\s*[0-9a-f]+ [tT] ", line)}

    def test_plain(self):
        names = self.names(self.build("whole", link=""))
        self.assertEqual(set(STACK) - set(map(plain, names)), set())
        self.variants(self.build("plain"), set(map(plain, names)))

    def test_not_stripped(self):
        """The ordinary symbols come first: their names tell of assembly."""
        whole = self.build("whole", link="-w")
        self.check(whole, self.names(whole))

    def test_pie(self):
        whole = self.build("whole", "-buildmode=pie", link="")
        self.variants(self.build("pie", "-buildmode=pie"), set(map(plain, self.names(whole))))

    def test_cgo(self):
        """Linked by gcc: C code before Go's, and exported names of it."""
        if not shutil.which("gcc"):
            self.skipTest("no gcc")
        self.variants(self.build("cgo", link=f"-s -w {LINKED_OUTSIDE}", cgo=True))

    def test_cgo_pie(self):
        """The table has no section of its own then."""
        if not shutil.which("gcc"):
            self.skipTest("no gcc")
        self.variants(self.build("cgopie", "-buildmode=pie", link=f"-s -w {LINKED_OUTSIDE}", cgo=True))


if __name__ == "__main__":
    harness.main()
