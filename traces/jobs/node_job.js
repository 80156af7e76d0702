// JSON, maps, strings and buffers: node node_job.js ROUNDS. Prints a checksum of everything it made.
const crypto = require('crypto');
const zlib = require('zlib');

let seed = 7;
const random = (below) => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed % below;
};

const sum = crypto.createHash('sha256');
const sessions = new Map();
for (let round = 0; round < Number(process.argv[2]); round++) {
  const records = [];
  for (let i = 0; i < 40; i++) {
    records.push({ id: round * 40 + i, name: `user-${random(5000)}`, tags: Array.from({ length: 4 }, () => random(50)) });
  }
  const text = JSON.stringify(records);
  for (const record of JSON.parse(text)) {
    // allocUnsafeSlow and from(ArrayBuffer) go past node's own pool of small buffers.
    const body = Buffer.allocUnsafeSlow(64 + random(4000)).fill(record.id & 255);
    sessions.set(record.name, { record, body });
  }
  const packed = zlib.deflateRawSync(text);
  sum.update(zlib.inflateRawSync(packed)).update(crypto.createHmac('sha1', 'key').update(packed).digest());
  if (sessions.size > 400) for (const name of [...sessions.keys()].slice(0, 200)) sessions.delete(name);
}
for (const [name, { body }] of sessions) sum.update(name).update(body);
console.log(`${sessions.size} sessions, ${sum.digest('hex')}`);
