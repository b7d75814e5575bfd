#!/bin/bash
# vim within tmux: a line is typed after the other, until a file is there, for a second at least; a client stays with
# the server all the time. In the end all lines are in the file that vim writes.
# usage: tmux.sh FILE
set -euo pipefail
end=$1
folder=$(mktemp -d)
tell() { tmux -S "$folder/socket" -f /dev/null "$@"; }
tell new-session -d -x 80 -y 24 "vim -N -u NONE -n $folder/text"
# A client that hears of everything; it ends with the server.
mkfifo "$folder/commands"
tell -C attach < "$folder/commands" > "$folder/heard" &
exec 3> "$folder/commands"
until tell capture-pane -p | grep -q '^~'; do sleep 0.02; done
tell send-keys i
until tell capture-pane -p | grep -q -- '-- INSERT --'; do sleep 0.02; done
echo started
SECONDS=0
turn=0
while ((SECONDS < 1)) || [[ ! -e $end ]]; do
    tell send-keys -l "turn $turn"
    tell send-keys Enter
    turn=$((turn + 1))
    # What was typed is seen before more is: a terminal holds only so much.
    until tell capture-pane -p | grep -qx "turn $((turn - 1))"; do sleep 0.01; done
done
tell send-keys Escape
tell send-keys -l ':wq'
tell send-keys Enter
while tell list-sessions > /dev/null 2>&1; do sleep 0.02; done
wait
right() { for ((line = 0; line < turn; line++)); do echo "turn $line"; done; }
# The last line, after the last Enter, is empty.
if diff <(right; echo) "$folder/text"; then echo "tmux: right"; else echo "tmux: wrong"; fi
rm -r "$folder"
