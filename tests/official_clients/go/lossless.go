package main

// at-least-once: processes are killed while messages are sent, received and acknowledged.

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	pb "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
)

const (
	kills         = 5
	workers       = 4
	shortlyHidden = 30 * time.Second
	again         = 2 * shortlyHidden // until what comes again has come: a busy machine is late
)

// answered is where a call's context has the status of its answer.
type answered struct{}

// seeAcks: Ack shows no refusal. Connections made from now on keep the status of each of its answers.
func seeAcks() {
	made := rmq.NewRpcClient
	see := func(
		ctx context.Context, method string, asked, answer any,
		connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		err := call(ctx, method, asked, answer, connection, options...)
		acked, isAck := answer.(*pb.AckMessageResponse)
		if status, ok := ctx.Value(answered{}).(*pb.Code); ok && isAck {
			*status = acked.GetStatus().GetCode()
		}
		return err
	}
	seeing := rmq.WithRpcClientConnOption(rmq.WithDialOptions(grpc.WithChainUnaryInterceptor(see)))
	rmq.NewRpcClient = func(target string, options ...rmq.RpcClientOption) (rmq.RpcClient, error) {
		return made(target, append(options, seeing)...)
	}
}

func isAcknowledged(worker rmq.SimpleConsumer, found *rmq.MessageView) bool {
	status := pb.Code_CODE_UNSPECIFIED
	err := worker.Ack(context.WithValue(context.Background(), answered{}, &status), found)
	return err == nil && status == pb.Code_OK
}

// work is what workers do until they are stopped. Calls that fail are of a broker that is away.
type work struct {
	lock                             sync.Mutex
	received, acknowledged, cameBack map[string]bool
	stopped                          atomic.Bool
	ended                            sync.WaitGroup
}

func startWork(worker rmq.SimpleConsumer) *work {
	made := &work{received: map[string]bool{}, acknowledged: map[string]bool{}, cameBack: map[string]bool{}}
	for range make([]int, workers) {
		made.ended.Add(1)
		go func() {
			defer made.ended.Done()
			for !made.stopped.Load() {
				made.settleSome(worker)
			}
		}()
	}
	return made
}

func (work *work) settleSome(worker rmq.SimpleConsumer) {
	all, err := tryReceive(worker, 32, shortlyHidden)
	if err != nil {
		time.Sleep(200 * time.Millisecond)
		return
	}
	for _, found := range all {
		id := found.GetMessageId()
		work.lock.Lock()
		work.received[id] = true
		if work.acknowledged[id] {
			work.cameBack[id] = true
		}
		work.lock.Unlock()
		if isAcknowledged(worker, found) {
			work.lock.Lock()
			work.acknowledged[id] = true
			work.lock.Unlock()
		}
	}
}

func (work *work) hasReceived(sent []string) bool {
	work.lock.Lock()
	defer work.lock.Unlock()
	for _, id := range sent {
		if !work.received[id] {
			return false
		}
	}
	return true
}

func (work *work) stop() {
	work.stopped.Store(true)
	work.ended.Wait()
}

// atLeastOnce: every message whose send was answered is received, and none whose acknowledgement was answered
// comes again. One whose acknowledgement was stored and not answered need not.
func atLeastOnce() {
	seeAcks()
	count := 1_000
	if given, err := strconv.Atoi(os.Getenv("ROW_MESSAGES")); err == nil {
		count = given
	}
	sender := producer(rmq.UNKNOWN, "lossless")
	defer sender.GracefulStop()
	worker := consumerOf("lossless", "lossless", rmq.SUB_ALL, time.Second)
	defer worker.GracefulStop()
	work := startWork(worker)
	defer work.stop()
	var sent []string
	for number := 0; number < count; number++ {
		if number%(count/kills) == count/kills/2 {
			killed()
		}
		made := message("lossless", fmt.Sprint(number))
		inTime(fmt.Sprint(number, " is not sent"), func() bool {
			receipt, err := trySend(sender, made)
			if err == nil {
				sent = append(sent, receipt.MessageID)
			}
			return err == nil
		})
	}
	inTime("not all are received", func() bool { return work.hasReceived(sent) })
	time.Sleep(again)
	work.stop()
	nothing(worker, time.Second)
	require(len(work.cameBack) == 0, len(work.cameBack), " come again, and were acknowledged")
}
