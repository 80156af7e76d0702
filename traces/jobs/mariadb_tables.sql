CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(60), grade INT, KEY by_grade (grade)) ENGINE=InnoDB;
INSERT INTO item SELECT seq, CONCAT('item ', seq, REPEAT('.', seq % 16)), (seq * 7919) % 101 FROM seq_1_to_1000;
CREATE TABLE sale (id INT AUTO_INCREMENT PRIMARY KEY, item INT, amount INT) ENGINE=InnoDB;
