// Rows about what is sent and found: bodies, polls, refusals, filters.
'use strict';

const { randomBytes } = require('node:crypto');

const { FilterExpression } = require('rocketmq-client-nodejs');

const { DEADLINE_MS, ackAll, consumer, message, must, nothing, pause, producer, refused, same, some, text } = require('./clients');

const SQL = 2; // FilterType, which the package does not export

module.exports = {
  // A receive that waits in one queue is woken by a message of another.
  'long-poll-wakes': () => producer('waits', sender => consumer('waits', 'waits', async worker => {
    for (let number = 0; number < 8; number++) {
      let sentAt;
      const later = pause(500).then(() => {
        sentAt = Date.now();
        return sender.send(message('waits', `${number}`));
      });
      const [found] = await some(worker, 1);
      const took = Date.now() - sentAt;
      await later;
      must(took < 2_500, `it came after ${took} ms`);
      await worker.ack(found);
    }
  }, { waitMs: 20_000 })),

  'long-poll-short': async () => {
    for (const waitMs of [1_000, 3_000]) {
      await consumer('short', 'short', async worker => {
        await worker.receive(1, 60_000);
        const began = Date.now();
        same(await worker.receive(1, 60_000), []);
        const took = Date.now() - began;
        must(waitMs - 500 < took && took < waitMs + 2_000, `${waitMs} ms are ${took} ms`);
      }, { waitMs });
    }
  },

  // This client waits for its settings before it receives.
  'receive-before-settings': async () => {
    for (let starts = Number(process.env.ROW_STARTS ?? 20); starts > 0; starts--) {
      await consumer('at-once', 'at-once', worker => worker.receive(1, 60_000), { waitMs: 1_000 });
    }
  },

  // compressible-body and big-body.
  bodies: () => producer('bodies', sender => consumer('bodies', 'bodies', async worker => {
    const all = [Buffer.alloc(256 << 10, 'all the same '), randomBytes((4 << 20) - (64 << 10))];
    for (const body of all) {
      await sender.send(message('bodies', body));
      const [found] = await some(worker, 1);
      must(body.equals(found.body) && !found.corrupted, 'another body comes');
      await worker.ack(found);
    }
  })),

  'too-big': () => producer('too-big', sender => consumer('too-big', 'too-big', async worker => {
    await refused(() => sender.send(message('too-big', Buffer.alloc((4 << 20) + 1, 'x'))), 'exceed');
    await refused(() => sender.send(message('too-big', '')), 'empty', 'body');
    await nothing(worker, 1_000);
  })),

  // bad-tag, bad-key, bad-group, bad-property, too-many-properties.
  'bad-fields': () => producer('odd', sender => consumer('odd', 'odd', async worker => {
    const many = new Map(Array.from({ length: 129 }, (_, number) => [`p${number}`, 'x']));
    for (const [code, fields] of [
      ['40004', { tag: 'two\nlines' }],
      ['40005', { keys: ['two words'] }],
      ['40006', { messageGroup: 'g'.repeat(64) }],
      ['40007', { properties: new Map().set('KEYS', "of the store's own") }],
      ['43101', { properties: many }],
    ]) {
      await refused(() => sender.send(message('odd', 'x', fields)), code);
    }
    await nothing(worker, 1_000);
  })),

  // This client sends nothing: it picks a queue out of none, and the error is its own. So does its
  // consumer while it starts, which misses the answer to its settings then and waits for ever: no-read
  // cannot be played.
  'no-write-no-read': () => refused(
    () => producer('no-write', sender => sender.send(message('no-write', 'x'))), '"max" is out of range'),

  'wrong-type': () => producer('wrong-type', sender => consumer('wrong-type', 'wrong-type', async worker => {
    for (const wanted of [{ messageGroup: 'one' }, { deliveryTimestamp: new Date(Date.now() + 5_000) }]) {
      await refused(() => sender.send(message('wrong-type', 'x', wanted)), 'type');
    }
    await nothing(worker, 6_000);
  })),

  'mixed-topic': () => producer('mixed', sender => consumer('mixed', 'mixed', async worker => {
    await sender.send(message('mixed', 'normal'));
    await sender.send(message('mixed', 'ordered', { messageGroup: 'one' }));
    await sender.send(message('mixed', 'delayed', { deliveryTimestamp: new Date(Date.now() + 2_000) }));
    const found = await some(worker, 3);
    same(found.map(text).sort(), ['delayed', 'normal', 'ordered']);
    await ackAll(worker, found);
  })),

  'sql-filter': () => producer('selected', sender => consumer('selects', 'selected', async worker => {
    for (let number = 0; number < 10; number++) {
      const properties = new Map().set('a', `${number}`).set('b', 'xy'[number % 2]);
      await sender.send(message('selected', `${number}`, { properties }));
    }
    const found = await some(worker, 2);
    same(found.map(text).sort(), ['6', '8']);
    await ackAll(worker, found);
    await nothing(worker, 1_000);
  }, { expression: new FilterExpression("a > 5 AND b = 'x'", SQL) })),

  'delay-past': () => producer('past', sender => consumer('past', 'past', async worker => {
    await sender.send(message('past', 'at once', { deliveryTimestamp: new Date(Date.now() - 60_000) }));
    const began = Date.now();
    await ackAll(worker, await some(worker, 1));
    must(Date.now() - began < DEADLINE_MS / 4, 'it comes late');
    const never = new Date(Date.now() + 800 * 86_400_000);
    await refused(() => sender.send(message('past', 'never', { deliveryTimestamp: never })), '40012');
  })),
};
