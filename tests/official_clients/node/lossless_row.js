// at-least-once: processes are killed while messages are sent, received and acknowledged.
'use strict';

const { consumer, ifServed, killed, message, must, nothing, pause, producer, until } = require('./clients');

const COUNT = Number(process.env.ROW_MESSAGES ?? 1_000);
const KILLS = 5;
const WORKERS = 4;
const SHORTLY_HIDDEN_MS = 30_000;
const AGAIN_MS = 2 * SHORTLY_HIDDEN_MS; // until what comes again has come: a busy machine is late

// What workers do until they are stopped. Calls that fail are of a broker that is away.
class Work {
  received = new Set();
  acknowledged = new Set();
  cameBack = new Set();
  #stopped = false;
  #worker;
  #all;

  constructor(worker) {
    this.#worker = worker;
    this.#all = Array.from({ length: WORKERS }, () => this.#goOn());
  }

  async #goOn() {
    while (!this.#stopped) await ifServed(() => this.#settleSome());
  }

  async #settleSome() {
    for (const found of await this.#worker.receive(32, SHORTLY_HIDDEN_MS)) {
      this.received.add(found.messageId);
      if (this.acknowledged.has(found.messageId)) this.cameBack.add(found.messageId);
      await this.#worker.ack(found);
      this.acknowledged.add(found.messageId);
    }
  }

  async stop() {
    this.#stopped = true;
    await Promise.all(this.#all);
  }
}

module.exports = {
  // Every message whose send was answered is received, and none whose acknowledgement was answered
  // comes again. One whose acknowledgement was stored and not answered need not.
  'at-least-once': async () => {
    const sent = new Set();
    const cameBack = await producer('lossless', sender => consumer('lossless', 'lossless', async worker => {
      const work = new Work(worker);
      try {
        for (let number = 0; number < COUNT; number++) {
          if (number % (COUNT / KILLS) === COUNT / KILLS / 2) await killed();
          const made = message('lossless', `${number}`);
          await until(async () => {
            const receipt = await ifServed(() => sender.send(made));
            return receipt && sent.add(receipt.messageId);
          }, () => `${number} is not sent`);
        }
        await until(() => [...sent].every(one => work.received.has(one)), () => 'not all are received');
        await pause(AGAIN_MS);
      } finally {
        await work.stop();
      }
      return work.cameBack;
    }, { waitMs: 1_000 }));
    await consumer('lossless', 'lossless', worker => nothing(worker, 1_000), { waitMs: 1_000 });
    must(!cameBack.size, `${cameBack.size} come again, and were acknowledged`);
  },
};
