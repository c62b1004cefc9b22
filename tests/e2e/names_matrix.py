"""Names from wherever they can be, of one program (testprogs/names_matrix.c): compilers and linkers x kinds of files x places of its symbols and debug
information. Files are built here, and only in a temporary directory. Compilers and linkers beside gcc and its default are used if they are there."""

import concurrent.futures
import ctypes
import hashlib
import os
import re
import shutil
import struct
import subprocess

import harness

SOURCE = os.path.join(os.environ["SOURCES"], "names_matrix.c")
BASIC = ("-O2", "-fno-optimize-sibling-calls", "-D_GNU_SOURCE", "-Wl,--build-id=sha1", "-rdynamic")
COMPILERS = {"gcc": ("gcc", "-fno-reorder-functions", "-fno-toplevel-reorder"), "clang": ("clang", "-Wno-unused-command-line-argument")}
LINKERS = {"default": (None, ()), "lld": ("ld.lld", ("-fuse-ld=lld",)), "gold": ("ld.gold", ("-fuse-ld=gold",))}
LINKS = {
    "pie": ("-fPIE", "-pie"),
    "no_pie": ("-fno-pie", "-no-pie"),
    "static": ("-fno-pie", "-static"),
    "static_pie": ("-fPIE", "-static-pie"),
    "shared": ("-fPIC", "-shared", "-DLIBRARY"),
}
# How it is compiled, by the name of what comes out.
DEBUG = {"full": ("-g",), "dwarf4": ("-gdwarf-4",), "split4": ("-gdwarf-4", "-gsplit-dwarf"), "split5": ("-gdwarf-5", "-gsplit-dwarf"), "zlib": ("-g", "-gz=zlib")}

FRAMES = ("main", "middle", "hot", "spin")
SECONDS = "0.06"  # of CPU time, less than 1
WORKERS = 4
# binutils' one ends by a fault with version 5, llvm's never with gcc's
PACKAGERS = {("gcc", "4"): "dwp", ("clang", "4"): "dwp", ("clang", "5"): "llvm-dwp"}


def lines():
    """Where the source says that each function of the stack is at work."""
    with open(SOURCE, encoding="ascii") as file:
        found = {match[1]: number for number, text in enumerate(file, 1) if (match := re.search(r"/\* line: (\w+) \*/", text))}
    return {name: f"{name} (names_matrix.c:{number})" for name, number in found.items()}


LINES = lines()


def tool(*command, **options):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, **options).stdout


def symbols(path, *options):
    """Names of defined symbols."""
    return {line.split()[0].decode() for line in tool("nm", "--format=posix", "--defined-only", *options, path).splitlines()}


def zstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    for function in (library.ZSTD_compressBound, library.ZSTD_compress):
        function.restype = ctypes.c_size_t
    bound = library.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(bound)
    size = library.ZSTD_compress(out, ctypes.c_size_t(bound), data, ctypes.c_size_t(len(data)), 3)
    return out.raw[:size]


