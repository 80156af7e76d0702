use strict;
my @a = map { "x" x (100 + $_ % 900) } 1 .. 30000;
for my $round (1 .. 3) {
    my $child = fork;
    if (!$child) {
        $a[$_] .= "y" for grep { $_ % 7 == $round } 0 .. $#a;
        exit 0;
    }
    waitpid $child, 0;
    $a[$_] .= "z" x 200 for grep { $_ % 5 == $round } 0 .. $#a;
}
