# A Rust compiler with its sources and a C compiler for every architecture, without NDK, Docker or root: Debian's
# packages and one of PyPI's, at the versions and checksums of toolchain.lock, unpacked (not installed) into
# ${XDG_CACHE_HOME:-~/.cache}/ckptd/android. For android/build.sh and android/check.sh, which source this file in
# the repository's top folder.
#
# Sets: cache, tools. Exports: RUSTC, CARGO, RUSTC_BOOTSTRAP, CARGO_TARGET_DIR.
# shellcheck shell=sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ckptd/android
tools=$cache/tools
lock=android/toolchain.lock
script=$(basename "$0")

say() { echo "$script: $*" >&2; }
fail() { say "failed: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Downloads Debian packages into the current folder, all in one go: apt-get takes a while to begin.
# $@: NAME=VERSION.
get_debs() {
    apt-get -q -o APT::Sandbox::User=root download "$@" </dev/null >>"$cache/log" 2>&1 ||
        fail "cannot download compilers: $(tail -n 1 "$cache/log"). apt-get update may help; if the archive has later \
versions only: android/build.sh --pin"
}

# Downloads one package of PyPI of a version into the current folder.
get_pypi() {
    python3 -m pip download -q --no-deps --only-binary :all: "$1==$2" </dev/null >>"$cache/log" 2>&1 ||
        fail "cannot download $1 $2 from PyPI: $(tail -n 1 "$cache/log")"
}

# Fetches and unpacks all of the lock.
fetch() {
    [ "$(uname -m)" = x86_64 ] || fail "the packages of $lock are x86_64's, this machine is $(uname -m)"
    for program in apt-get dpkg-deb python3 sha256sum; do
        have $program || fail "there is no $program, which fetches the compilers; on Debian: apt-get install \
apt dpkg python3 python3-pip coreutils"
    done
    python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip; on Debian: apt-get install python3-pip"
    : >"$cache/log"
    rm -rf "$cache/fetch" "$cache/unpack"
    mkdir -p "$cache/fetch" "$cache/unpack"
    say "fetching compilers (250 MB, 1 GB unpacked) into $cache"
    # shellcheck disable=SC2046
    (cd "$cache/fetch" && get_debs $(sed -n 's/^deb \([^ ]*\) \([^ ]*\) .*/\1=\2/p' "$OLDPWD/$lock")) || exit 1
    while read -r kind name version sum; do
        case $kind in
        '' | '#'*) continue ;;
        deb) ;;
        pypi) (cd "$cache/fetch" && get_pypi "$name" "$version") || exit 1 ;;
        *) fail "$lock: what is '$kind'?" ;;
        esac
        file=$(find "$cache/fetch" -type f -name "${name}[_-][0-9]*")
        [ "$(sha256sum <"$file" | cut -d' ' -f1)" = "$sum" ] || fail "$name $version is not the file that $lock tells"
        case $kind in
        deb) dpkg-deb -x "$file" "$cache/unpack" ;;
        pypi) python3 -m zipfile -e "$file" "$cache/unpack/python" ;;
        esac || fail "cannot unpack $name"
        rm "$file"
    done <"$lock"
    chmod +x "$cache/unpack/python/ziglang/zig"
    cp "$lock" "$cache/unpack/lock"
    rm -rf "$tools"
    mv "$cache/unpack" "$tools"
    rmdir "$cache/fetch"
}

# Writes the newest versions that the sources of this machine have into the lock. What is of PyPI stays.
pin() {
    work=$(mktemp -d)
    : >"$cache/log"
    library=$(apt-cache depends libstd-rust-web-dev | sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p' | head -n 1)
    llvm=$(apt-cache depends rustc-web | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p' | head -n 1)
    names=$(sed -n 's/^deb \([^ ]*\) .*/\1/p' "$lock" |
        sed "s/^libstd-rust-web-[0-9].*/${library:-&}/; s/^libllvm[0-9].*/${llvm:-&}/")
    mkdir "$work/debs"
    # shellcheck disable=SC2086
    (cd "$work/debs" && get_debs $names) || exit 1
    grep '^#' "$lock" >"$work/lock"
    for name in $names; do
        file=$(find "$work/debs" -name "${name}_*")
        echo "deb $name $(dpkg-deb -f "$file" Version) $(sha256sum <"$file" | cut -d' ' -f1)" >>"$work/lock"
    done
    grep '^pypi' "$lock" >>"$work/lock"
    cp "$work/lock" "$lock"
    rm -r "$work"
    say "$lock is written; look at it with git diff, and build all ABIs before it is committed"
}

# A program with a text of its own. $1: its name; standard input: the script.
wrapper() {
    mkdir -p "$cache/bin"
    cat >"$cache/bin/.$1.$$"
    chmod +x "$cache/bin/.$1.$$"
    mv "$cache/bin/.$1.$$" "$cache/bin/$1"
}

# What cargo is told of features for an ABI. There is no DMTCP for phones. x86: zig's C compiler wants to be told in
# another way that AVX-512 is to be used; no such phone has that, and without it blake3 needs no C there. $1: the ABI.
features() {
    # What tells of single stages and objects is left out.
    few='--no-default-features --features tracing/max_level_info'
    case $1 in
    x86) echo "$few --features blake3/pure" ;;
    # No phone's processor has the one, and all have what is better than the other: the ABI has SSE4.2 in it.
    x86_64) echo "$few --features blake3/no_avx512,blake3/no_sse2" ;;
    *) echo "$few" ;;
    esac
}

