#!/bin/bash
# Quantum ESPRESSO's pw.x on two ranks of Open MPI: the energy and forces of silicon, again and again until a file is
# there, for a second at least. All that each run says, but dates and times, must be what the first one said, before
# "started", to the last digit.
# usage: quantumespresso.sh FILE
set -euo pipefail
source "$(dirname "$0")/again.sh"
end=$1
folder=$(mktemp -d)
cat > "$folder/silicon" << input
&control
    calculation = 'scf', prefix = 'silicon', outdir = '$folder/out', pseudo_dir = '/usr/share/espresso/pseudo'
    tprnfor = .true., tstress = .true., verbosity = 'high'
/
&system
    ibrav = 2, celldm(1) = 10.2, nat = 2, ntyp = 1, ecutwfc = 16
/
&electrons
    conv_thr = 1d-10
/
ATOMIC_SPECIES
Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
Si 0.00 0.00 0.00
Si 0.26 0.25 0.25
K_POINTS automatic
2 2 2 0 0 0
input
# Writes what pw.x says into a file.
compute() {
    mpirun.openmpi --oversubscribe -np 2 pw.x -in "$folder/silicon" |
        grep -vE 'Program PWSCF|terminated on|CPU|cpu time' > "$folder/$1"
}
same() { cmp -s "$folder/right" "$folder/found"; }
compute right
grep -q '^! *total energy' "$folder/right" && grep -q 'JOB DONE' "$folder/right"
echo started
again quantumespresso "$end"
rm -r "$folder"
