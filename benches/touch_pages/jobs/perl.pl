my (%records, @lines, %count);
for my $i (1 .. 60000) {
    $records{"key$i"} = { n => $i, s => "v" x ($i % 40) };
    push @lines, "line $i";
}
my $sum = 0;
$sum += $records{$_}{n} for keys %records;
$count{$_}++ for split /\s+/, join("\n", @lines);
print "$sum ", scalar(keys %count), "\n";
