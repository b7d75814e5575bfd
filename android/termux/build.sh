# Recipe of a Termux package, for the build system of termux-packages: copy this folder to packages/ckptd there, the
# sources to a tar archive (all below one folder) that TERMUX_PKG_SRCURL names, and run ./build-package.sh ckptd.
# shellcheck shell=bash disable=SC2034,SC2154
TERMUX_PKG_HOMEPAGE=https://example.invalid/ckptd
TERMUX_PKG_DESCRIPTION="Keeps MPI jobs running on machines that come and go"
TERMUX_PKG_LICENSE="MIT, Apache-2.0"
TERMUX_PKG_LICENSE_FILE="LICENSE-MIT, LICENSE-APACHE"
TERMUX_PKG_MAINTAINER="The ckptd authors"
TERMUX_PKG_VERSION=0.1.0
TERMUX_PKG_SRCURL=file:///home/builder/ckptd-${TERMUX_PKG_VERSION}.tar.gz
TERMUX_PKG_SHA256=SKIP_CHECKSUM
TERMUX_PKG_BUILD_IN_SRC=true
TERMUX_PKG_AUTO_UPDATE=false

termux_step_make() {
    termux_setup_rust
    # Bionic, linked dynamically, as all of Termux.
    cargo build --locked --jobs "$TERMUX_PKG_MAKE_PROCESSES" --target "$CARGO_TARGET_NAME" --profile phone -p ckptd
}

termux_step_make_install() {
    install -Dm700 -t "$TERMUX_PREFIX/bin" "target/$CARGO_TARGET_NAME/phone/ckptd"
}
