-- A table in memory, filled, indexed, changed, half deleted: some 44 MiB of live blocks.
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, grade INTEGER);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
INSERT INTO item SELECT i, 'item ' || i || substr('................', 1, i % 16), (i * 7919) % 101 FROM n;
CREATE INDEX by_grade ON item (grade, name);
UPDATE item SET name = name || '!' WHERE grade < 20;
SELECT grade, group_concat(name, ',') IS NOT NULL, count(*) FROM item GROUP BY grade ORDER BY 3 DESC LIMIT 5;
DELETE FROM item WHERE grade > 50;
SELECT count(*) FROM item;
