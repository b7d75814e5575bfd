#!/bin/bash
# GNU parallel with four jobs at a time, again and again until a file is there, for a second at least: all that they
# say must come in order, and be what it was the first time, before "started".
# usage: parallel.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$1
say() {
    seq 40 | parallel --will-cite -j4 --keep-order 'seq {}000 | sha256sum; sleep 0.0{}; echo {#} {}'
    seq 20000 | parallel --will-cite -j3 --keep-order --pipe --block 20k wc -l
}
compute() {
    local said
    said=$(say)
    printf -v "$1" %s "$said"
}
same() { [[ $found == "$right" ]]; }
compute right
(($(wc -l <<< "$right") > 80))
echo started
again parallel "$end"
