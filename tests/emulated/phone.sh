# shellcheck shell=bash
# The executable for phones in a sandbox like that of Android's apps, on an emulated machine; for tests/arm.

# Programs that have no need of what no app has (root, namespaces, sockets that are looked up by sock_diag, PR_SET_MM).
apps=(altstack anon busyfork busymemory busythreads deletedfile directory dontneed eventfd fifo fileoffset fileshared
    futex guard limits memfd pipe pipeend registers sharedanon sharedfile sigpending timerfd zombie)

# The executable, and a compiler that makes programs with the phones' kind of C library.
executable=target/android/arm64-v8a/ckptd
phone_compiler=${cache%/*}/android/bin/cc-aarch64-linux-musl

phone_is_built() {
    [[ -x $executable && -x $phone_compiler ]] && return
    skip "phone: no $executable: android/build.sh arm64-v8a makes it"
    return 1
}

# Jobs of an app. $1: the kernel; $2: Android's version.
phone() {
    local built=$cache/phone root
    phone_is_built || return 0
    kernel "$1" || return 0
    mkdir -p "$built"
    [[ -n ${CONFORMANCE:-} ]] || cargo build --locked --quiet -p ckptd-tests --bin conformance
    CC="$phone_compiler -static" "${CONFORMANCE:-target/debug/conformance}" --build "$built/programs" "${apps[@]}"
    root=$(mktemp -d)
    "$phone_compiler" -static -O2 -o "$built/sandbox" launcher/tests/sandbox/sandbox.c
    laid_out "$1" "$root" "$executable" "$built"/{sandbox,programs}
    { echo "ANDROID=$2" && cat tests/emulated/apps; } >"$root/work/run"
    packed "$root" "$cache/initrd.phone"
    emulated "$1" "$cache/initrd.phone" "$cache/log.phone.$2.$1" || failed+=("phone: Android $2, Linux $1")
}
