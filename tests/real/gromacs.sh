#!/bin/bash
# GROMACS with two ranks in threads: liquid argon, again and again until a file is there, for a second at least. Each
# run's trajectory, velocities and energies must be those of the first, before "started", to the last bit.
# usage: gromacs.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$PWD/$1
folder=$(mktemp -d)
cd "$folder"
awk 'BEGIN {
    print "argon"; print 1000
    for (atom = 0; atom < 1000; atom++)
        printf "%5d%-5s%5s%5d%8.3f%8.3f%8.3f\n", atom + 1, "AR", "AR", atom + 1,
            atom % 10 * 0.36, int(atom / 10) % 10 * 0.36, int(atom / 100) * 0.36
    print 3.6, 3.6, 3.6
}' > argon.gro
cat > argon.top << 'input'
[ defaults ]
1 2
[ atomtypes ]
AR 39.948 0.0 A 0.34 0.996
[ moleculetype ]
Argon 1
[ atoms ]
1 AR 1 AR AR 1 0.0 39.948
[ system ]
argon
[ molecules ]
Argon 1000
input
cat > argon.mdp << 'input'
integrator = md
dt = 0.002
nsteps = 200
nstxout = 20
nstvout = 20
nstenergy = 20
nstcalcenergy = 20
gen-vel = yes
gen-temp = 100
gen-seed = 7
tcoupl = v-rescale
ld-seed = 7
tc-grps = System
tau-t = 0.5
ref-t = 100
input
gmx -quiet grompp -f argon.mdp -c argon.gro -p argon.top -o argon.tpr > grompp 2>&1 || { cat grompp && false; }
# Runs it, with its results in files of this name.
compute() {
    rm -f "$1".*
    gmx -quiet -nobackup mdrun -s argon.tpr -ntmpi 2 -ntomp 1 -reprod -pin off -deffnm "$1" > mdrun 2>&1 || cat mdrun
}
same() {
    local results
    for results in trr edr gro; do
        cmp "right.$results" "found.$results" || return
    done
}
compute right
[[ -s right.trr && -s right.edr ]]
echo started
again gromacs "$end"
rm -r "$folder"
