// An HTTP server with something to compute for each request. node server.js PORT
const http = require('http');

function fibonacci(n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

function renderPage(value) {
  const rows = [];
  for (let i = 0; i < 1200; i++) rows.push(JSON.stringify({ i, value, text: 'row ' + (i * value) }));
  return rows.join('\n');
}

function countWords(text) {
  const counts = new Map();
  for (const word of text.split(/[^a-z0-9]+/)) counts.set(word, (counts.get(word) || 0) + 1);
  return counts.size;
}

function handleRequest(request, response) {
  const page = renderPage(fibonacci(19));
  response.end(String(countWords(page)));
}

http.createServer(handleRequest).listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
