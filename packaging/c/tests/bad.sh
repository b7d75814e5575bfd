#!/bin/sh
# Runs a function, and spoils its results. SERVER runs those of bad.idl, HERE is a folder for files.
results=$2/results
server=$SERVER
[ "$1" != bad/unknown ] || exec "$server" bad/nobody "$2"
if [ "$1" = bad/unlike ]; then
    # Arguments of a function with others.
    printf x | dd of="$2/arguments" bs=1 seek=16 conv=notrunc 2> /dev/null
    exec "$server" "$1" "$2"
fi
"$server" "$1" "$2" || exit
case $1 in
    bad/empty) : > "$results" ;;
    bad/truncated) head -c -8 "$results" > "$results.cut" && mv "$results.cut" "$results" ;;
    bad/longer) head -c 8 /dev/zero >> "$results" ;;
    bad/garbage) head -c 500 /dev/zero > "$results" ;;
    bad/arguments) cp "$2/arguments" "$results" ;;
    bad/kept) cp "$results" "$HERE/kept" ;;
    bad/foreign) cp "$HERE/kept" "$results" ;;
    bad/other) printf x | dd of="$results" bs=1 seek=16 conv=notrunc 2> /dev/null ;;
    bad/folder) rm "$results" && mkdir "$results" ;;
    bad/gone) exit 127 ;;
esac
