{ for (i = 1; i <= NF; i++) { count[$i]++; place[$i] = place[$i] " " NR } }
END { for (word in count) if (length(place[word]) > 20) { long++; sum += count[word] } print long, sum }
