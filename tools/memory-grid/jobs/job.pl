use strict;
my (%h, @a);
$ENV{PERL_HASH_SEED} = 0;
push @a, "row $_ " x 10 for 1 .. 100000;
@a = sort { $a cmp $b } @a;
print scalar(@a), "\n";
