# Sourced by the scripts beside it: need PACKAGE PROBE... installs what is missing, with apt, on Debian 12.
#
# A probe is a command or, with a slash, a file. A package whose probe is there already, wherever it came from, is left alone.
# Without root (and without sudo) nothing can be installed: then the scripts go on when everything is there.

missing=()

need() {
    local package=$1 probe=$2
    case $probe in
    */*) compgen -G "$probe" >/dev/null || missing+=("$package") ;;
    *) command -v "$probe" >/dev/null || missing+=("$package") ;;
    esac
}

need_build() {
    need gcc gcc
    need libc6-dev /usr/include/x86_64-linux-gnu/sys/cdefs.h
    need linux-libc-dev /usr/include/linux/magic.h
    need make make
    need cmake cmake
    need libunwind-dev /usr/include/x86_64-linux-gnu/libunwind-x86_64.h
    need libdw-dev /usr/include/elfutils/libdw.h
    need libelf-dev /usr/include/libelf.h
    need zlib1g-dev /usr/include/zlib.h
    need liblzma-dev /usr/include/lzma.h
    need libzstd-dev /usr/include/zstd.h
    need libiberty-dev /usr/include/libiberty/demangle.h
    need libjansson-dev /usr/include/jansson.h
}

need_demo() {
    need perl perl
    need libdevel-nytprof-perl "$flamegraph"
}

need_tests() {
    need g++ g++
    need binutils as
    need libcmocka-dev /usr/include/cmocka.h
    need python3 python3
    need xz-utils xz
    need dwz dwz
    need musl-tools musl-gcc
    need nodejs node
    need strace strace
    need util-linux setpriv
    need procps ps
}

# Brendan Gregg's flamegraph.pl, as Debian ships it.
flamegraph=/usr/share/perl5/Devel/NYTProf/flamegraph.pl

install_missing() {
    [ ${#missing[@]} -eq 0 ] && return
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing packages, and no root to install them: ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "installing: ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
}
