#!/bin/bash
# `make -j3` of a program of many files, again and again until a file is there, for a second at least: each object must
# be that of the first time, before "started", and the program must compute the same.
# usage: make.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$PWD/$1
folder=$(mktemp -d)
cd "$folder"
for number in {1..12}; do
    echo "int part$number(int from) { for (int i = 0; i < $number; i++) from = from * 31 + i; return from; }" > "part$number.c"
done
{
    echo '#include <stdio.h>'
    printf 'int part%d(int);\n' {1..12}
    echo 'int main(void) { unsigned sum = 0;'
    printf 'sum += (unsigned)part%d(1);\n' {1..12}
    echo 'printf("%u\n", sum); }'
} > main.c
cat > Makefile << 'rules'
objects = $(patsubst %.c,%.o,$(wildcard *.c))
# The jobs of a make below share the first one's.
all:
	+$(MAKE) program
program: $(objects)
	$(CC) -o $@ $^
%.o: %.c
	$(CC) -O2 -c -o $@ $<
rules
# Builds it, and writes what it computes and a hash of each object into a file.
compute() {
    rm -f program ./*.o
    make -j3 > log
    { ./program && sha256sum ./*.o; } > "$1"
}
same() { cmp right found; }
compute right
(($(wc -l < right) == 14))
echo started
again make "$end"
rm -r "$folder"
