#!/bin/bash
# A container with a root of its own: the system lies elsewhere in it, and this folder in /work. A program in it has files open and
# mapped until FILE is there; then nothing of them is to be different.
# usage: container.sh FILE
mkdir -p root/proc root/dev root/image root/work root/data root/writable data
for name in bin lib lib64 sbin usr; do
	ln -sfn "image/$name" "root/$name"
done
binds=(--bind root / --proc /proc --dev /dev --bind . /work --ro-bind data /data)
for name in bin lib lib64 sbin usr; do
	[ -e "/$name" ] && binds+=(--ro-bind "/$name" "/image/$name")
done
cp "$(dirname "$0")/container.py" data/container.py
printf 0123456789 > data/read
printf 'mapped file' > data/mapped
printf 'shared file' > data/shared
exec bwrap --unshare-user --unshare-uts --unshare-ipc "${binds[@]}" --bind data /writable --chdir /work \
	python3 /data/container.py "$1"
