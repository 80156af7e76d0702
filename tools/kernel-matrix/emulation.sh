# shellcheck shell=bash
# Sourced by run.sh, memory.sh and limits.sh: fetches distribution kernels, builds a static hksim, and boots the kernels under
# software emulation. All files are kept in target/kernel-matrix. The working directory is the top of the repository.
. .ci/packages.sh

# The kernel versions with known rules. Each line: name in the matrix, package, suite.
kernels="
5.15 linux-image-unsigned-5.15.0-*-generic ubuntu/jammy-updates
6.1 linux-image-6.1.0-*-cloud-amd64 debian/bookworm
6.8 linux-image-unsigned-6.8.0-*-generic ubuntu/noble-updates
6.12 linux-image-6.12.*-cloud-amd64 debian/trixie
6.14 linux-image-unsigned-6.14.0-*-generic ubuntu/noble-updates
6.18 linux-image-6.18.*-cloud-amd64 debian/trixie-backports
7.2 linux-binary-7.2.*-cloud-amd64 debian/sid
"
boot_seconds=${BOOT_SECONDS:-1500}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/kernel-matrix
mkdir -p "$work/apt/lists/partial" "$work/cache/archives/partial" "$work/kernels" "$work/results"

step() { printf '\n==> %s\n' "$*"; }

# private TOOL ARGUMENT...: runs an apt tool with separate lists and a separate cache, so that those of the machine are
# not changed.
private() {
    local tool=$1
    shift
    "$tool" -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/cache" \
        -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# sources SUITE...: writes apt's list of sources, each with its signing keys.
sources() {
    local suite keys
    : >"$work/apt/sources.list"
    for suite in "$@"; do
        case $suite in
        debian/*) keys=/usr/share/keyrings/debian-archive-keyring.gpg site=http://deb.debian.org/debian ;;
        ubuntu/*) keys=$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg site=http://archive.ubuntu.com/ubuntu ;;
        esac
        echo "deb [arch=amd64 signed-by=$keys] $site ${suite#*/} main" >>"$work/apt/sources.list"
    done
    private apt-get update
}

# Ubuntu's keys come from a Debian package, so Debian's keys suffice.
fetch_keys() {
    [ -d "$work/keys" ] && return
    sources debian/trixie
    (cd "$work" && private apt-get download ubuntu-keyring)
    dpkg-deb -x "$work"/ubuntu-keyring_*.deb "$work/keys"
    rm -f "$work"/ubuntu-keyring_*.deb
}

# fetch VERSION PATTERN SUITE: fetches the kernel image of the newest matching package, unless one exists.
fetch() {
    local package
    [ -e "$work/kernels/$1/vmlinuz" ] && return
    step "kernel $1"
    case $3 in ubuntu/*) fetch_keys ;; esac
    sources "$3"
    # apt's patterns differ from the shell's, so the names are matched here.
    package=$(private apt-cache pkgnames linux- | matching "$2" | sort -V | tail -1)
    [ -n "$package" ] || { echo "no package $2 in $3" >&2; return 1; }
    mkdir -p "$work/kernels/$1"
    (cd "$work/kernels/$1" && private apt-get download "$package")
    local deb=("$work/kernels/$1"/*.deb)
    dpkg-deb --fsys-tarfile "${deb[0]}" | tar -x --wildcards --transform='s|.*/||' -C "$work/kernels/$1" '*/vmlinuz*'
    basename "${deb[0]}" .deb >"$work/kernels/$1/package"
    # In /boot; from 7.2 on in /usr/lib/modules, with its final name.
    [ -e "$work/kernels/$1/vmlinuz" ] || mv "$work/kernels/$1"/vmlinuz-* "$work/kernels/$1/vmlinuz"
    rm -f "${deb[0]}"
}

matching() {
    local name
    # shellcheck disable=SC2053 # $1 is a pattern
    while read -r name; do if [[ $name == $1 ]]; then echo "$name"; fi; done
}

# Builds hksim statically linked with glibc. Little optimisation suffices, because the emulated kernel takes most of the
# time.
build() {
    [ -z "${HKSIM:-}" ] || return 0
    step "static hksim"
    CARGO_TARGET_DIR=$work/build CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=true \
        RUSTFLAGS="-C target-feature=+crt-static" nice cargo build --release --quiet --locked -p hksim \
        --no-default-features --target x86_64-unknown-linux-gnu
    HKSIM=$work/build/x86_64-unknown-linux-gnu/release/hksim
}

# make_initramfs JOB [FOLDER]: the emulated machine's files: busybox, hksim, the script JOB, and the files of FOLDER in
# /files.
make_initramfs() {
    local root=$work/root
    rm -rf "$root"
    mkdir -p "$root/bin" "$root/files"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$HKSIM" "$root/bin/hksim"
    cp tools/kernel-matrix/init "$root/init"
    cp "$1" "$root/job"
    [ -z "${2:-}" ] || cp -r "$2/." "$root/files"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initramfs.gz"
    rm -rf "$root"
}

# boot VERSION [NAME]: runs the emulator until it exits, for at most $boot_seconds. The job's output goes to
# results/NAME.out; NAME is the version if not given. The emulated processor lacks cmpxchg16b, because QEMU 7.2's
# emulation of it corrupts the allocator of newer kernels at boot.
boot() {
    step "boot of $1: $(cat "$work/kernels/$1/package")"
    local out=$work/results/${2:-$1}.out console=$work/results/${2:-$1}.console
    rm -f "$out" "$console"
    nice timeout "$boot_seconds" qemu-system-x86_64 -machine q35 -accel tcg -cpu qemu64,-cx16 -m 1G -smp "${processors:-1}" \
        -display none -no-reboot -nodefaults -net none -kernel "$work/kernels/$1/vmlinuz" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1" -serial "file:$console" -serial "file:$out" || {
        echo "$1: the emulator ended with $? (124: longer than $boot_seconds s); the kernel's last words:" >&2
        tail -5 "$console" >&2
        return 1
    }
}

wanted() { [ $# -le 1 ] || [[ " ${*:2} " == *" $1 "* ]]; }

# need_emulator: ends the script with success, and the reason, if no kernel can be emulated.
need_emulator() {
    want qemu-system-x86_64 qemu-system-x86 || { echo "skipped: no kernel is emulated: qemu-system-x86_64 is missing"; exit 0; }
    want busybox busybox-static || { echo "skipped: no kernel is emulated: busybox is missing"; exit 0; }
    command -v apt-get >/dev/null || { echo "skipped: no kernel is fetched: apt-get is missing"; exit 0; }
    touch "$work/apt/status"
    need_cargo
}
