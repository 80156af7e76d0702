// sqlite3 on a database in memory: rows with texts of many lengths, an index, an aggregate. The heap grows by 16 MiB,
// so that it can have huge pages.
#include <malloc.h>
#include <sqlite3.h>
#include <stdio.h>

static const char *const script =
    "create table t (id integer primary key, word text, number integer);"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)"
    " insert into t select i, hex(zeroblob(i % 97)) || i, (i * 7919) % 10007 from n;"
    "create index by_number on t (number, word);"
    "select number % 100, count(*), max(length(word)) from t group by 1 order by 2;"
    "delete from t where id % 3 = 0;"
    "vacuum;";

int main(void) {
    mallopt(M_TOP_PAD, 16 << 20);
    sqlite3 *database;
    char *why = NULL;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK || sqlite3_exec(database, script, NULL, NULL, &why) != SQLITE_OK) {
        fprintf(stderr, "sqlite: %s\n", why ? why : sqlite3_errmsg(database));
        return 1;
    }
    return 0;
}
