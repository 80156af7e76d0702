" Edits each line several times; every change is kept for undo.
%s/alpha\(\d\+\)/\1omega/g
g/99/normal yyp
%sort
let words = {}
for line in getline(1, '$') | for word in split(line) | let words[word] = get(words, word, 0) + 1 | endfor | endfor
undo 1
quit!
