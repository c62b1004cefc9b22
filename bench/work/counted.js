// node: objects, JSON, regular expressions and a recursion, for ever. node counted.js FILE: the turns are counted there, eight bytes. Prints "ready".
const fs = require('fs');

const file = fs.openSync(process.argv[2], 'w');
const number = Buffer.alloc(8);
let turns = 0n;

function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function rows(n) { return Array.from({ length: n }, (_, i) => ({ a: i, s: String(i * 7919 % 1000) })); }
function turn() {
  const text = JSON.stringify(rows(500).sort((x, y) => x.s < y.s ? -1 : 1));
  JSON.parse(text);
  text.replace(/"a":(\d+)/g, (_, n) => String(Number(n) + 1));
  return text.length + fib(18);
}
function count() {
  turn();
  number.writeBigUInt64LE(++turns);
  fs.writeSync(file, number, 0, 8, 0);
  setImmediate(count);
}

console.log('ready');
count();
