declare -A seen
for ((i = 0; i < 20000; i++)); do
    seen[word$((i * 7919 % 10007))]+="$i "
    lines+=("line $i")
done
text="${lines[*]}"
echo "${#seen[@]} ${#lines[@]} ${#text}"
