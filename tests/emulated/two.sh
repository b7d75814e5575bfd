# shellcheck shell=bash
# Two emulated machines, with this one as their coordinator; for tests/arm. They are joined by a bridge in a network
# namespace of this run alone, and everything ends with its PID namespace.

# Re-executes tests/arm where bridge and machines are this run's own. $1: the kernel; $2: the coordinator's ckptd.
two_machines() {
    if ((EUID != 0)) || [[ ! -c /dev/net/tun ]]; then
        skip "two machines: no root, or no /dev/net/tun"
        return
    fi
    local root
    root=$(mktemp -d)
    "$(cat "$cache/built/aarch64/compiler")" -static -O2 -w -o "$cache/built/aarch64/queens" \
        tests/programs-cluster/queens.c 2>/dev/null
    laid_out "$1" "$root" "$cache/built/aarch64"/{ckptd,queens} tests/emulated/node
    mv "$root/work/node" "$root/work/run"
    packed "$root" "$cache/initrd.two"
    unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$PWD/tests/arm" --limit "$limit" --two-machines "$1" "$2" || failed+=("two machines")
    rm -f "$cache/initrd.two"
}

# What the re-execution does.
inside_two_machines() {
    local kernel=$1 ckptd=$2 work n booted=$SECONDS
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    export CKPTD_DIR=$work/state HOME=$work
    ip link set lo up
    ip link add bridge type bridge
    ip address add 10.107.0.1/24 dev bridge
    ip link set bridge up
    # Who is emulated on a busy machine is slow to answer.
    "$ckptd" coordinator --listen 10.107.0.1:7070 --grace 20 >"$work/coordinator" 2>&1 &
    until_true 60 "$ckptd" nodes || { cat "$work/coordinator"; return 1; }
    "$ckptd" token --uses 2 >"$work/token"
    local machines=()
    for n in 1 2; do
        mkdir -p "$work/node$n/work"
        cp "$work/token" "$work/node$n/work/"
        packed "$work/node$n" "$work/extra"
        cat "$cache/initrd.two" "$work/extra" >"$work/initrd.$n"
        ip tuntap add "node$n" mode tap
        ip link set "node$n" master bridge up
        (machine "$kernel" "$work/initrd.$n" "NAME=node$n ADDRESS=10.107.0.1$n/24" \
            -netdev "tap,id=n,ifname=node$n,script=no,downscript=no" \
            -device "virtio-net-device,netdev=n,mac=52:54:00:00:00:0$n") >"$work/console.$n" 2>&1 &
        machines[n]=$!
        # The shell is not to speak of the one that is switched off.
        disown
    done
    # The job runs, and has been checkpointed since both ranks began: then one is switched off.
    local told=
    { until_true "$limit" started && until_true "$limit" committed 2; } || told="no checkpoint"
    local lost=$SECONDS
    if [[ -z $told ]]; then
        kill -9 "$(pgrep -P "${machines[2]}" || echo "${machines[2]}")"
        echo "both machines run after $((lost - booted)) s; node2 is switched off"
        until_true "$limit" ended || told="the job did not end"
    fi
    tr -d '\r' <"$work/console.1" | sed -n '/^== begin/,/^== status/p' | sed 's/^/node1: /'
    if [[ -z $told ]] && answered; then
        echo "right answer, status 0, after $((SECONDS - booted)) s, $((SECONDS - lost)) s after the loss"
        return
    fi
    echo "two machines: ${told:-wrong}"
    "$ckptd" status queens || true
    "$ckptd" nodes || true
    tail -n 30 "$work/console.1" "$work/console.2" "$work/coordinator"
    return 1
}

# Waits until a command succeeds. $1: seconds; the rest: the command.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.2
    done
}
started() { grep -q '^queens: started' "$work/console.1"; }
committed() { (($("$ckptd" status queens --json | grep -oE '"pause_us": ?[0-9]+' | wc -l) >= $1)); }
ended() { grep -q '^== status' "$work/console.1"; }
answered() {
    local text
    text=$(tr -d '\r' <"$work/console.1")
    grep -q '^queens: 14 queens have 365596 solutions' <<<"$text" && grep -q '^== status 0$' <<<"$text"
}
