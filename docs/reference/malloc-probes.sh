#!/bin/sh
# Puts probes on libc's allocator functions, for `perf record -e 'probe_libc:*'` and `hksim import`. As root; -d removes them.
libc=${1:-$(ldd /bin/sh | awk '/libc\.so/ { print $3 }')}
[ "$1" = -d ] && exec perf probe -q -d 'probe_libc:*'
while read -r function arguments; do
    perf probe -q -x "$libc" "$function $arguments" || exit 1
    [ "${function%%=*}" = free ] || perf probe -q -x "$libc" "$function%return result=\$retval" || exit 1
done <<PROBES
malloc size=%di:u64
calloc=__libc_calloc count=%di:u64 size=%si:u64
realloc=__libc_realloc block=%di:x64 size=%si:u64
reallocarray block=%di:x64 count=%si:u64 size=%dx:u64
posix_memalign to=%di:x64 align=%si:u64 size=%dx:u64
aligned_alloc align=%di:u64 size=%si:u64
memalign align=%di:u64 size=%si:u64
valloc size=%di:u64
pvalloc size=%di:u64
free block=%di:x64
PROBES
