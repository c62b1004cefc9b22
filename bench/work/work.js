// node: objects, JSON, regular expressions, closures, timers and promises, for ever.
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function rows(n) { return Array.from({ length: n }, (_, i) => ({ a: i, s: String(i * 7919 % 1000) })); }
function turn() {
  const list = rows(2000).sort((x, y) => x.s < y.s ? -1 : 1);
  const text = JSON.stringify(list);
  JSON.parse(text);
  text.replace(/"a":(\d+)/g, (_, n) => String(Number(n) + 1));
  list.map(row => row.s.length).reduce((x, y) => x + y, 0);
  fib(20);
  return text.length;
}
async function main() {
  for (;;) {
    turn();
    await new Promise(resolve => setImmediate(resolve));
  }
}
main();
