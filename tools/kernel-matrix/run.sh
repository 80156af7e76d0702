#!/usr/bin/env bash
# Boots distribution kernels under software emulation, runs `hksim rules` on each, and writes docs/lab/kernel-matrix.md.
# Under emulation, counts are exact but times are meaningless. All files are kept in target/kernel-matrix.
#
#   tools/kernel-matrix/run.sh                    all kernels of the list
#   tools/kernel-matrix/run.sh 6.1 6.12           only these kernels; keeps the results of the others
#   HKSIM=path tools/kernel-matrix/run.sh 6.1     with an existing static hksim
#   RANDOM_SCRIPTS=2000 SEED=7 tools/kernel-matrix/run.sh      more or other random scripts, in all combinations of THP modes
#   KERNEL_SCRIPT=file tools/kernel-matrix/run.sh 6.1          one page-op script on that kernel; stores no result
#
# Needs qemu-system-x86_64, busybox (static), apt-get and dpkg-deb: Debian or a derivative.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/packages.sh

# The kernel versions with known rules. Each line: name in the matrix, package, suite.
kernels="
5.15 linux-image-unsigned-5.15.0-*-generic ubuntu/jammy-updates
6.1 linux-image-6.1.0-*-cloud-amd64 debian/bookworm
6.8 linux-image-unsigned-6.8.0-*-generic ubuntu/noble-updates
6.12 linux-image-6.12.*-cloud-amd64 debian/trixie
6.14 linux-image-unsigned-6.14.0-*-generic ubuntu/noble-updates
6.18 linux-image-6.18.*-cloud-amd64 debian/trixie-backports
"
scripts=${RANDOM_SCRIPTS:-700}
seed=${SEED:-1}
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
    package=$(private apt-cache pkgnames linux-image | matching "$2" | sort -V | tail -1)
    [ -n "$package" ] || { echo "no package $2 in $3" >&2; return 1; }
    mkdir -p "$work/kernels/$1"
    (cd "$work/kernels/$1" && private apt-get download "$package")
    local deb=("$work/kernels/$1"/*.deb)
    dpkg-deb --fsys-tarfile "${deb[0]}" | tar -x --wildcards --strip-components=2 -C "$work/kernels/$1" './boot/vmlinuz-*'
    basename "${deb[0]}" .deb >"$work/kernels/$1/package"
    mv "$work/kernels/$1"/vmlinuz-* "$work/kernels/$1/vmlinuz"
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

# The script that the emulated machine runs. Each part ends with a line that contains its status, so that missing output
# does not count as success.
job() {
    if [ -n "${KERNEL_SCRIPT:-}" ]; then
        echo 'hksim rules --set-modes --script /script'
        echo 'echo "end script $?"; cat /tmp/stderr'
        return
    fi
    cat <<JOB
# Scripts that create the maximum number of mappings take long under emulation.
echo 2000 >/proc/sys/vm/max_map_count
hksim rules --set-modes --format json
echo "end rules \$?"
hksim rules --set-modes --all-modes --random $scripts --seed $seed --format json
echo "end random \$?"
cat /tmp/stderr
echo "end all 0"
JOB
}

make_initramfs() {
    local root=$work/root
    rm -rf "$root"
    mkdir -p "$root/bin"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$HKSIM" "$root/bin/hksim"
    cp tools/kernel-matrix/init "$root/init"
    job >"$root/job"
    [ -z "${KERNEL_SCRIPT:-}" ] || cp "$KERNEL_SCRIPT" "$root/script"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initramfs.gz"
    rm -rf "$root"
}

# boot VERSION: runs the emulator until it exits, for at most $boot_seconds. The emulated processor lacks cmpxchg16b,
# because QEMU 7.2's emulation of it corrupts the allocator of newer kernels at boot.
boot() {
    step "boot of $1: $(cat "$work/kernels/$1/package")"
    local out=$work/results/$1.out console=$work/results/$1.console
    rm -f "$out" "$console"
    nice timeout "$boot_seconds" qemu-system-x86_64 -machine q35 -accel tcg -cpu qemu64,-cx16 -m 1G -smp 1 \
        -display none -no-reboot -nodefaults -net none -kernel "$work/kernels/$1/vmlinuz" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1" -serial "file:$console" -serial "file:$out" || {
        echo "$1: the emulator ended with $? (124: longer than $boot_seconds s); the kernel's last words:" >&2
        tail -5 "$console" >&2
        return 1
    }
}

wanted() { [ $# -le 1 ] || [[ " ${*:2} " == *" $1 "* ]]; }

# here PART ARGUMENT...: runs a part of the job on the kernel of this machine.
here() {
    local code=0
    "$HKSIM" rules --set-modes --format json "${@:2}" >>"$work/results/here.out" || code=$?
    echo "end $1 $code" >>"$work/results/here.out"
    return "$code"
}

want qemu-system-x86_64 qemu-system-x86 || { echo "skipped: no kernel is emulated: qemu-system-x86_64 is missing"; exit 0; }
want busybox busybox-static || { echo "skipped: no kernel is emulated: busybox is missing"; exit 0; }
command -v apt-get >/dev/null || { echo "skipped: no kernel is fetched: apt-get is missing"; exit 0; }
touch "$work/apt/status"
need_cargo
build
make_initramfs
failed=0
while read -r version pattern suite; do
    if [ -z "$version" ] || ! wanted "$version" "$@"; then continue; fi
    if ! fetch "$version" "$pattern" "$suite" || ! boot "$version"; then
        failed=1
    elif [ -n "${KERNEL_SCRIPT:-}" ]; then
        cat "$work/results/$version.out"
    else
        python3 tools/kernel-matrix/matrix.py add "$version" "$(cat "$work/kernels/$version/package")" \
            "$work/results/$version.out" || failed=1
    fi
done <<<"$kernels"
# The kernel of this machine: as root, and only on request, because the machine's THP modes change meanwhile.
if [[ " $* " == *" here "* ]] && [ -z "${KERNEL_SCRIPT:-}" ]; then
    step "this machine"
    : >"$work/results/here.out"
    here rules || failed=1
    here random --all-modes --random "$scripts" --seed "$seed" || failed=1
    echo "end all 0" >>"$work/results/here.out"
    python3 tools/kernel-matrix/matrix.py add here "$(uname -r)" "$work/results/here.out" || failed=1
fi
[ -n "${KERNEL_SCRIPT:-}" ] || python3 tools/kernel-matrix/matrix.py write
exit "$failed"
