SELECT name, grade FROM item WHERE id = 417;
SELECT grade, COUNT(*), MAX(LENGTH(name)) FROM item GROUP BY grade ORDER BY 2 DESC, 1 LIMIT 5;
INSERT INTO sale (item, amount) VALUES (17, 3), (418, 5), (999, 8);
SELECT a.id, b.name FROM item a JOIN item b ON a.grade = b.grade WHERE a.id BETWEEN 100 AND 110 ORDER BY a.id, b.id LIMIT 20;
UPDATE item SET grade = grade + 1 WHERE id = 30;
SELECT i.name, SUM(s.amount) FROM sale s JOIN item i ON i.id = s.item WHERE s.id < 50 GROUP BY i.name ORDER BY 1;
