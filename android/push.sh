#!/bin/sh
# Puts ckptd on a phone over adb, joins the phone to a cluster, starts its agent, and prints what 'ckptd doctor' found.
#
#     android/push.sh [OPTION]... TOKEN [-- OPTION OF CKPTD AGENT...]
#
#     TOKEN            what 'ckptd token' printed; -: it is read from standard input, where no other user of this machine sees it
#     --serial ID      which phone, as 'adb devices' names it [default: the only one]
#     --name NAME      its name in the cluster [default: its model and the end of its serial number]
#     --termux         into Termux, as its user, not into the folder of adb's shell
#     --root           as root, by su
#     --folder DIR     where on the phone [default: /data/local/tmp/ckptd, in Termux its home folder's ckptd]
#     --program FILE   the executable [default: target/android/ABI/ckptd, which android/build.sh makes]
#
# An agent that runs there already is told to end first: it announces its departure, and its jobs move away.
# The agent ends with a reboot of the phone: call this again, with the same token, which may be used up by then.
#
# Exit status: 0 when the agent is a member of the cluster; 1 with one line on what failed.

set -eu
cd "$(dirname "$0")/.."

say() { echo "push.sh: $*" >&2; }
fail() { say "failed: $*"; exit 1; }
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' android/push.sh >&2; exit 2; }

# As one word of the phone's shell.
quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

serial='' name='' way=shell folder='' program='' token=''
while [ $# -gt 0 ]; do
    case $1 in
    --serial | --name | --folder | --program)
        [ $# -ge 2 ] || usage
        option=${1#--} value=$2
        case $option in serial) serial=$value ;; name) name=$value ;; folder) folder=$value ;; *) program=$value ;; esac
        shift
        ;;
    --termux) way=termux ;;
    --root) way=root ;;
    --) break ;;
    -?*) usage ;;
    *) [ -z "$token" ] || usage; token=$1 ;;
    esac
    shift
done
[ -n "$token" ] || usage
[ "${1:-}" != -- ] || shift
[ "$token" != - ] || IFS= read -r token || fail "read the token from standard input: it has ended"
case $token in *[!A-Za-z0-9._=-]*) fail "use the token: it has characters that no token has" ;; esac
case $folder in *[!A-Za-z0-9._/-]*) fail "use the folder $folder: letters, digits, '.', '_', '-' and '/' only" ;; esac

command -v adb >/dev/null 2>&1 || fail "run adb: it is not installed; on Debian: apt-get install adb"
phone_reads() { adb ${serial:+-s "$serial"} "$@"; }
phone() { phone_reads "$@" </dev/null; }

# Runs a line of shell on the phone, as the user that the agent will have; the second form gives it our standard input.
on_phone() { on_phone_reading "$1" </dev/null; }
on_phone_reading() {
    case $way in
    shell) phone_reads shell "$1" ;;
    root) phone_reads shell "su -c $(quoted "$1")" ;;
    termux) phone_reads shell "run-as com.termux sh -c $(quoted "$1")" ;;
    esac
}

state=$(phone get-state 2>&1) || fail "reach the phone: $state; switch on USB debugging, allow this machine on the \
phone's screen, and see 'adb devices'"
abi=$(phone shell getprop ro.product.cpu.abi | tr -d '\r')
case $abi in
arm64-v8a | armeabi-v7a | x86_64 | x86) ;;
*) fail "find the phone's ABI: getprop says '$abi'" ;;
esac
[ -n "$program" ] || program=target/android/$abi/ckptd
[ -f "$program" ] || fail "find $program: build it with android/build.sh $abi"
if [ -z "$name" ]; then
    number=$(phone get-serialno | tr -d '\r')
    model=$(phone shell getprop ro.product.model | tr -d '\r')
    name=$(printf '%s-%s' "$model" "$(printf '%s' "$number" | tail -c 4)" | tr '[:upper:]' '[:lower:]' |
        sed 's/[^a-z0-9]\{1,\}/-/g; s/^-*//; s/-*$//' | cut -c 1-63)
fi
if [ $way = termux ]; then
    on_phone true >/dev/null 2>&1 || fail "become Termux's user: run-as works with debuggable builds of Termux only; \
in Termux itself: pkg install the package of android/termux, then ckptd agent --join-file FILE"
    : "${folder:=/data/data/com.termux/files/home/ckptd}"
else
    : "${folder:=/data/local/tmp/ckptd}"
fi

# adb's shell writes below /data/local/tmp only, and everybody may read what it leaves there.
passing=/data/local/tmp/ckptd-new
say "$name ($abi, Android $(phone shell getprop ro.build.version.release | tr -d '\r')): $program to $folder"
phone push "$program" "$passing" >/dev/null || fail "copy $program to the phone"
phone shell "chmod 755 $passing" || fail "make $passing executable"
# A program that runs can be replaced, not written.
on_phone "mkdir -p $folder/state && chmod 700 $folder/state && cp $passing $folder/ckptd.new && \
chmod 755 $folder/ckptd.new && mv $folder/ckptd.new $folder/ckptd" || fail "install ckptd in $folder"
phone shell "rm -f $passing" || true

say "what the phone can do:"
# Its exit status tells whether jobs can run there, which is no reason not to join: images are kept there, too.
on_phone "$folder/ckptd doctor --dir $folder/state" | tr -d '\r' || true

# The agent's process is known by the file that it is executed from: numbers are used again.
running="cat $folder/agent.pid 2>/dev/null | { read -r pid && [ -d /proc/\$pid ] && \
grep -q '^$folder/ckptd' /proc/\$pid/cmdline && echo \$pid; }"
old=$(on_phone "$running" | tr -d '\r') || true
if [ -n "$old" ]; then
    say "the agent that runs there is told to leave"
    on_phone "kill $old" || true
    on_phone "i=0; while [ -d /proc/$old ] && [ \$i -lt 60 ]; do sleep 1; i=\$((i + 1)); done; [ ! -d /proc/$old ]" ||
        fail "end the agent that runs there (process $old): its jobs can't go elsewhere yet; see 'ckptd nodes'"
fi

# Every process of the phone may read command lines, so it goes by standard input, of which not all versions of adb tell the end.
join=$folder/state/join
forget() { on_phone "rm -f $join" >/dev/null 2>&1 || true; }
trap forget EXIT
trap 'exit 1' HUP INT TERM
printf '%s\n' "$token" | on_phone_reading "umask 077 && rm -f $join && head -n 1 >$join" || fail "hand the token over"

words="$folder/ckptd agent --dir $folder/state --name $(quoted "$name") --join-file $join"
# The phone's user is nobody who has jobs: without this it would run none.
[ "$way" = root ] || words="$words --shared"
for word; do words="$words $(quoted "$word")"; done
# adb's connection must not keep it, nor end it.
on_phone "cd $folder && HOME=$folder setsid sh -c 'echo \$\$ >$folder/agent.pid; exec \"\$@\"' agent $words \
>$folder/agent.log 2>&1 </dev/null &" || fail "start the agent"

tries=0
while [ $tries -lt 30 ]; do
    if on_phone "$folder/ckptd nodes --dir $folder/state" >/dev/null 2>&1; then
        say "$name is a member; its agent writes to $folder/agent.log"
        exit 0
    fi
    tries=$((tries + 1))
    if [ $tries -gt 3 ] && [ -z "$(on_phone "$running" | tr -d '\r')" ]; then break; fi
    sleep 1
done
say "the agent's last words:"
on_phone "tail -n 5 $folder/agent.log" | tr -d '\r' >&2 || true
fail "join $name to the cluster"
