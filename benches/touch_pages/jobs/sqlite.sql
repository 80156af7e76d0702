create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, 'row ' || i, i / 7.0 from n;
create index x on t(b);
select count(*), sum(c) from t where b like 'row 1%';
delete from t where a % 3 = 0;