# A C compiler and linker for a target of zig's, an archiver. $1: the target, the rest: arguments always given.
# What Rust and build scripts say about the target is said in other words than zig's, and dropped.
c_compiler() {
    target=$1
    shift
    wrapper "cc-$target" <<END
#!/bin/sh
for argument; do
    shift
    case \$argument in
    --target=* | -m32 | -m64 | -march=* | -mfpu=* | -mfloat-abi=* | -mthumb | -Wl,--eh-frame-hdr | -Wl,-melf_i386) ;;
    *) set -- "\$@" "\$argument" ;;
    esac
done
export ZIG_GLOBAL_CACHE_DIR='$cache/zig' ZIG_LOCAL_CACHE_DIR='$cache/zig'
exec '$tools/python/ziglang/zig' cc -target $target $* "\$@"
END
    wrapper "ar-$target" <<END
#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR='$cache/zig' ZIG_LOCAL_CACHE_DIR='$cache/zig'
exec '$tools/python/ziglang/zig' ar "\$@"
END
}

# A linker for a target, after c_compiler: zig's own, called once more by what zig called it with, and so that functions which
# are the same are there once, and no symbols; for x86, no tables for unwinding either, which assembly code and the C library
# have still. $1: the target.
small_linker() {
    tables=
    case $1 in
    x86*)
        tables="-T $cache/no-tables.ld"
        echo 'SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } } INSERT AFTER .text;' >"$cache/no-tables.ld"
        ;;
    esac
    wrapper "link-$1" <<END
#!/bin/sh
export ZIG_VERBOSE_LINK=1
said=\$('$cache/bin/cc-$1' "\$@" 2>&1) || { echo "\$said" >&2; exit 1; }
words=\$(echo "\$said" | sed -n 's/^ld\.lld //p' | tail -n 1)
[ -n "\$words" ] || { echo "\$said" >&2; echo "link-$1: zig does not say how it links" >&2; exit 1; }
# shellcheck disable=SC2086
exec '$tools/python/ziglang/zig' ld.lld \$words --icf=all --strip-all -z nosectionheader $tables
END
}

# The compilers, fetched if they are not there. Two runs at once wait for each other here; cargo has locks of its own.
prepare() {
    case $cache in *[[:space:]]*) fail "use $cache: its path has blanks; set XDG_CACHE_HOME" ;; esac
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    if have flock; then flock 9; fi
    cmp -s "$lock" "$tools/lock" || fetch
    for program in rustc cargo; do
        extra=
        [ $program = cargo ] || extra="--sysroot '$tools/usr'"
        wrapper $program <<END
#!/bin/sh
export LD_LIBRARY_PATH='$tools/usr/lib/x86_64-linux-gnu':\$LD_LIBRARY_PATH
exec '$tools/usr/bin/$program' $extra "\$@"
END
        "$cache/bin/$program" --version >/dev/null 2>"$cache/log" || fail "the unpacked $program does not run: \
$(head -n 1 "$cache/log"). On Debian: apt-get install libcurl4 libssh2-1 libsqlite3-0 has what it loads"
    done
    # Whatever is started from here on must not hold it.
    exec 9>&-
    RUSTC=$cache/bin/rustc
    CARGO=$cache/bin/cargo
    CARGO_TARGET_DIR=$cache/target
    # -Z build-std makes the standard library for targets that Debian has none for.
    RUSTC_BOOTSTRAP=1
    export RUSTC CARGO CARGO_TARGET_DIR RUSTC_BOOTSTRAP
    unset RUSTFLAGS RUSTUP_TOOLCHAIN
}
