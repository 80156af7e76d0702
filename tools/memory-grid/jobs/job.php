<?php
$rows = [];
for ($n = 0; $n < 300000; $n++) $rows[] = ["n" => $n, "s" => str_repeat("x", $n % 90)];
usort($rows, fn($a, $b) => $a["n"] % 1000 <=> $b["n"] % 1000);
$text = json_encode($rows);
echo strlen($text), "\n";
