package main

// Rows about messages that are handed out: hidden, given again, acknowledged, shared.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

const oldHandle = "INVALID_RECEIPT_HANDLE"

func redeliver() {
	sender := producer(rmq.UNKNOWN, "comes-again")
	defer sender.GracefulStop()
	worker := consumer("again", "comes-again", "*")
	defer worker.GracefulStop()
	sent := send(sender, message("comes-again", "twice"))
	asked := time.Now()
	first := someHidden(worker, 1, leastHidden)[0]
	at := time.Now()
	second := some(worker, 1)[0]
	require(time.Since(asked) >= leastHidden, "it comes early")
	require(time.Since(at) < leastHidden+2*time.Second, "after ", time.Since(at))
	same([]string{second.GetMessageId(), string(second.GetBody())}, []string{sent.MessageID, "twice"})
	same([]int32{first.GetDeliveryAttempt(), second.GetDeliveryAttempt()}, []int32{1, 2})
	ack(worker, second)
	nothing(worker, 2*time.Second)
}

func extend() {
	sender := producer(rmq.UNKNOWN, "hidden-on")
	defer sender.GracefulStop()
	worker := consumer("hides-on", "hidden-on", "*")
	defer worker.GracefulStop()
	send(sender, message("hidden-on", "x"))
	first := someHidden(worker, 1, leastHidden)[0]
	asked := time.Now()
	done(worker.ChangeInvisibleDuration(first, 20*time.Second))
	at := time.Now()
	second := some(worker, 1)
	require(time.Since(asked) >= 20*time.Second, "it comes early")
	require(time.Since(at) < 22500*time.Millisecond, "after ", time.Since(at))
	ack(worker, second...)
}

// oldHandles are ack-expired and ack-old-handle: an old handle settles no newer delivery. This client
// does not show that its acknowledgement was refused, only that its change was.
func oldHandles() {
	sender := producer(rmq.UNKNOWN, "expired")
	defer sender.GracefulStop()
	worker := consumer("expires", "expired", "*")
	defer worker.GracefulStop()
	send(sender, message("expired", "x"))
	first := someHidden(worker, 1, leastHidden)[0]
	handle := first.GetReceiptHandle()
	done(worker.ChangeInvisibleDuration(first, leastHidden))
	first.ReceiptHandle = handle
	ack(worker, first)
	refused(worker.ChangeInvisibleDuration(first, leastHidden), oldHandle)
	second := someHidden(worker, 1, leastHidden)[0]
	first.ReceiptHandle = handle
	ack(worker, first)
	third := some(worker, 1)[0]
	same([]int32{second.GetDeliveryAttempt(), third.GetDeliveryAttempt()}, []int32{2, 3})
	ack(worker, third)
}

// foreignHandle: again only a change shows that it was refused.
func foreignHandle() {
	sender := producer(rmq.UNKNOWN, "foreign")
	defer sender.GracefulStop()
	owner, stranger := consumer("owner", "foreign", "*"), consumer("stranger", "foreign", "*")
	defer owner.GracefulStop()
	defer stranger.GracefulStop()
	send(sender, message("foreign", "x"))
	ofOwner := someHidden(owner, 1, 12*time.Second)[0]
	ofStranger := someHidden(stranger, 1, 12*time.Second)[0]
	ack(stranger, ofOwner)
	refused(stranger.ChangeInvisibleDuration(ofOwner, hidden), oldHandle)
	ack(stranger, ofStranger)
	again := some(owner, 1)[0]
	same(again.GetDeliveryAttempt(), int32(2))
	ack(owner, again)
}

// durable is ack-durable and hidden-durable: what was acknowledged never comes again, and what was
// handed out comes when its time is over and not before, with the next attempt.
func durable() {
	sender := producer(rmq.UNKNOWN, "durable")
	defer sender.GracefulStop()
	worker := consumer("durable", "durable", "*")
	defer worker.GracefulStop()
	for number := 0; number < 50; number++ {
		send(sender, message("durable", fmt.Sprint(number)))
	}
	at := time.Now()
	found := someHidden(worker, 50, 30*time.Second)
	held := found[:10]
	ack(worker, found[10:]...)
	killed()
	var again []*rmq.MessageView
	inTime("not all come again", func() bool {
		come, err := tryReceive(worker, 32, hidden)
		if err != nil { // until the client has found the broker again
			return false
		}
		again = append(again, come...)
		return len(again) >= len(held)
	})
	require(time.Since(at) >= 30*time.Second, "they come before their time")
	same(bodies(again), bodies(held))
	for _, one := range again {
		same(one.GetDeliveryAttempt(), int32(2))
	}
	ack(worker, again...)
	nothing(worker, 2*time.Second)
}

