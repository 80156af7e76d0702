<?php
$records = [];
for ($i = 0; $i < 20000; $i++) {
    $records[] = ["id" => $i, "name" => str_repeat("n", $i % 60) . $i, "tags" => [$i % 7, $i % 11]];
}
for ($round = 0; $round < 3; $round++) {
    $records = json_decode(json_encode($records), true);
    usort($records, fn($a, $b) => strcmp($a["name"], $b["name"]));
}
echo count($records), " ", preg_match_all("/n+(\d)/", json_encode($records)), "\n";
