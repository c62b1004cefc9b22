// Asks a local server as fast as it answers, four requests at a time. node load.js PORT SECONDS; prints the number of answers.
const http = require('http');
const port = Number(process.argv[2]);
const end = Date.now() + Number(process.argv[3]) * 1000;
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
let answers = 0;
let active = 4;

function ask() {
  if (Date.now() >= end) {
    if (--active === 0) {
      console.log(answers);
      agent.destroy();
    }
    return;
  }
  http.get({ host: '127.0.0.1', port, agent }, (response) => {
    response.resume();
    response.on('end', () => {
      answers++;
      ask();
    });
  }).on('error', () => setTimeout(ask, 10));
}

for (let i = 0; i < 4; i++) ask();