func spread() {
	sender := producer(rmq.UNKNOWN, "spread")
	defer sender.GracefulStop()
	var workers [3]rmq.SimpleConsumer
	for number := range workers {
		workers[number] = consumerOf("spread", "spread", rmq.SUB_ALL, time.Second)
		defer workers[number].GracefulStop()
	}
	var sent, seen []string
	for number := 0; number < 60; number++ {
		sent = append(sent, string(send(sender, message("spread", "x")).MessageID))
	}
	var of [len(workers)][]*rmq.MessageView
	for end := time.Now().Add(time.Minute); len(seen) < 60 && time.Now().Before(end); {
		for number, worker := range workers {
			found, err := tryReceive(worker, 4, hidden)
			done(err)
			of[number] = append(of[number], found...)
			for _, one := range found {
				seen = append(seen, one.GetMessageId())
			}
		}
	}
	sort.Strings(sent)
	sort.Strings(seen)
	same(seen, sent)
	for number, worker := range workers {
		require(len(of[number]) > 0, "one of them has none")
		ack(worker, of[number]...)
	}
}

func newGroup() {
	sender := producer(rmq.UNKNOWN, "older")
	defer sender.GracefulStop()
	for number := 0; number < 5; number++ {
		send(sender, message("older", fmt.Sprint(number)))
	}
	worker := consumer("comes-late", "older", "*")
	defer worker.GracefulStop()
	found := some(worker, 5)
	same(bodies(found), []string{"0", "1", "2", "3", "4"})
	ack(worker, found...)
}

// slowConsumer: a listener takes longer than a message is hidden.
func slowConsumer() {
	sender := producer(rmq.UNKNOWN, "slow")
	defer sender.GracefulStop()
	seen, ended := &seenBodies{}, make(chan bool, 16)
	pushed := push("slow", "slow", func(found *rmq.MessageView) rmq.ConsumerResult {
		seen.add(fmt.Sprint(found.GetDeliveryAttempt()))
		time.Sleep(75 * time.Second)
		ended <- true
		return rmq.SUCCESS
	})
	send(sender, message("slow", "x"))
	select {
	case <-ended:
	case <-time.After(deadline):
		panic("no listener has ended")
	}
	done(pushed.GracefulStop())
	worker := consumer("slow", "slow", "*")
	defer worker.GracefulStop()
	nothing(worker, 2*time.Second)
	same(seen.all(), []string{"1"})
}

// reconnect: producer, simple and push consumer go on when the broker is back.
// vanishes: the test that reads the line kills this client, which holds a message.
func vanishes() {
	sender := producer(rmq.UNKNOWN, "vanished")
	defer sender.GracefulStop()
	holds := push("vanished", "vanished", func(*rmq.MessageView) rmq.ConsumerResult {
		fmt.Println("vanish")
		time.Sleep(deadline)
		return rmq.SUCCESS
	})
	defer holds.GracefulStop()
	send(sender, message("vanished", "held"))
	time.Sleep(deadline)
}

// clientGone: what the client held that vanished comes again.
func clientGone() {
	worker := consumer("vanished", "vanished", "*")
	defer worker.GracefulStop()
	found := some(worker, 1)[0]
	same(string(found.GetBody()), "held")
	same(found.GetDeliveryAttempt(), int32(2))
	ack(worker, found)
}

func reconnect() {
	sender := producer(rmq.UNKNOWN, "reached")
	defer sender.GracefulStop()
	worker := consumer("reaches", "reached", "*")
	defer worker.GracefulStop()
	seen := &seenBodies{}
	pushed := push("reaches-too", "reached", func(found *rmq.MessageView) rmq.ConsumerResult {
		seen.add(string(found.GetBody()))
		return rmq.SUCCESS
	})
	defer pushed.GracefulStop()
	send(sender, message("reached", "before"))
	ack(worker, some(worker, 1)...)
	same(seen.await(1), []string{"before"})
	killed()
	began := time.Now()
	inTime("no send", func() bool {
		_, err := trySend(sender, message("reached", "after"))
		return err == nil
	})
	var found []*rmq.MessageView
	inTime("the simple consumer has nothing", func() bool {
		found, _ = tryReceive(worker, 1, hidden) // an error until the client has found the broker again
		return len(found) > 0
	})
	// What a lost master's slave has not heard of is given again.
	inTime("the push consumer has nothing", func() bool { return slices.Contains(seen.all(), "after") })
	took := time.Since(began)
	require(took < deadline, "after ", took)
	ack(worker, found...)
}

// manyClients: ROW_CLIENTS of them wait for messages until the test has seen enough.
func manyClients() {
	count, err := strconv.Atoi(os.Getenv("ROW_CLIENTS"))
	done(err)
	var over atomic.Bool
	var ended sync.WaitGroup
	failures := make(chan error, count)
	for range make([]int, count) {
		worker := consumerOf("many", "many", rmq.NewFilterExpression("*"), 20*time.Second)
		ended.Add(1)
		go func() {
			defer ended.Done()
			defer worker.GracefulStop()
			for !over.Load() {
				found, err := tryReceive(worker, 32, hidden)
				for _, one := range found {
					err = errors.Join(err, worker.Ack(context.Background(), one))
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	killed()
	over.Store(true)
	ended.Wait()
	require(len(failures) == 0, len(failures), " have failed")
}
