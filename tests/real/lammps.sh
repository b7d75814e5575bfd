#!/bin/bash
# A melt of LAMMPS on two ranks of Open MPI, again and again until a file is there, for a second at least. What each
# run says about temperature, energy and pressure, and where its atoms come to be, must be that of the first, before
# "started", to the last digit.
# usage: lammps.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$1
folder=$(mktemp -d)
# Atoms leave their crystal; neighbours are found anew, and atoms pass from rank to rank.
cat > "$folder/melt" << 'input'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo_modify format float %.17g
thermo 10
run 250
write_dump all custom atoms id x y z vx vy vz modify sort id format float %.17g
input
# Writes what the run says each 10 steps, and its atoms' places and velocities, into a file.
compute() {
    (cd "$folder" && mpirun.openmpi --oversubscribe -np 2 lmp -in melt -log log > out)
    { sed -n '/^Step /,/^Loop time/ { /^Loop time/! p }' "$folder/log" && cat "$folder/atoms"; } > "$folder/$1"
}
same() { cmp -s "$folder/right" "$folder/found"; }
compute right
# As many lines as there are steps that are told, and atoms.
(($(wc -l < "$folder/right") > 25 + 864))
echo started
again lammps "$end"
rm -r "$folder"
