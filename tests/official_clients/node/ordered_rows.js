// Rows about message groups, and about transactions that something happens to.
'use strict';

const {
  COMMIT, LEAST_HIDDEN_MS, UNKNOWN, consumer, ifServed, killed, message, must, nothing, producer, same, some, text, until,
} = require('./clients');

const decides = resolution => ({
  asked: 0,
  async check() {
    this.asked++;
    return resolution;
  },
});

module.exports = {
  // fifo-block and fifo-independent: the second message of a group waits for the first, those of
  // another group do not.
  'fifo-block': () => producer('blocked', sender => consumer('blocks', 'blocked', async worker => {
    for (const group of ['one', 'two']) {
      for (const number of [1, 2]) await sender.send(message('blocked', `${group} ${number}`, { messageGroup: group }));
    }
    const first = await some(worker, 2);
    same(first.map(text).sort(), ['one 1', 'two 1']);
    await nothing(worker, 2_000);
    await worker.ack(first.find(found => text(found) === 'two 1'));
    const at = Date.now();
    const [ofTwo] = await some(worker, 1);
    same(text(ofTwo), 'two 2');
    must(Date.now() - at < 3_000, 'it comes late');
    await worker.ack(ofTwo);
    await worker.ack(first.find(found => text(found) === 'one 1'));
    const [ofOne] = await some(worker, 1);
    same(text(ofOne), 'one 2');
    await worker.ack(ofOne);
  })),

  // A group's messages are in one queue, before and after the broker was killed: their places follow
  // one another.
  'fifo-stable-queue': async () => {
    const all = [...Array(20).keys()];
    const offsets = [];
    await producer('one-queue', async sender => {
      for (const number of all) {
        if (number === 10) await killed();
        const made = message('one-queue', `${number}`, { messageGroup: 'g' });
        await until(async () => {
          const sent = await ifServed(() => sender.send(made));
          if (sent) offsets.push(sent.offset);
          return sent;
        }, () => 'it is not sent');
      }
    });
    const bodies = [];
    await consumer('reads-one-queue', 'one-queue', async worker => {
      while (bodies.length < 20) {
        const [found] = await some(worker, 1);
        bodies.push(Number(text(found)));
        await worker.ack(found);
      }
    });
    same([bodies, offsets], [all, all]);
  },

  // Never visible, and nobody is asked about it.
  'tx-rollback': () => {
    const checker = decides(COMMIT);
    return producer('rolled-back', sender => consumer('sees-none', 'rolled-back', async worker => {
      const transaction = sender.beginTransaction();
      await sender.send(message('rolled-back', 'never'), transaction);
      await transaction.rollback();
      await nothing(worker, 6_000);
      same(checker.asked, 0);
    }), checker);
  },

  // tx-late-commit and tx-other-gateway: a commit is good after the proxy of RocketMQ would have
  // forgotten the transaction, and after the gateway was killed.
  'tx-late': () => producer('late', sender => consumer('late', 'late', async worker => {
    const transaction = sender.beginTransaction();
    await sender.send(message('late', 'at last'), transaction);
    await killed();
    for (const end = Date.now() + 32_000; Date.now() < end;) {
      same(await ifServed(() => worker.receive(1, LEAST_HIDDEN_MS)) ?? [], []);
    }
    await transaction.commit();
    const [found] = await some(worker, 1);
    same(text(found), 'at last');
    await worker.ack(found);
  }), decides(UNKNOWN)),

  // The producer is gone: another one of the topic is asked, and decides.
  'tx-crash': async () => {
    await producer('crashed', sender => sender.send(message('crashed', 'kept'), sender.beginTransaction()), decides(UNKNOWN));
    const checker = decides(COMMIT);
    await producer('crashed', () => consumer('kept', 'crashed', async worker => {
      const [found] = await some(worker, 1);
      same(text(found), 'kept');
      must(checker.asked, 'nobody was asked');
      await worker.ack(found);
    }), checker);
  },
};
