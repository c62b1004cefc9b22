// testprogs/answers.cc in JavaScript: answers N by "folded(N) MISTAKES ROUNDS", while it checks its own work between the lines.
const crypto = require('crypto');
const readline = require('readline');

const TURNS = 20000;
const NUMBERS = 50;
const table = new Map();
let mistakes = 0;
let rounds = 0;
let number = 0;

function folded(start) {
  let x = start;
  for (let i = 0; i < TURNS; i++) x = (x * 31 + i) % 65521;
  return x;
}

function check() {
  const result = folded(number) + crypto.createHash('sha256').update(`${number} `.repeat(5000)).digest('hex');
  if (!table.has(number)) table.set(number, result);
  if (table.get(number) !== result) mistakes++;
  number = (number + 1) % NUMBERS;
  if (number === 0) rounds++;
  setImmediate(check);
}

setImmediate(check);
readline.createInterface({ input: process.stdin })
  .on('line', (line) => console.log(folded(Number(line)), mistakes, rounds))
  .on('close', () => process.exit(0));
console.log('ready');
