// Rows of the acceptance page, by RocketMQ's Go client of version 5. Usage: rows ENDPOINT ROW...
// A row that wants the broker's processes killed prints `kill`, and reads `back` when they run again.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

var rows = map[string]func(){
	"normal-fields":    normalFields,
	"push-once":        pushOnce,
	"max-attempts-dlq": deadLetters,
	"fifo-order":       order,
	"fifo-retry-order": orderOfRetries,
	"fifo-dlq":         deadLettersInOrder,
	"delay":            delay,
	"tx-commit":        transactions,
	"tx-check":         check,
	"tag-filter":       tags,
	"wrong-topic":      wrongTopic,
	"nack":             nack,

	"long-poll-wakes":         longPollWakes,
	"long-poll-short":         shortPolls,
	"receive-before-settings": receivesAtOnce,
	"bodies":                  largeBodies,
	"bad-fields":              badFields,
	"too-big":                 tooBig,
	"no-write-no-read":        permissions,
	"wrong-type":              wrongType,
	"mixed-topic":             mixedTopic,
	"sql-filter":              sqlFilter,
	"delay-past":              delayPast,

	"redeliver":           redeliver,
	"extend":              extend,
	"old-handles":         oldHandles,
	"foreign-handle":      foreignHandle,
	"durable":             durable,
	"spread":              spread,
	"new-group":           newGroup,
	"slow-consumer-renew": slowConsumer,
	"vanishes":            vanishes,
	"client-gone":         clientGone,
	"many-clients":        manyClients,
	"reconnect":           reconnect,

	"at-least-once": atLeastOnce,

	"fifo-block":        blocks,
	"fifo-stable-queue": stableQueue,
	"tx-rollback":       rolledBack,
	"tx-late":           lateCommit,
	"tx-crash":          crashedProducer,
}

func main() {
	good := true
	for _, name := range os.Args[2:] {
		if failure := play(rows[name]); failure != nil {
			good = false
			fmt.Printf("%s\t%v\n", name, failure)
		} else {
			fmt.Printf("%s\tok\n", name)
		}
	}
	if !good {
		os.Exit(1)
	}
}

func play(row func()) (failure any) {
	defer func() { failure = recover() }()
	row()
	return nil
}

func normalFields() {
	sender := producer(rmq.UNKNOWN, "normal")
	defer sender.GracefulStop()
	worker := consumer("fields", "normal", "*")
	defer worker.GracefulStop()
	made := message("normal", "whole")
	made.SetTag("paid")
	made.SetKeys("k1", "k2")
	made.AddProperty("colour", "blau ü")
	sent := send(sender, made)
	found := some(worker, 1)[0]
	same([]string{found.GetMessageId(), string(found.GetBody()), *found.GetTag()}, []string{sent.MessageID, "whole", "paid"})
	same(found.GetKeys(), []string{"k1", "k2"})
	same(found.GetProperties(), map[string]string{"colour": "blau ü"})
	same(found.GetDeliveryAttempt(), int32(1))
	ack(worker, found)
	same(len(receive(worker)), 0)
}

func pushOnce() {
	sender := producer(rmq.UNKNOWN, "pushed")
	defer sender.GracefulStop()
	seen := &seenBodies{}
	worker := push("push-once", "pushed", func(found *rmq.MessageView) rmq.ConsumerResult {
		seen.add(string(found.GetBody()))
		return rmq.SUCCESS
	})
	var sent []string
	for number := 0; number < 40; number++ {
		body := fmt.Sprint("m", number)
		send(sender, message("pushed", body))
		sent = append(sent, body)
	}
	bodies := seen.await(40)
	done(worker.GracefulStop())
	sort.Strings(bodies)
	sort.Strings(sent)
	same(bodies, sent)
}

func deadLetters() {
	sender := producer(rmq.UNKNOWN, "failing")
	defer sender.GracefulStop()
	seen := &seenBodies{}
	worker := push("one-retry", "failing", func(found *rmq.MessageView) rmq.ConsumerResult {
		seen.add(strconv.Itoa(int(found.GetDeliveryAttempt())))
		return rmq.FAILURE
	})
	sent := send(sender, message("failing", "poison"))
	attempts := seen.await(2)
	done(worker.GracefulStop())
	buried("letters", "%DLQ%one-retry", sent.MessageID)
	same(attempts, []string{"1", "2"})
}

func buried(group, topic, id string) {
	letters := whenThere(group, topic)
	defer letters.GracefulStop()
	found := some(letters, 1)[0]
	same(found.GetMessageId(), id)
	ack(letters, found)
}

