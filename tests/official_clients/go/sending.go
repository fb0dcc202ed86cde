package main

// Rows about what is sent and found: bodies, polls, refusals, filters.

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// longPollWakes: a receive that waits in one queue is woken by a message of another.
func longPollWakes() {
	sender := producer(rmq.UNKNOWN, "waits")
	defer sender.GracefulStop()
	worker := consumerOf("waits", "waits", rmq.SUB_ALL, 20*time.Second)
	defer worker.GracefulStop()
	for number := 0; number < 8; number++ {
		sentAt, failed := make(chan time.Time, 1), make(chan error, 1)
		go func() {
			time.Sleep(500 * time.Millisecond)
			sentAt <- time.Now()
			_, err := trySend(sender, message("waits", "x"))
			failed <- err
		}()
		found := some(worker, 1)
		took := time.Since(<-sentAt)
		done(<-failed)
		require(took < 2500*time.Millisecond, "it came after ", took)
		ack(worker, found...)
	}
}

func shortPolls() {
	for _, wait := range []time.Duration{time.Second, 3 * time.Second} {
		worker := consumerOf("short", "short", rmq.SUB_ALL, wait)
		defer worker.GracefulStop()
		receive(worker)
		began := time.Now()
		same(len(receive(worker)), 0)
		took := time.Since(began)
		require(wait-time.Second/2 < took && took < wait+2*time.Second, wait, " are ", took)
	}
}

// receivesAtOnce: this client waits for its settings before it receives.
func receivesAtOnce() {
	starts, err := strconv.Atoi(os.Getenv("ROW_STARTS"))
	if err != nil {
		starts = 20
	}
	for ; starts > 0; starts-- {
		worker := consumerOf("at-once", "at-once", rmq.SUB_ALL, time.Second)
		receive(worker)
		done(worker.GracefulStop())
	}
}

// largeBodies are compressible-body and big-body.
func largeBodies() {
	sender := producer(rmq.UNKNOWN, "bodies")
	defer sender.GracefulStop()
	worker := consumer("bodies", "bodies", "*")
	defer worker.GracefulStop()
	text, random := bytes.Repeat([]byte("all the same "), 20<<10), make([]byte, (4<<20)-(64<<10))
	_, err := rand.Read(random)
	done(err)
	for _, body := range [][]byte{text[:256<<10], random} {
		send(sender, &rmq.Message{Topic: "bodies", Body: body})
		found := some(worker, 1)
		require(bytes.Equal(found[0].GetBody(), body), "another body comes")
		ack(worker, found...)
	}
}

func tooBig() {
	sender := producer(rmq.UNKNOWN, "too-big")
	defer sender.GracefulStop()
	worker := consumer("too-big", "too-big", "*")
	defer worker.GracefulStop()
	_, err := trySend(sender, &rmq.Message{Topic: "too-big", Body: make([]byte, (4<<20)+1)})
	refused(err, "exceed")
	_, err = trySend(sender, message("too-big", ""))
	refused(err, "MESSAGE_BODY_EMPTY")
	nothing(worker, time.Second)
}

// badFields are bad-tag, bad-key, bad-group, bad-property, too-many-properties.
func badFields() {
	sender := producer(rmq.UNKNOWN, "odd")
	defer sender.GracefulStop()
	worker := consumer("odd", "odd", "*")
	defer worker.GracefulStop()
	for code, spoil := range map[string]func(*rmq.Message){
		"ILLEGAL_MESSAGE_TAG":          func(odd *rmq.Message) { odd.SetTag("two\nlines") },
		"ILLEGAL_MESSAGE_KEY":          func(odd *rmq.Message) { odd.SetKeys("two words") },
		"ILLEGAL_MESSAGE_GROUP":        func(odd *rmq.Message) { odd.SetMessageGroup(strings.Repeat("g", 64)) },
		"ILLEGAL_MESSAGE_PROPERTY_KEY": func(odd *rmq.Message) { odd.AddProperty("KEYS", "of the store's own") },
		"MESSAGE_PROPERTIES_TOO_LARGE": func(odd *rmq.Message) {
			for number := 0; number < 129; number++ {
				odd.AddProperty(fmt.Sprint("p", number), "x")
			}
		},
	} {
		odd := message("odd", "x")
		spoil(odd)
		_, err := trySend(sender, odd)
		refused(err, code)
	}
	nothing(worker, time.Second)
}

func permissions() {
	sender := producer(rmq.UNKNOWN, "no-write")
	defer sender.GracefulStop()
	_, err := trySend(sender, message("no-write", "x"))
	refused(err, "writ")
	worker := consumer("no-read", "no-read", "*")
	defer worker.GracefulStop()
	_, err = worker.Receive(context.Background(), 1, hidden)
	refused(err, "read")
}

func wrongType() {
	sender := producer(rmq.UNKNOWN, "wrong-type")
	defer sender.GracefulStop()
	worker := consumer("wrong-type", "wrong-type", "*")
	defer worker.GracefulStop()
	ordered, delayed := message("wrong-type", "x"), message("wrong-type", "x")
	ordered.SetMessageGroup("one")
	delayed.SetDelayTimestamp(time.Now().Add(5 * time.Second))
	for _, wanted := range []*rmq.Message{ordered, delayed} {
		_, err := trySend(sender, wanted)
		refused(err, "type")
	}
	nothing(worker, 6*time.Second)
}

func mixedTopic() {
	sender := producer(rmq.UNKNOWN, "mixed")
	defer sender.GracefulStop()
	worker := consumer("mixed", "mixed", "*")
	defer worker.GracefulStop()
	ordered, delayed := message("mixed", "ordered"), message("mixed", "delayed")
	ordered.SetMessageGroup("one")
	delayed.SetDelayTimestamp(time.Now().Add(2 * time.Second))
	for _, sent := range []*rmq.Message{message("mixed", "normal"), ordered, delayed} {
		send(sender, sent)
	}
	found := some(worker, 3)
	same(bodies(found), []string{"delayed", "normal", "ordered"})
	ack(worker, found...)
}

func sqlFilter() {
	sender := producer(rmq.UNKNOWN, "selected")
	defer sender.GracefulStop()
	wanted := rmq.NewFilterExpressionWithType("a > 5 AND b = 'x'", rmq.SQL92)
	worker := consumerOf("selects", "selected", wanted, await)
	defer worker.GracefulStop()
	for number := 0; number < 10; number++ {
		made := message("selected", fmt.Sprint(number))
		made.AddProperty("a", fmt.Sprint(number))
		made.AddProperty("b", []string{"x", "y"}[number%2])
		send(sender, made)
	}
	found := some(worker, 2)
	same(bodies(found), []string{"6", "8"})
	ack(worker, found...)
	nothing(worker, time.Second)
}

func delayPast() {
	sender := producer(rmq.UNKNOWN, "past")
	defer sender.GracefulStop()
	worker := consumer("past", "past", "*")
	defer worker.GracefulStop()
	past, never := message("past", "at once"), message("past", "never")
	past.SetDelayTimestamp(time.Now().Add(-time.Minute))
	send(sender, past)
	began := time.Now()
	ack(worker, some(worker, 1)...)
	require(time.Since(began) < deadline/4, "it comes late")
	never.SetDelayTimestamp(time.Now().AddDate(0, 0, 800))
	_, err := trySend(sender, never)
	refused(err, "ILLEGAL_DELIVERY_TIME")
}
