// What the rows are written with, over RocketMQ's Node.js client of version 5.
'use strict';

const { once } = require('node:events');
const { createInterface } = require('node:readline');

const { Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const HIDDEN_MS = 60_000;
const LEAST_HIDDEN_MS = 10_000; // RocketMQ's own limit
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

function consumer(group, topic, work, { expression = '*', waitMs = 5_000 } = {}) {
  const subscriptions = new Map().set(topic, expression);
  return started(new SimpleConsumer({ ...common, consumerGroup: group, subscriptions, awaitDuration: waitMs }), work);
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
  while (!await holds()) {
    must(Date.now() < deadline, what());
    await pause(50);
  }
}

async function some(client, count, hiddenMs = HIDDEN_MS) {
  const found = [];
  const deadline = Date.now() + DEADLINE_MS;
  while (found.length < count && Date.now() < deadline) found.push(...await client.receive(32, hiddenMs));
  must(found.length === count, `${found.length} messages came, and not ${count}`);
  return found;
}

// Nothing comes for so long.
async function nothing(client, ms) {
  for (const end = Date.now() + ms; Date.now() < end;) {
    for (const found of await client.receive(32, HIDDEN_MS)) {
      must(false, `${text(found)} comes, attempt ${found.deliveryAttempt}`);
    }
  }
}

async function ackAll(client, found) {
  for (const one of found) await client.ack(one);
}

// Any of the words is in the client's error.
async function refused(call, ...words) {
  const error = await call().then(() => 'it is not refused', failure => `${failure}`);
  must(words.some(word => error.includes(word)), error);
}

// What the call gives, or nothing while the client has not found the broker again.
async function ifServed(call) {
  try {
    return await call();
  } catch {
    await pause(200);
  }
}

// Every process of the broker is killed and started again by who reads this line.
async function killed() {
  const answers = createInterface({ input: process.stdin });
  const answer = once(answers, 'line');
  console.log('kill');
  same(await answer, ['back']);
  answers.close();
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

module.exports = {
  HIDDEN_MS, LEAST_HIDDEN_MS, DEADLINE_MS, COMMIT, UNKNOWN, producer, consumer, push, message, text, must,
  same, pause, until, some, nothing, ackAll, refused, ifServed, killed, letter,
};
