// Rows about messages that are handed out: hidden, given again, acknowledged, shared.
'use strict';

const { ConsumeResult } = require('rocketmq-client-nodejs');

const {
  DEADLINE_MS, HIDDEN_MS, LEAST_HIDDEN_MS, ackAll, consumer, ifServed, killed, message, must, nothing, pause, producer,
  push, refused, same, some, text, until,
} = require('./clients');

const OLD_HANDLE = '40013';

const numbers = found => found.map(one => Number(text(one))).sort((one, other) => one - other);

const upTo = count => [...Array(count).keys()];

module.exports = {
  redeliver: () => producer('comes-again', sender => consumer('again', 'comes-again', async worker => {
    const sent = await sender.send(message('comes-again', 'twice'));
    const asked = Date.now();
    const [first] = await some(worker, 1, LEAST_HIDDEN_MS);
    const at = Date.now();
    const [second] = await some(worker, 1);
    must(Date.now() - asked >= LEAST_HIDDEN_MS, 'it comes early');
    must(Date.now() - at < LEAST_HIDDEN_MS + 2_000, `after ${Date.now() - at} ms`);
    same([second.messageId, text(second)], [sent.messageId, 'twice']);
    same([first.deliveryAttempt, second.deliveryAttempt], [1, 2]);
    await worker.ack(second);
    await nothing(worker, 2_000);
  })),

  extend: () => producer('hidden-on', sender => consumer('hides-on', 'hidden-on', async worker => {
    await sender.send(message('hidden-on', 'x'));
    const [first] = await some(worker, 1, LEAST_HIDDEN_MS);
    const asked = Date.now();
    await worker.changeInvisibleDuration(first, 20_000);
    const at = Date.now();
    const [second] = await some(worker, 1);
    must(Date.now() - asked >= 20_000, 'it comes early');
    must(Date.now() - at < 22_500, `after ${Date.now() - at} ms`);
    await worker.ack(second);
  })),

  // ack-expired and ack-old-handle: an old handle is refused, and settles no newer delivery.
  'old-handles': () => producer('expired', sender => consumer('expires', 'expired', async worker => {
    await sender.send(message('expired', 'x'));
    const [first] = await some(worker, 1, LEAST_HIDDEN_MS);
    const handle = first.receiptHandle;
    await worker.changeInvisibleDuration(first, LEAST_HIDDEN_MS);
    const changed = first.receiptHandle;
    first.receiptHandle = handle;
    await refused(() => worker.ack(first), OLD_HANDLE);
    first.receiptHandle = changed;
    const [second] = await some(worker, 1, LEAST_HIDDEN_MS);
    await refused(() => worker.ack(first), OLD_HANDLE);
    const [third] = await some(worker, 1);
    same([second.deliveryAttempt, third.deliveryAttempt], [2, 3]);
    await worker.ack(third);
  })),

  'foreign-handle': () => producer('foreign', sender => consumer('owner', 'foreign', owner => (
    consumer('stranger', 'foreign', async stranger => {
      await sender.send(message('foreign', 'x'));
      const [ofOwner] = await some(owner, 1, 12_000);
      const [ofStranger] = await some(stranger, 1, 12_000);
      await refused(() => stranger.ack(ofOwner), OLD_HANDLE);
      await stranger.ack(ofStranger);
      const [again] = await some(owner, 1);
      same(again.deliveryAttempt, 2);
      await owner.ack(again);
    })))),

  // ack-durable and hidden-durable: what was acknowledged never comes again, and what was handed out
  // comes when its time is over and not before, with the next attempt.
  durable: () => producer('durable', sender => consumer('durable', 'durable', async worker => {
    for (const number of upTo(50)) await sender.send(message('durable', `${number}`));
    const at = Date.now();
    const found = await some(worker, 50, 30_000);
    const held = found.slice(0, 10);
    await ackAll(worker, found.slice(10));
    await killed();
    const again = [];
    await until(async () => {
      again.push(...await ifServed(() => worker.receive(32, HIDDEN_MS)) ?? []);
      return again.length >= held.length;
    }, () => `${again.length} of ${held.length} come again`);
    must(Date.now() - at >= 30_000, 'they come before their time');
    same(again.map(one => one.messageId).sort(), held.map(one => one.messageId).sort());
    same([...new Set(again.map(one => one.deliveryAttempt))], [2]);
    await ackAll(worker, again);
    await nothing(worker, 2_000);
  })),

  spread: () => {
    const one = work => consumer('spread', 'spread', work, { waitMs: 1_000 });
    return producer('spread', sender => one(first => one(second => one(async third => {
      for (const number of upTo(60)) await sender.send(message('spread', `${number}`));
      const found = new Map([[first, []], [second, []], [third, []]]);
      for (const end = Date.now() + 60_000; [...found.values()].flat().length < 60 && Date.now() < end;) {
        for (const [worker, messages] of found) messages.push(...await worker.receive(4, HIDDEN_MS));
      }
      same(numbers([...found.values()].flat()), upTo(60));
      for (const [worker, messages] of found) {
        must(messages.length, 'one of them has none');
        await ackAll(worker, messages);
      }
    }))));
  },

  'new-group': () => producer('older', async sender => {
    for (const number of upTo(5)) await sender.send(message('older', `${number}`));
    await consumer('comes-late', 'older', async worker => {
      const found = await some(worker, 5);
      same(numbers(found), upTo(5));
      await ackAll(worker, found);
    });
  }),

  // A listener takes longer than a message is hidden.
  'slow-consumer-renew': async () => {
    const seen = [];
    let ended = false;
    const take = async found => {
      seen.push(found.deliveryAttempt);
      await pause(75_000);
      ended = true;
      return ConsumeResult.SUCCESS;
    };
    await producer('slow', sender => push('slow', 'slow', take, async () => {
      await sender.send(message('slow', 'x'));
      await until(() => ended, () => `seen ${seen}`);
    }));
    await consumer('slow', 'slow', worker => nothing(worker, 2_000));
    same(seen, [1]);
  },

  // The test that reads the line kills this client, which holds a message.
  vanishes: () => {
    const take = async () => {
      console.log('vanish');
      await pause(DEADLINE_MS);
    };
    return producer('vanished', sender => push('vanished', 'vanished', take, async () => {
      await sender.send(message('vanished', 'held'));
      await pause(DEADLINE_MS);
    }));
  },

  // What the client held that vanished comes again.
  'client-gone': () => consumer('vanished', 'vanished', async worker => {
    const [found] = await some(worker, 1);
    same([text(found), found.deliveryAttempt], ['held', 2]);
    await worker.ack(found);
  }),

  // Producer, simple and push consumer go on when the broker is back.
  reconnect: () => {
    const pushed = [];
    const take = found => {
      pushed.push(text(found));
      return ConsumeResult.SUCCESS;
    };
    return producer('reached', sender => consumer('reaches', 'reached', worker => (
      push('reaches-too', 'reached', take, async () => {
        await sender.send(message('reached', 'before'));
        await ackAll(worker, await some(worker, 1));
        await until(() => pushed.includes('before'), () => 'the push consumer has nothing');
        const lastSeen = Date.now();
        await killed();
        const began = Date.now();
        const found = [];
        await until(() => ifServed(() => sender.send(message('reached', 'after'))), () => 'no send');
        await until(async () => {
          found.push(...await ifServed(() => worker.receive(1, HIDDEN_MS)) ?? []);
          return found.length;
        }, () => 'the simple consumer has nothing');
        await until(() => pushed.includes('after'), () => 'the push consumer has nothing more');
        const took = Date.now() - began;
        // gRPC's own wait between two connections grows with the time for which the broker is away.
        must(took < Math.max(30_000, began - lastSeen), `after ${took} ms`);
        await ackAll(worker, found);
      }))));
  },

  // ROW_CLIENTS of them wait for messages until the test has seen enough.
  'many-clients': async () => {
    let over = false;
    const ready = [];
    const all = [];
    for (let number = 0; number < Number(process.env.ROW_CLIENTS); number += 1) {
      let isReady;
      ready.push(new Promise(resolve => { isReady = resolve; }));
      all.push(consumer('many', 'many', async worker => {
        isReady();
        while (!over) await ackAll(worker, await worker.receive(32, HIDDEN_MS));
      }, { waitMs: 20_000 }));
    }
    await Promise.race([Promise.all(ready), Promise.all(all)]);
    await killed();
    over = true;
    await Promise.all(all);
  },
};
