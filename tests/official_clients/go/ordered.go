package main

// Rows about message groups, and about transactions that something happens to.

import (
	"fmt"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

func inGroup(topic, group, body string) *rmq.Message {
	made := message(topic, body)
	made.SetMessageGroup(group)
	return made
}

// blocks is fifo-block and fifo-independent: the second message of a group waits for the first, those
// of another group do not.
func blocks() {
	sender := producer(rmq.UNKNOWN, "blocked")
	defer sender.GracefulStop()
	worker := consumer("blocks", "blocked", "*")
	defer worker.GracefulStop()
	for _, group := range []string{"one", "two"} {
		for _, number := range []string{"1", "2"} {
			send(sender, inGroup("blocked", group, group+" "+number))
		}
	}
	held := map[string]*rmq.MessageView{}
	first := some(worker, 2)
	for _, found := range first {
		held[string(found.GetBody())] = found
	}
	same(bodies(first), []string{"one 1", "two 1"})
	nothing(worker, 2*time.Second)
	ack(worker, held["two 1"])
	at := time.Now()
	found := some(worker, 1)
	same(bodies(found), []string{"two 2"})
	require(time.Since(at) < 3*time.Second, "it comes late")
	ack(worker, found[0], held["one 1"])
	found = some(worker, 1)
	same(bodies(found), []string{"one 2"})
	ack(worker, found...)
}

// stableQueue: a group's messages are in one queue, before and after the broker was killed: their
// places follow one another.
func stableQueue() {
	sender := producer(rmq.UNKNOWN, "one-queue")
	defer sender.GracefulStop()
	var wanted, offsets, seen []string
	for number := 0; number < 20; number++ {
		if number == 10 {
			killed()
		}
		wanted = append(wanted, fmt.Sprint(number))
		inTime("it is not sent", func() bool {
			sent, err := trySend(sender, inGroup("one-queue", "g", fmt.Sprint(number)))
			if err == nil {
				offsets = append(offsets, fmt.Sprint(sent.Offset))
			}
			return err == nil
		})
	}
	worker := consumer("reads-one-queue", "one-queue", "*")
	defer worker.GracefulStop()
	for len(seen) < 20 {
		found := some(worker, 1)
		seen = append(seen, bodies(found)...)
		ack(worker, found...)
	}
	same([][]string{seen, offsets}, [][]string{wanted, wanted})
}

// rolledBack: never visible, and nobody is asked about it.
func rolledBack() {
	asked := new(atomic.Int32)
	sender := producerAsked(asked, rmq.COMMIT, "rolled-back")
	defer sender.GracefulStop()
	worker := consumer("sees-none", "rolled-back", "*")
	defer worker.GracefulStop()
	done(sendHalf(sender, message("rolled-back", "never")).RollBack())
	nothing(worker, 6*time.Second)
	same(asked.Load(), int32(0))
}

// lateCommit is tx-late-commit and tx-other-gateway: a commit is good after the proxy of RocketMQ would
// have forgotten the transaction, and after the gateway was killed.
func lateCommit() {
	sender := producer(rmq.UNKNOWN, "late")
	defer sender.GracefulStop()
	worker := consumer("late", "late", "*")
	defer worker.GracefulStop()
	transaction := sendHalf(sender, message("late", "at last"))
	killed()
	for end := time.Now().Add(32 * time.Second); time.Now().Before(end); {
		found, err := tryReceive(worker, 1, leastHidden)
		require(len(found) == 0, "it is seen before its commit")
		if err != nil { // until the client has found the broker again
			time.Sleep(200 * time.Millisecond)
		}
	}
	done(transaction.Commit())
	found := some(worker, 1)
	same(bodies(found), []string{"at last"})
	ack(worker, found...)
}

// crashedProducer: the producer is gone, so another one of the topic is asked, and decides.
func crashedProducer() {
	gone := producer(rmq.UNKNOWN, "crashed")
	sendHalf(gone, message("crashed", "kept"))
	done(gone.GracefulStop())
	asked := new(atomic.Int32)
	sender := producerAsked(asked, rmq.COMMIT, "crashed")
	defer sender.GracefulStop()
	worker := consumer("kept", "crashed", "*")
	defer worker.GracefulStop()
	found := some(worker, 1)
	same(bodies(found), []string{"kept"})
	require(asked.Load() > 0, "nobody was asked")
	ack(worker, found...)
}
