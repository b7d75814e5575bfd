#!/bin/bash
# A pipeline of five commands, with a background job and a here-document; its sum is known.
# usage: pipeline.sh LINES
set -euo pipefail
lines=$1
echo started
sleep 0.5 &
background=$!
sum=$(seq "$lines" | while read -r n; do
    echo "$n"
    ((n % 20 != 0)) || sleep 0.05
done | sed 's/$/ x/' | sort -n | awk '{ s += $1 } END { print s }')
wait "$background"
[[ "$(cat <<< "$sum")" == $((lines * (lines + 1) / 2)) ]] || { echo "FAIL: sum is $sum" >&2; exit 1; }
echo "pipeline: right"
