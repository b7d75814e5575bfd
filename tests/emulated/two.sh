# shellcheck shell=bash
# Two emulated machines, with this one as their coordinator; for tests/arm. They are joined by a bridge in a network
# namespace of this run alone, and everything ends with its PID namespace.

# Has a job run on two machines, each with a kernel of its own, and switches the second one off in its middle. $1: the job,
# queens (ranks of our own over TCP), openmpi, or phones (those ranks by the executable for phones, in the sandbox of apps); $2, $3: kernels.
two_machines() {
    local job=$1 n root built=$cache/built/aarch64 programs=()
    if ((EUID != 0)) || [[ ! -c /dev/net/tun ]]; then
        skip "two machines: no root, or no /dev/net/tun"
        return
    fi
    for n in 2 3; do kernel "${!n}" || return 0; done
    case $job in
    queens)
        queens "$(cat "$built/compiler")" "$built"
        programs=("$built"/{ckptd,queens})
        ;;
    openmpi)
        open_mpi || return 0
        nqueens "$built"
        programs=("$built"/{ckptd,nqueens})
        ;;
    phones)
        phone_is_built || return 0
        built=$cache/phone
        mkdir -p "$built"
        queens "$phone_compiler" "$built"
        "$phone_compiler" -static -O2 -o "$built/sandbox" launcher/tests/sandbox/sandbox.c
        programs=("$executable" "$built"/{queens,sandbox})
        ;;
    esac
    for n in 1 2; do
        root=$(mktemp -d)
        [[ $job != openmpi ]] || cp -a "$cache/openmpi/root/." "$root/"
        laid_out "${@:n+1:1}" "$root" "${programs[@]}" tests/emulated/node
        mv "$root/work/node" "$root/work/run"
        packed "$root" "$cache/initrd.two.$n"
    done
    unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$PWD/tests/arm" --limit "$limit" --two-machines "$job" "$2" "$3" "$(coordinator)" || failed+=("two machines: $job")
    rm -f "$cache"/initrd.two.?
}

# N-Queens over TCP. $1: the compiler; $2: where to.
queens() { "$1" -static -O2 -w -o "$2/queens" tests/programs-cluster/queens.c 2>/dev/null; }

# N-Queens for Open MPI, linked with the very libraries of the machines. $1: where to.
nqueens() {
    local root=$cache/openmpi/root
    "$(cat "$1/compiler")" -O2 -I "$cache/openmpi/include" -o "$1/nqueens" tests/nqueens/nqueens.c -nodefaultlibs \
        "$root/usr/lib/aarch64-linux-gnu/libmpi.so.40" "$root/lib/aarch64-linux-gnu/libc.so.6" \
        "$root/lib/ld-linux-aarch64.so.1" -lgcc -Wl,--allow-shlib-undefined
}

# What the re-execution does. $1: the job; $2, $3: kernels; $4: the coordinator's ckptd.
inside_two_machines() {
    local job=$1 ckptd=$4 work n booted=$SECONDS
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    export CKPTD_DIR=$work/state HOME=$work
    ip link set lo up
    # An address of its own: or it takes another with each machine, which those before it would not know.
    ip link add bridge address 02:00:00:00:00:01 type bridge
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
        cat "$cache/initrd.two.$n" "$work/extra" >"$work/initrd.$n"
        ip tuntap add "node$n" mode tap
        ip link set "node$n" master bridge up
        (machine "${@:n+1:1}" "$work/initrd.$n" "NAME=node$n ADDRESS=10.107.0.1$n/24 JOB=$job" \
            -netdev "tap,id=n,ifname=node$n,script=no,downscript=no" \
            -device "virtio-net-device,netdev=n,mac=52:54:00:00:00:0$n") >"$work/console.$n" 2>&1 &
        machines[n]=$!
        # The shell is not to speak of the one that is switched off.
        disown
    done
    # The job runs, and has been checkpointed since all ranks began: then one machine is switched off.
    local told=
    { until_true "$limit" "started_$job" && until_true "$limit" committed 2; } || told="no checkpoint"
    local lost=$SECONDS
    if [[ -z $told ]]; then
        kill -9 "$(pgrep -P "${machines[2]}" || echo "${machines[2]}")"
        echo "$job: both machines (Linux $2 and $3) run after $((lost - booted)) s; node2 is switched off"
        until_true "$limit" ended || told="the job did not end"
    fi
    console | sed -n '/^== begin/,/^== status/p' | sed 's/^/node1: /'
    if [[ -z $told ]] && console | grep -q '^== status 0$' && console | grep -Eq "$(answer "$job")"; then
        echo "$job: right answer, status 0, after $((SECONDS - booted)) s, $((SECONDS - lost)) s after the loss"
        return
    fi
    echo "two machines: ${told:-wrong}"
    "$ckptd" status job || true
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
console() { tr -d '\r' <"$work/console.1"; }
started_queens() { grep -q '^queens: started' "$work/console.1"; }
started_phones() { started_queens; }
started_openmpi() { grep -q '^rank 3 of 4 on node2' "$work/console.1"; }
committed() { (($("$ckptd" status job --json | grep -oE '"pause_us": ?[0-9]+' | wc -l) >= $1)); }
ended() { grep -q '^== status' "$work/console.1"; }
answer() {
    case $1 in
    queens | phones) echo '^queens: 14 queens have 365596 solutions' ;;
    openmpi) echo '^N=12: 14200 solutions' ;;
    esac
}
