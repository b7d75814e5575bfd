# For the scripts of this folder that compute the same again and again. Each defines two functions: `compute`, which is
# given the name of its results, and `same`, whether those named `found` are those named `right`.

# Computes until a file is there, for a second at least, and says whether all was right.
# usage: again NAME FILE
again() {
    local name=$1 end=$2 wrong=0
    SECONDS=0
    while ((SECONDS < 1)) || [[ ! -e $end ]]; do
        # By itself: a failure ends the script.
        compute found
        same || wrong=$((wrong + 1))
    done
    if ((wrong)); then echo "$name: wrong $wrong times"; else echo "$name: right"; fi
}
