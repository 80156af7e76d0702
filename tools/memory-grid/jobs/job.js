const rows = [];
for (let n = 0; n < 400000; n++) rows.push({ n, s: "row " + n });
rows.sort((a, b) => (a.s < b.s ? -1 : 1));
const text = JSON.stringify(rows);
console.log(text.length, JSON.parse(text).length);
