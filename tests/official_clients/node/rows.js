// Rows of the acceptance page, by RocketMQ's Node.js client of version 5. Usage: rows.js ENDPOINT ROW...
// A row that wants the broker's processes killed prints `kill`, and reads `back` when they run again.
'use strict';

const { ConsumeResult } = require('rocketmq-client-nodejs');

const {
  HIDDEN_MS, DEADLINE_MS, COMMIT, UNKNOWN, producer, consumer, push, message, text, must, same, until, some,
  nothing, ackAll, refused, letter,
} = require('./clients');

const rows = {
  ...require('./sending_rows'),
  ...require('./settling_rows'),
  ...require('./ordered_rows'),
  ...require('./lossless_row'),

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
    await refused(() => sender.recallMessage('taken-back', sent.recallHandle), 'cancelled');
    await nothing(worker, due + 2_000 - Date.now());
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
    await ackAll(worker, found);
  }, { expression: 'Aa || C' })),

  'wrong-topic': () => refused(() => producer(undefined, sender => sender.send(message('not-there', 'x'))), '40402'),

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
