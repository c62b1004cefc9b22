"""Debug files from a server (--debuginfod): a local one, asked only where it is wanted. Needs libdebuginfod.so.1."""

import contextlib
import ctypes
import http.server
import os
import re
import shutil
import subprocess
import threading
import unittest

import harness

SOURCE = os.path.join(os.environ["SOURCES"], "names_matrix.c")


def has_library():
    try:
        ctypes.CDLL("libdebuginfod.so.1")
        return True
    except OSError:
        return False


def tool(*command):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout


@contextlib.contextmanager
def server(files):
    """(Its URL, the paths that it was asked for); `files` maps paths to bytes."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            data = files.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_address[1]}", asked
        finally:
            one.shutdown()
            thread.join()


@unittest.skipUnless(has_library(), "no libdebuginfod.so.1 here")
class Debuginfod(harness.Case):
    def setUp(self):
        super().setUp()
        self.program, self.debug = self.path("prog"), self.path("elsewhere")
        tool("gcc", "-g", "-O2", "-fno-optimize-sibling-calls", "-D_GNU_SOURCE", "-Wl,--build-id=sha1", SOURCE, "-o", self.program)
        tool("objcopy", "--only-keep-debug", self.program, self.debug)
        tool("strip", "-s", self.program)
        build_id = re.search(rb"Build ID: (\w+)", tool("readelf", "-nW", self.program))[1].decode()
        self.address = f"/buildid/{build_id}/debuginfo"

    def content(self):
        with open(self.debug, "rb") as file:
            return file.read()

    def sample(self, url, *options):
        environment = {**os.environ, "DEBUGINFOD_CACHE_PATH": self.path("cache"), "DEBUGINFOD_URLS": url, "no_proxy": "127.0.0.1"}
        profile, _, result = self.launch(["-r", "997", *options], [self.program, "0.2"], env=environment)
        return profile, result

    NAMED = ("main", "middle", "hot", "spin_[i]")
    UNNAMED = ("[prog]",) * 3

    def test_fetched(self):
        with server({self.address: self.content()}) as (url, asked):
            profile, _ = self.sample(url, "--debuginfod")
            self.assert_share(profile, profile.ending(*self.NAMED), 0.8)
            self.assertEqual(asked.count(self.address), 1, asked)
            asked.clear()
            profile, _ = self.sample(url, "--debuginfod")
            self.assert_share(profile, profile.ending(*self.NAMED), 0.8)
            self.assertNotIn(self.address, asked)  # it was kept

    def test_not_asked(self):
        with server({self.address: self.content()}) as (url, asked):
            profile, _ = self.sample(url)
            self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)
            self.assertEqual(asked, [])

    def test_has_none(self):
        with server({}) as (url, asked):
            profile, _ = self.sample(url, "--debuginfod")
            self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)
            self.assertIn(self.address, asked)

    def test_of_another_build(self):
        """What a server says is checked: names of another build are not shown."""
        other = self.path("other")
        tool("gcc", "-g", "-O0", "-D_GNU_SOURCE", "-Wl,--build-id=sha1", SOURCE, "-o", other)
        with open(other, "rb") as file:
            data = file.read()
        with server({self.address: data}) as (url, _):
            profile, result = self.sample(url, "--debuginfod")
            self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)
            self.assertEqual(result.err.count("another build"), 1, result)

    def test_nonsense(self):
        for data in (b"", b"no ELF file", self.content()[:1000]):
            with self.subTest(data=data[:8]), server({self.address: data}) as (url, _):
                shutil.rmtree(self.path("cache"), ignore_errors=True)
                profile, _ = self.sample(url, "--debuginfod")
                self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)

    def test_cannot_be_asked(self):
        """Without servers, or with none that answers, there is a profile all the same."""
        profile, result = self.sample("", "--debuginfod")
        self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)
        self.assertEqual(result.err.count("DEBUGINFOD_URLS is not set"), 1, result)
        with server({}) as (url, _):
            pass
        profile, _ = self.sample(url, "--debuginfod")
        self.assert_share(profile, profile.ending(*self.UNNAMED), 0.8)


if __name__ == "__main__":
    harness.main()
