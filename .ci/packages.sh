# shellcheck shell=bash
# Sourced by try.sh and test.sh: installs required tools if possible.

# may_install: whether Debian's packages may be installed here.
may_install() {
    [ -z "${HKSIM_NO_APT:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

# has THING: whether a program, a shared library (lib*.so*) or Python's ensurepip is installed.
has() {
    case $1 in
        # Not grep -q: it ends early, ldconfig then fails to write, and with pipefail so does the pipe.
        lib*.so*) ldconfig -p 2>/dev/null | grep -F "$1 " >/dev/null ;;
        ensurepip) python3 -c 'import ensurepip' 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# announce THING:PACKAGE...: lists the packages that will be installed, and how to prevent that. On a terminal it waits
# for 10 s, so that the user can stop it.
announce() {
    local thing packages=
    for thing; do has "${thing%%:*}" || packages="$packages ${thing#*:}"; done
    [ -n "$packages" ] || return 0
    if may_install; then
        echo "installing Debian packages as root, with apt-get:$packages"
        echo "to install nothing: HKSIM_NO_APT=1 $0 (checks that need them are then skipped and listed)"
        if [ -t 1 ]; then echo "starting in 10 s; Ctrl-C stops"; sleep 10; fi
    else
        echo "installing nothing; these Debian packages are missing:$packages"
    fi
}

# install PACKAGE: tries to install a Debian package, if permitted.
install() {
    may_install || return 0
    [ -n "${packages_listed:-}" ] || apt-get update -qq >/dev/null 2>&1 || true
    packages_listed=yes
    echo "installing $1"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1" >/dev/null 2>&1 || true
}

# want THING PACKAGE: whether THING is installed, after an attempt to install PACKAGE.
want() {
    has "$1" && return
    install "$2"
    has "$1"
}

# need THING PACKAGE: like want, but ends the script if THING is missing.
need() {
    want "$1" "$2" && return
    echo "$1 is missing; install Debian's package $2, or its equivalent" >&2
    exit 1
}

# need_cargo: ends the script if cargo is missing. It is not installed from Debian 12, whose cargo is too old.
need_cargo() {
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null && return
    echo "cargo is missing; install Rust 1.88 or newer, see https://rustup.rs" >&2
    exit 1
}
