n=0
while [ $n -lt 300 ]; do
    v="$v word$n"
    n=$((n + 1))
done
for k in 1 2 3; do
    echo "$v" | wc -c > /dev/null
    x=$(echo "$v" | cut -c 1-10)
done
