# shellcheck shell=bash
# Emulated machines; for tests/arm. Wants $cache, $limit and left.

# Prepares what a machine begins with in a folder. $1: the kernel; $2: the folder; the rest goes to /work there.
laid_out() {
    local kernel=$1 root=$2
    shift 2
    mkdir -p "$root"/{bin,work,dev,modules}
    cp "$cache/busybox/busybox" "$root/bin/"
    cp "$cache/$kernel"/modules/*.ko "$root/modules/"
    cp -r "$@" "$root/work/"
    cp tests/emulated/init "$root/init"
    chmod +x "$root/init"
    # It becomes the machine's root, and is for its other users, too.
    chmod 755 "$root"
}

# Packs such a folder. $1: the folder, which is removed; $2: the file. Not compressed: an emulated processor is slow at
# making it large again.
packed() {
    (cd "$1" && find . | cpio -o -H newc --quiet) >"$2"
    rm -rf "$1"
}

# Starts a machine in the place of this shell. $1: the kernel; $2: what packed has made; $3: what comes with the kernel's
# command line; the rest: options.
machine() {
    local kernel=$1 initial=$2 words=$3
    shift 3
    exec timeout "$(left "$limit")" qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -smp 2 -m 2G -nographic -no-reboot \
        -kernel "$cache/$kernel/vmlinuz" -initrd "$initial" -append "console=ttyAMA0 panic=-1 quiet $words" "$@" </dev/null
}

# Time on a machine that speaks with no other one goes by the instructions that it has run, 2 ns for each, and over
# pauses at once: whatever else keeps this machine busy, no limit passes because of it.
own_time=(-icount 'shift=1,sleep=off')

# Runs a machine to its end. What it says between "== begin" and "== status" goes into a file and, but for the lines of
# what passed, here. $1: kernel; $2: what packed has made, which is removed; $3: the file. Gives the status it said.
emulated() {
    (machine "$1" "$2" '' -nic none "${own_time[@]}") 2>&1 | sed -u 's/\r//g' | tee "$3.console" |
        sed -u '0,/^== begin/{/^== begin/!d}' | tee "$3" | sed -u '/^pass /d; /^== status/d' || true
    rm -f "$2"
    local status
    status=$(sed -n 's/^== status //p' "$3" | tail -n 1)
    [[ -n $status ]] || tail -n 20 "$3.console"
    [[ $status == 0 ]]
}
