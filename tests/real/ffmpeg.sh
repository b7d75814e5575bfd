#!/bin/bash
# ffmpeg: moving pictures and sound are made, compressed on several threads, and taken apart again by another ffmpeg at
# the other end of a pipe, again and again until a file is there, for a second at least. The hashes of all pictures
# must be those of the first time, before "started".
# usage: ffmpeg.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$1
folder=$(mktemp -d)
# Writes a hash of each picture and each piece of sound into a file.
compute() {
    ffmpeg -nostdin -loglevel error \
        -f lavfi -i testsrc2=size=320x240:rate=25:duration=4 -f lavfi -i sine=frequency=440:duration=4 \
        -c:v mpeg4 -threads 3 -q:v 4 -c:a pcm_s16le -flags +bitexact -fflags +bitexact -f nut - |
        ffmpeg -nostdin -loglevel error -threads 2 -i - -map 0 -flags +bitexact -f framemd5 - > "$folder/$1"
}
same() { cmp "$folder/right" "$folder/found"; }
compute right
(($(wc -l < "$folder/right") > 150))
echo started
again ffmpeg "$end"
rm -r "$folder"