def compress_by_zstd(path):
    """What objcopy does where it was built with zstd: .debug_* as SHF_COMPRESSED; here the streams come behind all else."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    shoff, = struct.unpack_from("<Q", data, 0x28)
    count, strings = struct.unpack_from("<HH", data, 0x3c)
    names_off, = struct.unpack_from("<Q", data, shoff + 64 * strings + 24)
    for at in range(shoff, shoff + 64 * count, 64):
        name, _, flags = struct.unpack_from("<IIQ", data, at)
        off, size, _, _, alignment = struct.unpack_from("<QQIIQ", data, at + 24)
        if data[names_off + name:].startswith(b".debug_"):
            stream = struct.pack("<IIQQ", 2, 0, size, alignment) + zstd(bytes(data[off:off + size]))
            struct.pack_into("<Q", data, at + 8, flags | 0x800)
            struct.pack_into("<QQ", data, at + 24, len(data), len(stream))
            data += stream
    with open(path, "wb") as file:
        file.write(data)


class Variant:
    """One file to be sampled, in a directory of its own."""

    def __init__(self, directory, link, built, name):
        self.directory, self.link, self.built, self.name = os.path.join(directory, name), link, built, name
        os.mkdir(self.directory)
        self.program = os.path.join(self.directory, "prog")
        self.debug_directory = os.path.join(self.directory, "debug")
        self.warnings = 0
        self.frames = {}  # a function's frame, if not as with lines
        getattr(self, "make_" + name.split("-")[0])(*name.split("-")[1:])

    def copy(self, built):
        shutil.copy(self.built[built], self.program)

    def only_symbols(self, known):
        self.frames = {name: name if name in known else "[prog]" for name in FRAMES[:3]} | {"spin": None}

    def make_full(self):
        self.copy("full")

    def make_stripped(self):
        self.copy("full")
        tool("strip", "-s", self.program)
        self.only_symbols(symbols(self.program, "-D"))

    def separate(self, path):
        """Moves symbols and debug information to that path."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.copy("full")
        tool("objcopy", "--only-keep-debug", self.program, path)
        tool("strip", "-s", self.program)

    def make_link(self, place):
        path = {"beside": self.directory, "below": self.directory + "/.debug", "elsewhere": self.debug_directory + self.directory}[place] + "/prog.debug"
        self.separate(path)
        tool("objcopy", f"--add-gnu-debuglink={path}", self.program)

    def make_build_id(self):
        found = re.search(rb"Build ID: (\w\w)(\w+)", tool("readelf", "-nW", self.built["full"]))
        self.separate(f"{self.debug_directory}/.build-id/{found[1].decode()}/{found[2].decode()}.debug")

    def make_debugdata(self):
        """As GDB's manual says."""
        mini, keep = self.program + ".mini", self.program + ".keep"
        self.separate(mini)
        with open(keep, "w", encoding="ascii") as file:
            file.write("\n".join(symbols(mini) - symbols(self.program, "-D")) + "\n")
        tool("objcopy", "-S", "--remove-section", ".gdb_index", "--remove-section", ".comment", f"--keep-symbols={keep}", mini)
        tool("xz", mini)
        tool("objcopy", "--add-section", f".gnu_debugdata={mini}.xz", self.program)
        self.only_symbols(FRAMES)

    def make_dwz(self):
        """Two files share what they both have. What clang makes of version 5 dwz does not read."""
        self.copy("dwarf4" if self.built["compiler"] == "clang" else "full")
        other, common = self.program + ".other", self.program + ".common"
        shutil.copy(self.program, other)
        tool("dwz", "-m", common, self.program, other)
        if b".gnu_debugaltlink" not in tool("readelf", "-SW", self.program):
            raise AssertionError("dwz has found nothing to share")

    def make_split(self, version):
        self.copy("split" + version)

    def make_package(self, version):
        """Its split units are in a package, which is not read: that is told."""
        self.copy("split" + version)
        tool(PACKAGERS[self.built["compiler"], version], "-e", self.built["split" + version], "-o", self.program + ".dwp", cwd=self.built["directory"])
        with open(self.program, "rb") as file:
            data = file.read()
        # The units are looked for where nothing is.
        name = self.built["directory"].encode()
        data = data.replace(name, b"/" + b"x" * (len(name) - 1))
        with open(self.program, "wb") as file:
            file.write(data)
        self.frames = {"hot": LINES["spin"].replace("spin", "hot", 1), "spin": None}
        self.warnings = 1

    def make_zlib(self):
        self.copy("zlib")

    def make_zstd(self):
        self.copy("full")
        compress_by_zstd(self.program)

    def expected(self):
        frames = {name: LINES[name] for name in FRAMES} | {"spin": LINES["spin"] + "_[i]"} | self.frames
        if self.link == "shared":
            frames["main"] = LINES["library"].replace("library", "main")
        return tuple(frame for frame in frames.values() if frame)


VARIANTS = ("full", "stripped", "link-beside", "link-below", "link-elsewhere", "build_id", "debugdata", "dwz", "split-4", "split-5", "package-4", "package-5",
            "zlib", "zstd")


