#!/bin/bash
# sort(1) of more than fits into the memory that it may use: what lies in its temporary files is closed most of the time, and
# removed as it merges. Lines go in until a file is there, for a second at least, and come out sorted, none missing.
# usage: sort.sh FILE
set -euo pipefail
end=$1
echo started
SECONDS=0
work() {
    local turn=0
    while ((SECONDS < 1)) || [[ ! -e $end ]]; do
        # Downwards, so that sorting is work. Each turn is longer than sort's memory.
        seq $((turn * 40000 + 40000)) -1 $((turn * 40000 + 1))
        turn=$((turn + 1))
        sleep 0.05
    done
}
# Few files at once, so that they are merged again and again, also while lines still come.
work | sort -n -S 200K --batch-size=4 | awk '
    $1 != NR { wrong++ }
    END { print (wrong || NR == 0 || NR % 40000) ? "sort: wrong: " NR " lines, " wrong + 0 " out of place" : "sort: right" }'
