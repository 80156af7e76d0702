for {set i 0} {$i < 40000} {incr i} {
    dict set records "key$i" [list $i [string repeat v [expr {$i % 40}]]]
    lappend lines "line $i of [expr {$i * 7919 % 10007}]"
}
set sorted [lsort -unique [split [join $lines " "] " "]]
for {set i 0} {$i < 40000} {incr i 3} { dict unset records "key$i" }
puts "[dict size $records] [llength $sorted] [regsub -all {line (\d)} [join $lines ,] {<\1>} out]"