def build(directory, compiler, linker, link):
    """The files of all kinds of debug information, by their names."""
    os.makedirs(directory)
    built = {"directory": directory, "compiler": compiler}
    for name, options in DEBUG.items():
        built[name] = os.path.join(directory, name)
        common = (*COMPILERS[compiler], *BASIC, *options, *LINKERS[linker][1], *LINKS[link])
        compile_only = [option for option in common if option not in ("-pie", "-no-pie", "-static", "-static-pie", "-shared", "-rdynamic")]
        tool(*compile_only, "-c", SOURCE, "-o", name + ".o", cwd=directory)
        tool(*common, name + ".o", "-o", name, cwd=directory)
    return built


class Matrix(harness.Case):
    def setUp(self):
        super().setUp()
        self.host = self.path("host")
        tool("gcc", *BASIC, "-g", "-DPROGRAM", SOURCE, "-o", self.host)

    def command(self, variant):
        return [self.host, SECONDS, variant.program] if variant.link == "shared" else [variant.program, SECONDS]

    def sample(self, variant, *options):
        result = harness.run("-r", "997", *options, "-o", variant.directory + "/profile", "--", *self.command(variant),
                             env={**os.environ, "SAMPLER_DEBUG_DIR": variant.debug_directory})
        self.assert_ok(result)
        return harness.read_profile(variant.directory + "/profile"), result

    def check(self, variant):
        for _ in range(10):
            profile, result = self.sample(variant, "--lines")
            if profile.total >= 20:  # not where the machine was busy
                break
        self.assertGreaterEqual(profile.total, 20)
        self.assert_share(profile, profile.ending(*variant.expected()), 0.8)
        self.assertEqual(profile.matching("decoy"), 0, profile)
        self.assertEqual(result.err.count("warning:"), variant.warnings, result)

    def one(self, label, compiler, linker, link):
        """All variants of one build; what went wrong, as text."""
        wrong = []
        directory = self.path(label)
        built = build(directory + "/build", compiler, linker, link)
        for name in VARIANTS:
            if name.startswith("package") and not shutil.which(PACKAGERS.get((compiler, name[-1]), "")):
                continue
            try:
                self.check(Variant(directory, link, built, name))
            except (AssertionError, subprocess.CalledProcessError) as error:
                wrong.append(f"{label} {name}: {error} {getattr(error, 'stderr', b'').decode()}")
        shutil.rmtree(directory)
        return wrong

    def all(self, builds):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            results = list(pool.map(lambda one: self.one("-".join(one), *one), builds))
        wrong = [text for result in results for text in result]
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_gcc(self):
        self.all([("gcc", "default", link) for link in LINKS])

    def test_others(self):
        self.all([(compiler, linker, link) for compiler in COMPILERS for linker, (program, _) in LINKERS.items() for link in ("pie", "shared")
                  if (compiler, linker) != ("gcc", "default") and shutil.which(compiler) and (not program or shutil.which(program))])

    def full(self):
        return Variant(self.directory, "pie", build(self.path("build"), "gcc", "default", "pie"), "full")

    def test_options(self):
        """Without lines, and without inlined functions: their lines are the function's then."""
        variant = self.full()
        profile, _ = self.sample(variant)
        self.assert_share(profile, profile.ending("main", "middle", "hot", "spin_[i]"), 0.8)
        profile, _ = self.sample(variant, "--no-inlines")
        self.assert_share(profile, profile.ending("main", "middle", "hot"), 0.8)
        profile, _ = self.sample(variant, "--no-inlines", "--lines")
        self.assert_share(profile, profile.ending(LINES["main"], LINES["middle"], LINES["spin"].replace("spin", "hot", 1)), 0.8)

    def test_many_reports(self):
        """A hundred reports of one file are the same bytes."""
        variant = self.full()
        profile, _ = self.sample(variant, "--lines", "--save-snapshots", self.path("snapshots"))

        def report(_):
            result = harness.run("report", "--lines", self.path("snapshots"))
            self.assert_ok(result)
            return hashlib.sha256(result.out.encode()).hexdigest()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            hashes = set(pool.map(report, range(100)))
        with open(variant.directory + "/profile", "rb") as file:
            self.assertEqual(hashes, {hashlib.sha256(file.read()).hexdigest()}, profile)


if __name__ == "__main__":
    harness.main()
