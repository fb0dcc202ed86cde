// Rows of the acceptance page, by RocketMQ's Node.js client of version 5. Usage: rows.js ENDPOINT ROW...
'use strict';

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const HIDDEN_MS = 60_000;
const DEADLINE_MS = 120_000;
const COMMIT = 1; // TransactionResolution, which the package does not export
const UNKNOWN = 0;
const endpoints = process.argv[2];
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const common = { endpoints, namespace: '', requestTimeout: 10_000, logger: silent };

async function started(client, work) {
  await client.startup();
  try {
    return await work(client);
  } finally {
    await client.shutdown();
  }
}

const producer = (topic, work, checker) => started(new Producer({ ...common, topic, checker }), work);

function consumer(group, topic, work, expression = '*') {
  const subscriptions = new Map().set(topic, expression);
  return started(new SimpleConsumer({ ...common, consumerGroup: group, subscriptions, awaitDuration: 5_000 }), work);
}

function push(group, topic, consume, work) {
  const subscriptions = new Map().set(topic, '*');
  const messageListener = { async consume(found) { return consume(found); } };
  return started(new PushConsumer({ ...common, consumerGroup: group, subscriptions, messageListener }), work);
}

const message = (topic, body, more = {}) => ({ topic, body: Buffer.from(body), ...more });

const text = found => found.body.toString();

function must(holds, what) {
  if (!holds) throw new Error(what);
}

const same = (found, wanted) => must(
  JSON.stringify(found) === JSON.stringify(wanted), `${JSON.stringify(found)}, and not ${JSON.stringify(wanted)}`);

const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

async function until(holds, what) {
  const deadline = Date.now() + DEADLINE_MS;
  while (!holds()) {
    must(Date.now() < deadline, what());
    await pause(50);
  }
}

async function some(client, count) {
  const found = [];
  const deadline = Date.now() + DEADLINE_MS;
  while (found.length < count && Date.now() < deadline) found.push(...await client.receive(32, HIDDEN_MS));
  must(found.length === count, `${found.length} messages came, and not ${count}`);
  return found;
}

// The topic of dead letters is there once the first message was buried.
async function letter(group, topic) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    try {
      return await consumer(group, topic, async letters => {
        const [found] = await some(letters, 1);
        await letters.ack(found);
        return found;
      });
    } catch (notYet) {
      if (Date.now() > deadline) throw notYet;
      await pause(1_000);
    }
  }
}

