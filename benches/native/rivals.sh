#!/bin/sh
# Builds the newest versions of other allocators as shared objects to preload, from the C sources in their crates, with the
# same compiler and -O3. Prints the arguments for benches/native.py. None of this code becomes part of the repository.
#
#   benches/native/rivals.sh FOLDER
#   benches/native.py $(cat FOLDER/libraries)
#
# Needs cargo (crates.io), cc, c++ and make. An allocator that does not build is skipped with a message. snmalloc has no
# instruction counts: it requests more address space than valgrind provides, and aborts.
set -u
folder=${1:?usage: rivals.sh FOLDER}
mkdir -p "$folder/get/src" && cd "$folder" || exit 2
folder=$PWD
crates="$folder/crates"
touch get/src/lib.rs
printf '[package]\nname = "rivals"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n' > get/Cargo.toml
printf 'libmimalloc-sys = "0.1"\ntikv-jemalloc-sys = "0.7"\nsnmalloc-sys = "0.7"\nrpmalloc-sys = "0.2"\n' >> get/Cargo.toml
(cd get && cargo vendor -q "$crates" > /dev/null) || exit 2
: > libraries
cc=${CC:-cc} cxx=${CXX:-c++}
"$cc" --version | head -1

version_of() { sed -n 's/^version = "\(.*\)"/\1/p' "$crates/$1/Cargo.toml" | head -1; }
built() { # NAME VERSION
    [ -f "$folder/$1.so" ] && echo "$1: $2" && printf '%s=%s ' "$1" "$folder/$1.so" >> libraries && return
    echo "skipped: $1: did not build; see $folder/$1.log"
}

for major in 2 3; do
    source="$crates/libmimalloc-sys/c_src/mimalloc/v$major"
    "$cc" -O3 -DNDEBUG -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT -fPIC -shared -ftls-model=initial-exec \
        -fno-builtin-malloc -fvisibility=hidden -I "$source/include" -o "mimalloc$major.so" "$source/src/static.c" \
        -lpthread > "mimalloc$major.log" 2>&1
    built "mimalloc$major" "MI_MALLOC_VERSION $(sed -n 's/^#define MI_MALLOC_VERSION *\([0-9]*\).*/\1/p' "$source/include/mimalloc.h"), libmimalloc-sys $(version_of libmimalloc-sys)"
done

source=$(dirname "$(find "$crates/rpmalloc-sys" -name rpmalloc.c | head -1)")
"$cc" -O3 -DNDEBUG -D_GNU_SOURCE -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -fPIC -shared -ftls-model=initial-exec -fno-builtin-malloc \
    -o rpmalloc.so "$source/rpmalloc.c" -lpthread -ldl > rpmalloc.log 2>&1
built rpmalloc "rpmalloc-sys $(version_of rpmalloc-sys)"

source=$(dirname "$(find "$crates/snmalloc-sys" -path '*override/malloc.cc' | head -1)")
"$cxx" -O3 -DNDEBUG -DSNMALLOC_USE_WAIT_ON_ADDRESS=1 -std=c++20 -mcx16 -fPIC -shared -ftls-model=initial-exec -fno-exceptions -fno-rtti -nostdinc++ \
    -I "$source/../.." -I "$source/.." -o snmalloc.so "$source/malloc.cc" -lpthread > snmalloc.log 2>&1 ||
    "$cxx" -O3 -DNDEBUG -DSNMALLOC_USE_WAIT_ON_ADDRESS=1 -std=c++20 -mcx16 -fPIC -shared -ftls-model=initial-exec -I "$source/../.." -I "$source/.." \
        -o snmalloc.so "$source/malloc.cc" -lpthread -latomic > snmalloc.log 2>&1
built snmalloc "snmalloc-sys $(version_of snmalloc-sys)"

cp -r "$crates/tikv-jemalloc-sys/jemalloc" jemalloc-build 2> /dev/null
(cd jemalloc-build && cp -r "$crates/tikv-jemalloc-sys/configure/." . 2> /dev/null
    [ -f configure ] || cp "$crates/tikv-jemalloc-sys/configure/configure" .
    [ -f VERSION ] || echo "5.3.1-0-g0" > VERSION
    chmod +x configure && sh ./configure --disable-doc --disable-libdl && make -s lib/libjemalloc.so.2) > jemalloc.log 2>&1
cp jemalloc-build/lib/libjemalloc.so.2 jemalloc-new.so 2> /dev/null
built jemalloc-new "tikv-jemalloc-sys $(version_of tikv-jemalloc-sys)"
