# shellcheck shell=bash
# What runs on an emulated machine, out of Debian's packages; for tests/arm. Wants $cache and skip.

# Packages of arm64, unpacked into $cache/NAME once. $1: NAME; $2: a function that moves what is kept of them from one
# folder to another; $3: a release beside those that apt is set up with, or nothing; the rest: packages. With
# a "*" in its name: the newest of a series. After "--complete": with everything that they depend on.
unpacked() {
    local name=$1 keep=$2 release=$3 work recipe
    shift 3
    # What was made in another way is made again.
    recipe=$(declare -f "$keep" && echo "${modules[*]} $release $*")
    [[ $(cat "$cache/$name/.complete" 2>/dev/null) == "$recipe" ]] && return
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root" "$work/kept"
    local apt=(-q -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o "Dir::State::Lists=$work/lists"
        -o "Dir::Cache=$work/cache" -o "APT::Architectures::=$(dpkg --print-architecture)" -o APT::Architectures::=arm64
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    if [[ -n $release ]]; then
        local place
        # shellcheck disable=SC2016
        place=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
            sed -n "s/ ${release%-backports}\$//p" | head -n 1)
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $place $release main" >"$work/sources.list"
        apt+=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null)
    fi
    {
        # One broken source among many is no reason to give up: the downloads will tell.
        apt-get "${apt[@]}" update || true
        local packages=() complete=() package
        while (($# > 0)); do
            package=$1
            shift
            case $package in
            --complete)
                complete=("$@")
                break
                ;;
            *'*'*)
                package=${package//./\\.}
                package=$(apt-cache "${apt[@]}" search --names-only "^${package//'*'/[0-9.]+[-+][0-9a-z.]+}\$" |
                    cut -d' ' -f1 | sort -V | tail -n 1)
                ;;
            esac
            packages+=("$package")
        done
        ((${#packages[@]} == 0)) || (cd "$work/debs" && apt-get "${apt[@]}" download "${packages[@]}")
        # As on a machine of that architecture that has nothing installed.
        ((${#complete[@]} == 0)) || {
            apt-get "${apt[@]}" -o APT::Architecture=arm64 -o Dir::State::status=/dev/null \
                install --download-only --yes --no-install-recommends "${complete[@]}" &&
                mv "$work"/cache/archives/*.deb "$work/debs/"
        }
    } >"$work/log" 2>&1 || {
        skip "cannot download $name: $(tail -n 1 "$work/log")"
        rm -rf "$work"
        return 1
    }
    local deb
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
    "$keep" "$work/root" "$work/kept"
    echo "$recipe" >"$work/kept/.complete"
    rm -rf "${cache:?}/$name"
    mv "$work/kept" "$cache/$name"
    rm -rf "$work"
}

# What the engine asks about sockets, and the network card.
modules=(inet_diag tcp_diag udp_diag unix_diag netlink_diag
    virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_mmio failover net_failover virtio_net)

kernel_and_modules() {
    mkdir "$2/modules"
    mv "$1"/boot/vmlinuz-* "$2/vmlinuz"
    local module
    for module in "${modules[@]}"; do
        find "$1" -name "$module.ko*" -exec mv {} "$2/modules/" \;
    done
    xz -d "$2"/modules/*.xz 2>/dev/null || true
}

only_busybox() { mv "$1"/*bin/busybox "$2/" 2>/dev/null || mv "$1"/usr/bin/busybox "$2/"; }

# Fetches a kernel. $1: which.
kernel() {
    unpacked busybox only_busybox '' busybox-static:arm64 || return
    case $1 in
    6.1) unpacked "$1" kernel_and_modules '' 'linux-image-6.1.*-cloud-arm64-unsigned' ;;
    6.12) unpacked "$1" kernel_and_modules bookworm-backports 'linux-image-6.12.*-cloud-arm64-unsigned' ;;
    6.12-16k) unpacked "$1" kernel_and_modules bookworm-backports 'linux-image-6.12.*-arm64-16k-unsigned' ;;
    *) echo "arm: no kernel $1: 6.1, 6.12 or 6.12-16k" >&2 && exit 2 ;;
    esac
}

# The size of a kernel's pages.
page_size() { if [[ $1 == *16k ]]; then echo 16384; else echo 4096; fi; }

# Open MPI as it lies in a machine's root, without what no job of ours uses.
runnable_open_mpi() {
    local name
    mkdir -p "$2/root/usr/bin" "$2/root/usr/share" "$2/root/etc"
    for name in orterun orted; do mv "$1/usr/bin/$name" "$2/root/usr/bin/"; done
    ln -s orterun "$2/root/usr/bin/mpirun"
    rm -rf "$1"/usr/lib/aarch64-linux-gnu/{hwloc,gconv,libicu*,fortran}
    mv "$1/usr/lib/aarch64-linux-gnu/openmpi/include" "$2/"
    find "$1" '(' -name '*.a' -o -name 'libmpi_*' -o -name '*.jar' ')' -delete
    mv "$1/lib" "$2/root/"
    mv "$1/usr/lib" "$2/root/usr/"
    mv "$1/usr/share/openmpi" "$2/root/usr/share/"
    mv "$1/etc/openmpi" "$2/root/etc/"
}

# Fetches Open MPI: $cache/openmpi has root, what a machine needs of it, and include.
open_mpi() { unpacked openmpi runnable_open_mpi '' libopenmpi-dev:arm64 --complete openmpi-bin; }
