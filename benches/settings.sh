# Sourced by scripts that need certain settings of the machine. As root, changes the settings, and restores them whichever
# way the script ends, even if it is killed. Sets $work to a temporary folder, which is removed at the end.

thp=/sys/kernel/mm/transparent_hugepage
pool=/proc/sys/vm/nr_hugepages
pool_pages=256

work=$(mktemp -d)
settings=$work/settings
: >"$settings"

# Only one process at a time may change settings. `hksim rules --set-modes` uses the same lock. All processes that this
# script starts inherit the lock; the guard process below keeps it until the end.
if [ -w "$thp/enabled" ] && exec 6</sys/kernel/mm; then
    flock -n 6 || {
        echo "waiting: another process changes this machine's settings" >&2
        flock 6
    }
fi

# The current value of a setting: the word in brackets, or the number.
current() { if grep -q '\[' "$1"; then sed 's/.*\[\(.*\)\].*/\1/' "$1"; else cat "$1"; fi; }

# change FILE VALUE: sets FILE to VALUE, and records the old value for the guard process. Does nothing without permission.
change() {
    [ -w "$1" ] || return 0
    echo "$1 $(current "$1")" >>"$settings"
    echo "$2" >"$1" || true
}

# Restores the recorded values, the most recent first.
restore() {
    tac "$settings" 2>/dev/null | while read -r file value; do echo "$value" >"$file" || true; done
    : >"$settings"
}

# The guard process restores the settings when this script ends in any way: it waits for end-of-file on a pipe that only
# this script keeps open.
exec 7> >(
    trap '' INT TERM HUP
    cat >/dev/null
    restore
    rm -rf "$work"
)
guard=$!
trap 'exec 7>&-; wait "$guard" || true' EXIT

settings_for() {
    case $1 in
    hugetlb*) change "$pool" "$pool_pages" ;;
    system) change "$thp/enabled" always ;;
    mthp-*)
        local size=${1#mthp-}
        case $size in *M) size=$((${size%M} * 1024)) ;; *K) size=${size%K} ;; esac
        change "$thp/hugepages-${size}kB/enabled" madvise
        change "$thp/hugepages-2048kB/enabled" never
        ;;
    esac
}
