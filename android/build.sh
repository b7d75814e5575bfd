#!/bin/sh
# Builds ckptd for Android phones: one static executable per ABI, which needs nothing of the phone but its kernel.
#
#     android/build.sh ABI...      arm64-v8a, armeabi-v7a, x86_64, x86, or all
#     android/build.sh --pin       takes the compilers' newest versions into android/toolchain.lock
#
# The executables are target/android/ABI/ckptd, and print their sizes. Compilers are fetched once (android/toolchain.sh);
# a build takes 5 to 15 minutes. musl is the C library: static executables of glibc are killed in the app sandbox.
#
# Exit status: 0; 1 if one could not be built, or is above its limit.

set -eu
cd "$(dirname "$0")/.."
. android/toolchain.sh

# In bytes. No phone with a processor of x86 has been made for years: those two are for emulators and Chromebooks, and their
# instructions are longer.
limit_arm=6000000
limit_x86=6500000
# A panic ends the process: nothing is ever unwound, and tables for that would be an eighth of the executable.
rust_flags='-C link-self-contained=no -C target-feature=+crt-static -C relocation-model=static -C force-unwind-tables=no'
# Of zstd's decoders one of each kind (its lib/README.md, ZSTD_LIB_MINIFY), of its compressors that of level 1, the only one that
# images and archives are written with, and none of them once more for newer processors.
c_flags='-fno-unwind-tables -fno-asynchronous-unwind-tables -DHUF_FORCE_DECOMPRESS_X1 -DZSTD_FORCE_DECOMPRESS_SEQUENCES_SHORT
-DDYNAMIC_BMI2=0'
for strategy in DFAST GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA; do
    c_flags="$c_flags -DZSTD_EXCLUDE_${strategy}_BLOCK_COMPRESSOR"
done

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "android/build.sh" >&2
    exit 2
}

# Instructions that come again and again become functions, as LLVM does by itself for 64-bit ARM where size counts.
outline='-C llvm-args=-enable-machine-outliner=always'

# For x86, all that makes it smaller: functions that differ in constants only become one. Only what gets smaller by that is
# put into its callers: at LLVM's own threshold for size, 5, what grows them a little is, too (at 25 the executable has 0.2 MB
# more). Nor is what has variables on the stack, whose callers need longer instructions for their own then (0.4 MB).
smallest="$outline -C llvm-args=-enable-global-merge-func -C llvm-args=-inline-threshold=-25
-C llvm-args=-inline-max-stacksize=0"

# What is left after outlining is outlined once more.
again='-C llvm-args=-machine-outliner-reruns=5'

# On x86 what is addressed by the stack's pointer takes a byte more than what is by the frame's.
frames='-C force-frame-pointers=yes'

# TLS that is small, not fast.
slower='--config profile.phone.package.ring.opt-level="z" --config profile.phone.package.blake3.opt-level="s"'

# Sets limit, rust_target, zig_target, own_flags (for rustc), settings (for cargo) and last_flags of an ABI: those of the last step, in
# which everything is optimised together.
targets() {
    last_flags='' own_flags='' settings='' limit=$limit_arm
    case $1 in
    arm64-v8a) rust_target=aarch64-unknown-linux-musl zig_target=aarch64-linux-musl ;;
    armeabi-v7a)
        rust_target=armv7-unknown-linux-musleabihf zig_target=arm-linux-musleabihf
        # Instructions of 2 bytes where there are such, as in all of Android's own code for this ABI.
        own_flags='-C target-feature=+thumb-mode'
        ;;
    x86_64)
        rust_target=x86_64-unknown-linux-musl zig_target=x86_64-linux-musl
        # All processors of this ABI have POPCNT and SSE4.2 (developer.android.com/ndk/guides/abis).
        own_flags="$frames -C target-cpu=x86-64-v2 -Z location-detail=none -Z fmt-debug=shallow" settings=$slower
        last_flags="$smallest $again" limit=$limit_x86
        ;;
    x86)
        rust_target=i686-unknown-linux-musl zig_target=x86-linux-musl own_flags=$frames
        last_flags="$smallest $again" limit=$limit_x86
        ;;
    *) say "there is no ABI '$1'"; usage ;;
    esac
}

build() {
    abi=$1
    targets "$abi"
    features=$(features "$abi")
    c_compiler "$zig_target"
    small_linker "$zig_target"
    name=$(echo "$rust_target" | tr - _)
    upper=$(echo "$name" | tr '[:lower:]' '[:upper:]')
    # The first link makes zig's own libraries, which takes minutes without a word.
    if [ ! -e "$cache/warm-$zig_target" ]; then
        say "$abi: making the C library"
        echo 'int main(void) { return 0; }' >"$cache/warm.c"
        "$cache/bin/cc-$zig_target" -static -lunwind -o "$cache/warm.out" "$cache/warm.c" ||
            { say "failed: $abi: zig cannot link"; return 1; }
        touch "$cache/warm-$zig_target"
    fi
    began=$(date +%s)
    say "$abi: cargo rustc --profile phone --target $rust_target"
    # shellcheck disable=SC2086
    env "CC_$name=$cache/bin/cc-$zig_target" "AR_$name=$cache/bin/ar-$zig_target" "CFLAGS_$name=$c_flags" \
        "CARGO_TARGET_${upper}_LINKER=$cache/bin/link-$zig_target" CARGO_PROFILE_PHONE_STRIP=none \
        "CARGO_TARGET_${upper}_RUSTFLAGS=$rust_flags $own_flags" \
        "$CARGO" rustc --locked -Z build-std=std,panic_abort -Z build-std-features=optimize_for_size \
        --profile phone --target "$rust_target" -p ckptd --bin ckptd $features $settings -- $last_flags || return 1
    mkdir -p "target/android/$abi"
    cp "$CARGO_TARGET_DIR/$rust_target/phone/ckptd" "target/android/$abi/ckptd.new"
    mv "target/android/$abi/ckptd.new" "target/android/$abi/ckptd"
    size=$(wc -c <"target/android/$abi/ckptd")
    echo "target/android/$abi/ckptd: $size bytes, built in $(($(date +%s) - began)) s"
    if [ "$size" -gt $limit ]; then
        say "failed: $abi: that is more than $limit bytes"
        return 1
    fi
}

[ $# -gt 0 ] || usage
case $1 in
--pin) mkdir -p "$cache" && pin && exit ;;
-*) usage ;;
all) set -- arm64-v8a armeabi-v7a x86_64 x86 ;;
esac
for abi; do targets "$abi"; done
prepare
failed=
for abi; do build "$abi" || failed="$failed $abi"; done
[ -z "$failed" ] || fail "not built:$failed"