const rows = {
  'normal-fields': () => producer('normal', sender => consumer('fields', 'normal', async worker => {
    const properties = new Map().set('colour', 'blau ü');
    const sent = await sender.send(message('normal', 'whole', { tag: 'paid', keys: ['k1', 'k2'], properties }));
    const [found] = await some(worker, 1);
    same([found.messageId, text(found), found.tag, found.keys], [sent.messageId, 'whole', 'paid', ['k1', 'k2']]);
    same([[...found.properties], found.deliveryAttempt], [[['colour', 'blau ü']], 1]);
    must(!found.corrupted, 'it is corrupted');
    await worker.ack(found);
    same((await worker.receive(32, HIDDEN_MS)).length, 0);
  })),

  'push-once': async () => {
    const seen = [];
    const sent = [];
    const take = found => {
      seen.push(found.messageId);
      return ConsumeResult.SUCCESS;
    };
    await producer('pushed', sender => push('push-once', 'pushed', take, async () => {
      for (let number = 0; number < 40; number++) sent.push((await sender.send(message('pushed', `m${number}`))).messageId);
      await until(() => seen.length >= 40, () => `${seen.length} came`);
    }));
    same(seen.sort(), sent.sort());
  },

  'max-attempts-dlq': async () => {
    const attempts = [];
    const take = found => {
      attempts.push(found.deliveryAttempt);
      return ConsumeResult.FAILURE;
    };
    const sent = await producer('failing', sender => push('one-retry', 'failing', take, async () => {
      const done = await sender.send(message('failing', 'poison'));
      await until(() => attempts.length >= 2, () => `attempts ${attempts}`);
      return done;
    }));
    same((await letter('letters', '%DLQ%one-retry')).messageId, sent.messageId);
    same(attempts, [1, 2]);
  },

  'fifo-order': () => producer('steps', sender => consumer('in-order', 'steps', async worker => {
    const seen = {};
    const deadline = Date.now() + DEADLINE_MS;
    for (let number = 0; number < 12; number++) {
      await sender.send(message('steps', `${number}`, { messageGroup: `g${number % 3}` }));
    }
    for (let left = 12; left > 0 && Date.now() < deadline;) {
      for (const found of await worker.receive(32, HIDDEN_MS)) {
        (seen[found.messageGroup] ??= []).push(Number(text(found)));
        await worker.ack(found);
        left--;
      }
    }
    for (const one of [0, 1, 2]) same(seen[`g${one}`], [one, one + 3, one + 6, one + 9]);
  })),

  'fifo-retry-order': async () => {
    const seen = [];
    const take = found => {
      seen.push(Number(text(found)));
      return seen.length === 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    };
    await producer('retried-steps', sender => push('retried-in-order', 'retried-steps', take, async () => {
      for (let number = 0; number < 4; number++) {
        await sender.send(message('retried-steps', `${number}`, { messageGroup: 'one' }));
      }
      await until(() => seen.length >= 5, () => `seen ${seen}`);
    }));
    same(seen, [0, 0, 1, 2, 3]);
  },

  'fifo-dlq': async () => {
    const seen = [];
    const take = found => {
      seen.push(text(found));
      return text(found) === 'poison' ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    };
    const sent = await producer('poisoned-steps', sender => push('poisoned', 'poisoned-steps', take, async () => {
      const done = await sender.send(message('poisoned-steps', 'poison', { messageGroup: 'one' }));
      await sender.send(message('poisoned-steps', 'next', { messageGroup: 'one' }));
      await until(() => seen.length >= 3, () => `seen ${seen}`);
      return done;
    }));
    same(seen, ['poison', 'poison', 'next']);
    same((await letter('poisoned-letters', '%DLQ%poisoned')).messageId, sent.messageId);
  },

  delay: () => producer('later', sender => consumer('delayed', 'later', async worker => {
    const due = Date.now() + 3_000;
    await sender.send(message('later', 'in time', { deliveryTimestamp: new Date(due) }));
    const [found] = await some(worker, 1);
    must(Date.now() >= due, 'it came early');
    await worker.ack(found);
  })),

  recall: () => producer('taken-back', sender => consumer('takes-back', 'taken-back', async worker => {
    const due = Date.now() + 20_000;
    const sent = await sender.send(message('taken-back', 'never', { deliveryTimestamp: new Date(due) }));
    same((await sender.recallMessage('taken-back', sent.recallHandle)).messageId, sent.messageId);
    let refusal = '';
    await sender.recallMessage('taken-back', sent.recallHandle).catch(error => { refusal = `${error}`; });
    must(refusal.includes('cancelled'), `again: ${refusal}`);
    while (Date.now() < due + 2_000) same((await worker.receive(32, HIDDEN_MS)).length, 0);
  })),

  'tx-commit': () => producer('paid', sender => consumer('paid', 'paid', async worker => {
    const committed = sender.beginTransaction();
    await sender.send(message('paid', 'committed'), committed);
    const rolledBack = sender.beginTransaction();
    await sender.send(message('paid', 'rolled back'), rolledBack);
    same((await worker.receive(32, HIDDEN_MS)).length, 0);
    await committed.commit();
    await rolledBack.rollback();
    const [found] = await some(worker, 1);
    same(text(found), 'committed');
    await worker.ack(found);
    same((await worker.receive(32, HIDDEN_MS)).length, 0);
  }), { async check() { return UNKNOWN; } }),

  'tx-check': () => producer('checked', sender => consumer('checked', 'checked', async worker => {
    await sender.send(message('checked', 'asked'), sender.beginTransaction());
    await worker.ack((await some(worker, 1))[0]);
  }), { async check() { return COMMIT; } }),

  'tag-filter': () => producer('tagged', sender => consumer('tags', 'tagged', async worker => {
    for (const tag of ['Aa', 'BB', 'C']) await sender.send(message('tagged', tag, { tag }));
    const found = await some(worker, 2);
    same(found.map(text).sort(), ['Aa', 'C']);
    for (const one of found) await worker.ack(one);
  }, 'Aa || C')),

  'wrong-topic': async () => {
    let refusal = '';
    await producer(undefined, sender => sender.send(message('not-there', 'x'))).catch(error => { refusal = `${error}`; });
    must(refusal.includes('40402'), `refused by ${refusal}`);
  },

  nack: () => producer('given-back', sender => consumer('gives-back', 'given-back', async worker => {
    await sender.send(message('given-back', 'again'));
    const [first] = await some(worker, 1);
    await worker.changeInvisibleDuration(first, 2_000);
    const [second] = await some(worker, 1);
    same(second.deliveryAttempt, 2);
    await worker.ack(second);
    same((await worker.receive(32, HIDDEN_MS)).length, 0);
  })),
};

async function main() {
  let good = true;
  for (const name of process.argv.slice(3)) {
    try {
      await rows[name]();
      console.log(`${name}\tok`);
    } catch (failure) {
      good = false;
      console.log(`${name}\t${failure}`);
      console.error(failure);
    }
  }
  process.exit(good ? 0 : 1);
}

main();
