#!/bin/sh
# Checks that ckptd compiles for Android's own targets (*-linux-android, with bionic), warnings denied: the gate that keeps
# what is special to Android true. Nothing is linked: that needs Google's NDK, which `cross build` (Cross.toml) brings.
#
#     android/check.sh [ABI]...      arm64-v8a, armeabi-v7a, x86_64, x86 [default: all]
#
# The same compilers as android/build.sh's are used; zig's C compiler, with musl's headers, stands in for the NDK's.
#
# Exit status: 0; 1 if one does not compile.

set -eu
cd "$(dirname "$0")/.."
. android/toolchain.sh

targets() {
    case $1 in
    arm64-v8a) rust_target=aarch64-linux-android zig_target=aarch64-linux-musl ;;
    armeabi-v7a) rust_target=armv7-linux-androideabi zig_target=arm-linux-musleabihf ;;
    x86_64) rust_target=x86_64-linux-android zig_target=x86_64-linux-musl ;;
    x86) rust_target=i686-linux-android zig_target=x86-linux-musl ;;
    *) fail "there is no ABI '$1'" ;;
    esac
}

check() {
    targets "$1"
    features=$(features "$1")
    c_compiler "$zig_target"
    name=$(echo "$rust_target" | tr - _)
    upper=$(echo "$name" | tr '[:lower:]' '[:upper:]')
    say "$1: cargo check --target $rust_target"
    # shellcheck disable=SC2086
    env "CC_$name=$cache/bin/cc-$zig_target" "AR_$name=$cache/bin/ar-$zig_target" \
        "CFLAGS_$name=-fPIC -fno-sanitize=undefined" "CARGO_TARGET_${upper}_RUSTFLAGS=-D warnings" \
        "$CARGO" check --locked -Z build-std=std,panic_abort --target "$rust_target" -p ckptd $features
}

[ $# -gt 0 ] || set -- arm64-v8a armeabi-v7a x86_64 x86
for abi; do targets "$abi"; done
prepare
failed=
for abi; do check "$abi" || failed="$failed $abi"; done
[ -z "$failed" ] || fail "these do not compile:$failed"
