#!/bin/bash
# Builds server.go and runs it until a file is there.
# usage: go.sh FILE
set -euo pipefail
folder=$(mktemp -d)
source=$(dirname "$0")/server.go
GOCACHE=$folder/cache GOPATH=$folder/path CGO_ENABLED=0 go build -o "$folder/server" "$source"
rm -rf "$folder/cache"
"$folder/server" "$1"
rm -r "$folder"
