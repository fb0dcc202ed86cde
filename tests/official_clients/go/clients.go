package main

// What the rows are written with, over RocketMQ's Go client of version 5.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	hidden      = 60 * time.Second
	leastHidden = 10 * time.Second // RocketMQ's own limit
	await       = 5 * time.Second
	deadline    = 120 * time.Second
)

func require(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}

func same(found, wanted any) {
	require(reflect.DeepEqual(found, wanted), found, ", and not ", wanted)
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

// client: ROW_ROUTE_S is how long its queries for routes may take, by default 3 s. Each of them waits while
// another call dials an address that is lost, for 5 s.
func client(config *rmq.Config, options ...rmq.ClientOption) (rmq.Client, error) {
	seconds, err := strconv.Atoi(os.Getenv("ROW_ROUTE_S"))
	if err != nil {
		return nil, err
	}
	return rmq.NewClient(config, append(options, rmq.WithQueryRouteTimeout(time.Duration(seconds)*time.Second))...)
}

func producer(decision rmq.TransactionResolution, topics ...string) rmq.Producer {
	return producerAsked(new(atomic.Int32), decision, topics...)
}

// producerAsked counts how often it is asked about transactions.
func producerAsked(asked *atomic.Int32, decision rmq.TransactionResolution, topics ...string) rmq.Producer {
	checker := &rmq.TransactionChecker{
		Check: func(*rmq.MessageView) rmq.TransactionResolution {
			asked.Add(1)
			return decision
		},
	}
	made, err := rmq.NewProducer(config(""),
		rmq.WithClientFunc(client), rmq.WithTransactionChecker(checker), rmq.WithTopics(topics...))
	done(err)
	done(made.Start())
	return made
}

func startConsumer(
	group, topic string, expression *rmq.FilterExpression, wait time.Duration,
) (rmq.SimpleConsumer, error) {
	wanted := map[string]*rmq.FilterExpression{topic: expression}
	made, err := rmq.NewSimpleConsumer(
		config(group), rmq.WithClientFuncForSimpleConsumer(client),
		rmq.WithSimpleAwaitDuration(wait), rmq.WithSimpleSubscriptionExpressions(wanted))
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func consumer(group, topic, tags string) rmq.SimpleConsumer {
	return consumerOf(group, topic, rmq.NewFilterExpression(tags), await)
}

func consumerOf(
	group, topic string, expression *rmq.FilterExpression, wait time.Duration,
) rmq.SimpleConsumer {
	made, err := startConsumer(group, topic, expression, wait)
	done(err)
	return made
}

// whenThere: the topic of dead letters is there once the first message was buried.
func whenThere(group, topic string) rmq.SimpleConsumer {
	for end := time.Now().Add(deadline); ; time.Sleep(time.Second) {
		made, err := startConsumer(group, topic, rmq.SUB_ALL, await)
		if err == nil {
			return made
		}
		require(time.Now().Before(end), err)
	}
}

func push(group, topic string, take func(*rmq.MessageView) rmq.ConsumerResult) rmq.PushConsumer {
	wanted := map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}
	made, err := rmq.NewPushConsumer(config(group),
		rmq.WithPushAwaitDuration(await),
		rmq.WithPushSubscriptionExpressions(wanted),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: take}),
		rmq.WithPushConsumptionThreadCount(4),
		rmq.WithPushMaxCacheMessageCount(1024))
	done(err)
	done(made.Start())
	return made
}

func message(topic, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func trySend(sender rmq.Producer, sent *rmq.Message) (*rmq.SendReceipt, error) {
	limit, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	receipts, err := sender.Send(limit, sent)
	if err != nil {
		return nil, err
	}
	return receipts[0], nil
}

func send(sender rmq.Producer, sent *rmq.Message) *rmq.SendReceipt {
	receipt, err := trySend(sender, sent)
	done(err)
	return receipt
}

// sendHalf: a message of a transaction, which its producer ends.
func sendHalf(sender rmq.Producer, sent *rmq.Message) rmq.Transaction {
	transaction := sender.BeginTransaction()
	_, err := sender.SendWithTransaction(context.Background(), sent, transaction)
	done(err)
	return transaction
}

// tryReceive: nothing to receive is an error of this client, and so is an answer that comes 3 s late,
// which happens on a busy machine.
func tryReceive(worker rmq.SimpleConsumer, count int32, hidden time.Duration) ([]*rmq.MessageView, error) {
	found, err := worker.Receive(context.Background(), count, hidden)
	for _, none := range []string{"MESSAGE_NOT_FOUND", "DEADLINE_EXCEEDED"} {
		if err != nil && strings.Contains(err.Error(), none) {
			return nil, nil
		}
	}
	return found, err
}

func receive(worker rmq.SimpleConsumer) []*rmq.MessageView {
	found, err := tryReceive(worker, 32, hidden)
	done(err)
	return found
}

func some(worker rmq.SimpleConsumer, count int) []*rmq.MessageView {
	return someHidden(worker, count, hidden)
}

func someHidden(worker rmq.SimpleConsumer, count int, hidden time.Duration) []*rmq.MessageView {
	var all []*rmq.MessageView
	for end := time.Now().Add(deadline); len(all) < count && time.Now().Before(end); {
		found, err := tryReceive(worker, 32, hidden)
		done(err)
		all = append(all, found...)
	}
	require(len(all) == count, len(all), " messages came, and not ", count)
	return all
}

// nothing comes for so long.
func nothing(worker rmq.SimpleConsumer, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		for _, found := range receive(worker) {
			panic(fmt.Sprint(string(found.GetBody()), " comes, attempt ", found.GetDeliveryAttempt()))
		}
	}
}

func ack(worker rmq.SimpleConsumer, all ...*rmq.MessageView) {
	for _, found := range all {
		done(worker.Ack(context.Background(), found))
	}
}

func bodies(all []*rmq.MessageView) []string {
	var found []string
	for _, one := range all {
		found = append(found, string(one.GetBody()))
	}
	sort.Strings(found)
	return found
}

// refused: any of the words is in the client's error.
func refused(err error, words ...string) {
	require(err != nil, "it is not refused")
	for _, word := range words {
		if strings.Contains(err.Error(), word) {
			return
		}
	}
	panic(err)
}

func inTime(what string, holds func() bool) {
	for end := time.Now().Add(deadline); !holds(); time.Sleep(50 * time.Millisecond) {
		require(time.Now().Before(end), what)
	}
}

// killed: every process of the broker is killed and started again by who reads this line.
func killed() {
	fmt.Println("kill")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	done(err)
	same(answer, "back\n")
}

// seenBodies is what a push consumer was given, in order.
type seenBodies struct {
	lock   sync.Mutex
	bodies []string
}

func (seen *seenBodies) add(body string) int {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	seen.bodies = append(seen.bodies, body)
	return len(seen.bodies)
}

func (seen *seenBodies) await(count int) []string {
	for end := time.Now().Add(deadline); ; time.Sleep(50 * time.Millisecond) {
		bodies := seen.all()
		if len(bodies) >= count {
			return bodies
		}
		require(time.Now().Before(end), "seen ", bodies)
	}
}

func (seen *seenBodies) all() []string {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	return append([]string{}, seen.bodies...)
}
