#!/bin/sh
# A database in FOLDER, made if there is none, a load of one connection, and a regular end: `postgres.sh FOLDER`. The first run differs from later ones.
# The server refuses to run as root.
run="setpriv --reuid=postgres --regid=postgres --clear-groups"
data=$1/postgres-data
if [ ! -d "$data" ]; then
    mkdir "$data" && chown postgres "$data" && chmod 711 "$1"
    $run initdb -D "$data" -A trust > /dev/null || exit 1
fi
$run postgres -D "$data" -k "$data" -p 7392 -c listen_addresses= -c huge_pages=off -c fsync=off -c autovacuum=off -c max_parallel_workers_per_gather=0 \
    -c max_logical_replication_workers=0 > /dev/null 2>&1 &
sleep 1.5
psql -q -h "$data" -p 7392 -U postgres postgres > /dev/null <<SQL
create temp table t as select n, md5(n::text) as s from generate_series(1, 100000) n;
set work_mem = '64MB';
select count(*) from (select s, n from t order by s) q;
select count(distinct s) from t;
SQL
kill -INT $(head -1 "$data/postmaster.pid")
wait
