# shellcheck shell=bash
# Sourced by try.sh and test.sh: makes sure of a tool, where that is possible.

# install PACKAGE: tries to install one of Debian's packages, as root; says nothing where it cannot.
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    [ -n "${packages_listed:-}" ] || apt-get update -qq >/dev/null 2>&1 || true
    packages_listed=yes
    echo "installing $1"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1" >/dev/null 2>&1 || true
}

# want TOOL PACKAGE: whether TOOL is there, after trying to install PACKAGE.
want() {
    command -v "$1" >/dev/null && return
    install "$2"
    command -v "$1" >/dev/null
}

# need TOOL PACKAGE: the same, and ends the script where TOOL cannot be had.
need() {
    want "$1" "$2" && return
    echo "$1 is missing; install Debian's package $2, or its equivalent" >&2
    exit 1
}

# need_cargo: Rust comes from rustup, not from Debian 12, whose cargo is too old.
need_cargo() {
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null && return
    echo "cargo is missing; install Rust 1.88 or newer, see https://rustup.rs" >&2
    exit 1
}
