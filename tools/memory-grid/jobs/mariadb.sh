#!/bin/sh
# A database in FOLDER, made if there is none, a load of one connection, and a regular end: `mariadb.sh FOLDER`. The first run differs from later ones.
data=$1/mariadb-data
[ -d "$data" ] || mariadb-install-db --no-defaults --user=root --datadir="$data" > /dev/null 2>&1 || exit 1
mariadbd --no-defaults --user=root --datadir="$data" --socket="$data/socket" --skip-networking \
    --innodb-buffer-pool-size=64M > /dev/null 2>&1 &
sleep 3
mariadb --no-defaults -u root --socket="$data/socket" > /dev/null <<SQL
create database if not exists d; use d; drop table if exists t;
create table t (n int primary key, s varchar(64));
insert into t select seq, md5(seq) from seq_1_to_30000;
select count(distinct s) from t;
select s from t order by s limit 3;
SQL
mariadb-admin --no-defaults -u root --socket="$data/socket" shutdown
wait