func order() {
	sender := producer(rmq.UNKNOWN, "steps")
	defer sender.GracefulStop()
	worker := consumer("in-order", "steps", "*")
	defer worker.GracefulStop()
	for number := 0; number < 12; number++ {
		made := message("steps", strconv.Itoa(number))
		made.SetMessageGroup(fmt.Sprint("g", number%3))
		send(sender, made)
	}
	seen := map[string][]string{}
	left := 12
	for end := time.Now().Add(deadline); left > 0 && time.Now().Before(end); {
		for _, found := range receive(worker) {
			group := *found.GetMessageGroup()
			seen[group] = append(seen[group], string(found.GetBody()))
			ack(worker, found)
			left--
		}
	}
	same(seen, map[string][]string{
		"g0": {"0", "3", "6", "9"}, "g1": {"1", "4", "7", "10"}, "g2": {"2", "5", "8", "11"}})
}

func orderOfRetries() {
	sender := producer(rmq.UNKNOWN, "retried-steps")
	defer sender.GracefulStop()
	seen := &seenBodies{}
	worker := push("retried-in-order", "retried-steps", func(found *rmq.MessageView) rmq.ConsumerResult {
		if seen.add(string(found.GetBody())) == 1 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	for number := 0; number < 4; number++ {
		made := message("retried-steps", strconv.Itoa(number))
		made.SetMessageGroup("one")
		send(sender, made)
	}
	bodies := seen.await(5)
	done(worker.GracefulStop())
	same(bodies, []string{"0", "0", "1", "2", "3"})
}

func deadLettersInOrder() {
	sender := producer(rmq.UNKNOWN, "poisoned-steps")
	defer sender.GracefulStop()
	seen := &seenBodies{}
	worker := push("poisoned", "poisoned-steps", func(found *rmq.MessageView) rmq.ConsumerResult {
		body := string(found.GetBody())
		seen.add(body)
		if body == "poison" {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	ids := map[string]string{}
	for _, body := range []string{"poison", "next"} {
		made := message("poisoned-steps", body)
		made.SetMessageGroup("one")
		ids[body] = send(sender, made).MessageID
	}
	bodies := seen.await(3)
	done(worker.GracefulStop())
	same(bodies, []string{"poison", "poison", "next"})
	buried("poisoned-letters", "%DLQ%poisoned", ids["poison"])
}

func delay() {
	sender := producer(rmq.UNKNOWN, "later")
	defer sender.GracefulStop()
	worker := consumer("delayed", "later", "*")
	defer worker.GracefulStop()
	made := message("later", "in time")
	due := time.Now().Add(3 * time.Second)
	made.SetDelayTimestamp(due)
	send(sender, made)
	found := some(worker, 1)[0]
	require(!time.Now().Before(due.Truncate(time.Millisecond)), "it came early")
	ack(worker, found)
}

func transactions() {
	sender := producer(rmq.UNKNOWN, "paid")
	defer sender.GracefulStop()
	worker := consumer("paid", "paid", "*")
	defer worker.GracefulStop()
	committed := sendHalf(sender, message("paid", "committed"))
	rolledBack := sendHalf(sender, message("paid", "rolled back"))
	require(len(receive(worker)) == 0, "it is seen before its commit")
	done(committed.Commit())
	done(rolledBack.RollBack())
	found := some(worker, 1)[0]
	same(string(found.GetBody()), "committed")
	ack(worker, found)
	require(len(receive(worker)) == 0, "something else is seen")
}

func check() {
	sender := producer(rmq.COMMIT, "checked")
	defer sender.GracefulStop()
	worker := consumer("checked", "checked", "*")
	defer worker.GracefulStop()
	sendHalf(sender, message("checked", "asked"))
	ack(worker, some(worker, 1)...)
}

func tags() {
	sender := producer(rmq.UNKNOWN, "tagged")
	defer sender.GracefulStop()
	worker := consumer("tags", "tagged", "Aa || C")
	defer worker.GracefulStop()
	for _, tag := range []string{"Aa", "BB", "C"} {
		made := message("tagged", tag)
		made.SetTag(tag)
		send(sender, made)
	}
	found := some(worker, 2)
	same(bodies(found), []string{"Aa", "C"})
	ack(worker, found...)
}

// wrongTopic is seen by a consumer: a producer of this client asks for the route for ever.
func wrongTopic() {
	worker, err := startConsumer("nowhere", "not-there", rmq.SUB_ALL, await)
	if err == nil {
		defer worker.GracefulStop()
		_, err = worker.Receive(context.Background(), 1, hidden)
	}
	refused(err, "TOPIC_NOT_FOUND")
}

func nack() {
	sender := producer(rmq.UNKNOWN, "given-back")
	defer sender.GracefulStop()
	worker := consumer("gives-back", "given-back", "*")
	defer worker.GracefulStop()
	send(sender, message("given-back", "again"))
	first := some(worker, 1)[0]
	done(worker.ChangeInvisibleDuration(first, 2*time.Second))
	second := some(worker, 1)[0]
	same(second.GetDeliveryAttempt(), int32(2))
	ack(worker, second)
	require(len(receive(worker)) == 0, "it comes again")
}
