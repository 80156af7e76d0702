#!/usr/bin/env bash
# Writes the data that the notebooks read: notebooks/export.sh HKSIM, where HKSIM is a built hksim. Takes about ten minutes,
# because `validate` measures on this machine.
set -euo pipefail
hksim=$(realpath "$1")
cd "$(dirname "$0")/.."
data=$PWD/notebooks/data
traces=$PWD/traces
tools=$PWD/tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$data"

# sweep.ipynb
"$hksim" sweep --superslab 1M,2M --huge --format json -o "$data/built-in.json"
"$hksim" sweep traces/python-json.hkt --superslab 64K,256K,2M --huge never,thp --format json -o "$data/python-json.json"

# experiments.ipynb, in the order of its sections. The traces have no folder in their names: the data contain the names.
cd "$work"
generate() { "$hksim" gen random-mixed -q "$@" >/dev/null; }
validate() { "$hksim" validate -q --format csv -o "$data/$1" "${@:2}" >/dev/null; }
# Costs of this machine, and predicted times beside measured ones. On a quiet machine only.
"$hksim" calibrate -q --thorough -o costs.toml >/dev/null
times() { "$hksim" validate -q --time --profile costs.toml --runs 41 --format json -o "$data/$1" "${@:2}" >/dev/null; }
timed=(--preset hakmem --startup-touch 0 --huge never --header-bytes 16)
hakmem=(--preset hakmem --huge never)
bare=(--preset hakmem --startup-touch 0)

generate --cycles 200k --ws 400 --min 16 --max 1024 -o r.hkt
validate e1-prefault.csv r.hkt "${hakmem[@]}" --prefault off,populate,populate-write,touch,memset
validate e1-trim.csv r.hkt "${bare[@]}" --huge never,thp --prefault populate --align trim,kernel
times e2-time.json r.hkt "${timed[@]}" --prefault populate,memset,touch,off

validate e3-purge.csv r.hkt "${hakmem[@]}" --purge none,dontneed
ln -s "$traces/mariadbd.hkt" "$traces/redis-server.hkt" .
validate e3-mariadbd.csv mariadbd.hkt --memory-policy ignored "${bare[@]}" --huge never --purge none,dontneed --purge-delay 0,100ms

for n in 0 100k 200k 500k; do
    generate --cycles 1M --ws 256 --warmup "$n" -o "warm-$n.hkt"
    "$hksim" info -q "warm-$n.hkt" --format csv -o "$data/e4-calls-$n.csv" >/dev/null
done
warm=(warm-0.hkt warm-100k.hkt warm-200k.hkt warm-500k.hkt)
printf '%s\n' 'trace,count' warm-0.hkt,132834 warm-100k.hkt,145535 warm-200k.hkt,158083 warm-500k.hkt,195615 >counts.csv
validate e4-preset.csv "${warm[@]}" "${hakmem[@]}"
"$hksim" explain -q --fit counts.csv "${hakmem[@]}" --format json -o "$data/e4-fit.json"
# Three designs with the reported totals. They purge other blocks.
purging=("${hakmem[@]}" --warm-slabs 0 --slab 16K)
a=(--classes 16/32/64/128/256/512/784/65536 --purge-delay 0)
b=(--classes 16/32/64/128/256/512/65536 --purge-delay 2300ns)
c=(--classes 16/65536 --purge-delay 5100ns)
generate --cycles 1M --ws 256 --max 511 -o up-to-511.hkt
generate --cycles 1M --ws 256 --min 512 --max 780 -o 512-to-780.hkt
apart=(up-to-511.hkt 512-to-780.hkt)
validate e4-a.csv "${warm[@]}" "${apart[@]}" "${purging[@]}" "${a[@]}"
validate e4-b.csv "${warm[@]}" "${apart[@]}" "${purging[@]}" "${b[@]}"
validate e4-c.csv "${warm[@]}" "${apart[@]}" "${purging[@]}" "${c[@]}"
"$tools/case-studies/warm_up.py" "$hksim" --json "$data/e4-time.json" >/dev/null

validate e5-huge.csv r.hkt --preset hakmem --startup-touch 0,30M --huge never,thp
validate e5-purged.csv redis-server.hkt "${bare[@]}" --huge never,thp --purge none,dontneed --warm-slabs 0
"$hksim" sweep -q r.hkt --preset hakmem --startup-touch 0,30M --huge hugetlb-plain --hugetlb-pool 0,64 --format csv -o "$data/e5-hugetlb.csv" >/dev/null

validate e6-header.csv r.hkt "${hakmem[@]}" --header none,full,light,off
generate --cycles 512 --ws 1M --min 4000 --max 4000 -o fresh.hkt
validate e6-fresh.csv fresh.hkt "${bare[@]}" --huge never --carve page,eager --header none,full,light,off
times e6-time.json r.hkt "${timed[@]}" --header full,light,off,none

generate --cycles 1M --ws 400 -o tlb-small.hkt
generate --cycles 1M --ws 256 --min 40000 --max 40000 -o tlb-suspected.hkt
for trace in tlb-small tlb-suspected; do
    for huge in never thp; do
        "$hksim" sim -q "$trace.hkt" --preset hakmem --huge "$huge" --tlb skylake-sp --format json -o "$data/e7-$trace-$huge.json" >/dev/null
    done
done

"$hksim" compare -q r.hkt --allocators glibc,mimalloc,jemalloc,gperftools,native,native:hakmem+huge=never --runs 9 --format json -o "$data/e8-allocators.json" >/dev/null

validate e10-populate.csv r.hkt "${bare[@]}" --huge never,thp --prefault off,populate-write,populate-read --prewarm 0,2
validate e10-layout.csv r.hkt "${bare[@]}" --huge never,thp --superslab 2M,8M --meta inband,sidecar --align arena,kernel
