create database work;
use work;
create table item (id int primary key, name varchar(60), grade int, key by_grade (grade)) engine=innodb;
insert into item select seq, concat('item ', seq, repeat('.', seq % 16)), (seq * 7919) % 101 from seq_1_to_5000;
create table sale (id int auto_increment primary key, item int, amount int) engine=aria;
insert into sale (item, amount) select seq % 5000, seq % 17 from seq_1_to_5000;
select grade, count(*), max(length(name)) from item group by grade order by 2 desc, 1;
select i.name, sum(s.amount) from sale s join item i on i.id = s.item group by i.name order by 1;
update item set grade = grade + 1 where id % 3 = 0;
