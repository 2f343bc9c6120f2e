package isolane

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// instant is the metadata of a server that had the request the whole time, so that the network latency is zero.
var instant = metadata.Pairs(ServerTimeKey, "1000000000")

// backendThat is a server on loopback that runs handle for every call.
func backendThat(t *testing.T, handle func(grpc.ServerStream) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			return err
		}
		return handle(stream)
	}))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func answer(text string, header metadata.MD) func(grpc.ServerStream) error {
	return func(stream grpc.ServerStream) error {
		stream.SetHeader(header)
		return stream.SendMsg(wrapperspb.String(text))
	}
}

// untilGone blocks a call until its client has disconnected.
func untilGone(stream grpc.ServerStream) error {
	<-stream.Context().Done()
	return status.FromContextError(stream.Context().Err()).Err()
}

func invokeOnce(ctx context.Context, conn *Conn) (Outcome, error) {
	var outcome Outcome
	ctx = WithOutcome(WithClassName(ctx, "high"), &outcome)
	err := conn.Invoke(ctx, echoMethod, wrapperspb.String("x"), new(wrapperspb.StringValue),
		grpc.MaxCallRecvMsgSize(64<<20))
	return outcome, err
}

// slowClasses have an objective of a millisecond for each packet.
func slowClasses() Config {
	config := threeClasses()
	config.Classes[0].TargetPerMTU = time.Millisecond
	return config
}

func TestCallsThatTheirDeadlineEndsLowerTheProbability(t *testing.T) {
	var arrived atomic.Int64
	address := backendThat(t, func(stream grpc.ServerStream) error {
		arrived.Add(1)
		return untilGone(stream)
	})
	a, _, _ := at(t, slowClasses())
	conn := dial(t, a, address)
	// On a busy machine a deadline can pass before its call is sent; such a call says nothing about the network.
	const calls, most = 20, 2000
	for made := 0; arrived.Load() < calls; made++ {
		if made == most {
			t.Fatalf("%d of %d calls arrived within 10 ms", arrived.Load(), made)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_, err := invokeOnce(ctx, conn)
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
	}
	counts := a.Reports()[0].Counts
	if p := a.Probability(address, 0); p >= 1 || counts.Missed == 0 {
		t.Fatalf("probability %v after %d calls that lasted ten objectives: %+v", p, calls, counts)
	}
}

func TestACallThatIsCancelledBeforeItsObjectiveSaysNothing(t *testing.T) {
	config := threeClasses()
	config.Classes[0].TargetPerMTU = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	address := backendThat(t, func(stream grpc.ServerStream) error {
		cancel()
		return untilGone(stream)
	})
	a, _, _ := at(t, config)
	conn := dial(t, a, address)
	if _, err := invokeOnce(ctx, conn); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	if counts := a.Reports()[0].Counts; a.Probability(address, 0) != 1 || counts.Met+counts.Missed != 0 {
		t.Fatalf("%+v", counts)
	}
}

func TestACallThatIsCancelledAfterItsObjectiveMissesIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	address := backendThat(t, func(stream grpc.ServerStream) error {
		cancel()
		return untilGone(stream)
	})
	a, _, _ := at(t, threeClasses())
	conn := dial(t, a, address)
	if _, err := invokeOnce(ctx, conn); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	// 15 us are over before a cancelled call has reached its server.
	if counts := a.Reports()[0].Counts; a.Probability(address, 0) >= 1 || counts.Missed != 1 {
		t.Fatalf("probability %v, %+v", a.Probability(address, 0), counts)
	}
}

func TestACallWhoseConnectionIsLostIsAsSlowAsItLasted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{}, 1)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		arrived <- struct{}{}
		return untilGone(stream)
	}))
	go server.Serve(listener)
	go func() {
		<-arrived
		server.Stop()
	}()
	a, _, _ := at(t, threeClasses())
	conn := dial(t, a, listener.Addr().String())
	if _, err := invokeOnce(context.Background(), conn); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	// 15 us are over before a connection over loopback is closed.
	if p := a.Probability(listener.Addr().String(), 0); p >= 1 {
		t.Fatalf("probability %v", p)
	}
}

func TestACallThatNeverHadAConnectionSaysNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	a, _, _ := at(t, threeClasses())
	conn := dial(t, a, address)
	if _, err := invokeOnce(context.Background(), conn); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if reports := a.Reports(); len(reports) != 0 {
		t.Fatalf("%+v", reports)
	}
}

func TestAReadCountsTheBytesOfItsResponse(t *testing.T) {
	address := backendThat(t, answer(strings.Repeat("x", 16<<20), nil))
	a, _, _ := at(t, slowClasses())
	conn := dial(t, a, address)
	if _, err := invokeOnce(context.Background(), conn); err != nil {
		t.Fatal(err)
	}
	// 16,777 packets may take 16.8 s; the one packet of the request, a millisecond.
	if counts := a.Reports()[0].Counts; counts.Met != 1 || a.Probability(address, 0) != 1 {
		t.Fatalf("probability %v, %+v", a.Probability(address, 0), counts)
	}
}

func TestAnAnswerOfTheServerThatFailsSaysNothing(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.Unavailable} {
		address := backendThat(t, func(grpc.ServerStream) error { return status.Error(code, "no") })
		a, _, _ := at(t, threeClasses())
		conn := dial(t, a, address)
		if _, err := invokeOnce(context.Background(), conn); status.Code(err) != code {
			t.Fatal(err)
		}
		if p := a.Probability(address, 0); p != 1 {
			t.Fatalf("%s: probability %v", code, p)
		}
	}
}

// behind dials backends through one name that resolves to all of them.
func behind(t *testing.T, a *Admission, config string, addresses ...string) *Conn {
	t.Helper()
	names := manual.NewBuilderWithScheme("name")
	var state resolver.State
	for _, address := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address}}})
	}
	names.InitialState(state)
	policy, err := Balanced(config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(a, "name:///storage", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithResolvers(names), policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestTheDestinationIsTheBackendBehindTheLoadBalancer(t *testing.T) {
	fast := backendThat(t, answer("x", instant))
	slow := backendThat(t, answer("x", nil))
	a, _, random := at(t, threeClasses())
	conn := behind(t, a, `{"loadBalancingConfig":[{"round_robin":{}}]}`, fast, slow)
	seen := map[string]int{}
	for seen[fast] == 0 || seen[slow] == 0 {
		outcome, err := invokeOnce(context.Background(), conn)
		if err != nil {
			t.Fatal(err)
		}
		seen[outcome.Backend]++
	}
	if p := a.Probability(fast, 0); p != 1 {
		t.Fatalf("the fast backend has %v", p)
	}
	if p := a.Probability(slow, 0); p >= 1 {
		t.Fatalf("the slow backend has %v", p)
	}
	if p := a.Probability("name:///storage", 0); p != 1 {
		t.Fatalf("the name has %v", p)
	}
	// Calls to the slow backend leave the class; those to the fast one stay.
	*random = 1<<32 - 1
	kept, moved := 0, 0
	for kept < 2 || moved < 2 {
		outcome, err := invokeOnce(context.Background(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if outcome.Downgraded {
			moved++
		} else if kept++; outcome.Backend != fast {
			t.Fatalf("%+v", outcome)
		}
	}
}

func TestEachAttemptOfARetriedCallIsMeasured(t *testing.T) {
	var calls atomic.Int32
	address := backendThat(t, func(stream grpc.ServerStream) error {
		if calls.Add(1) == 1 {
			return status.Error(codes.Unavailable, "again")
		}
		return answer("x", nil)(stream)
	})
	a, _, _ := at(t, threeClasses())
	conn := behind(t, a, `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.2s",
		"maxBackoff":"0.2s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`, address)
	begin := time.Now()
	outcome, err := invokeOnce(context.Background(), conn)
	total := time.Since(begin)
	if err != nil || calls.Load() != 2 {
		t.Fatal(err, calls.Load())
	}
	counts := a.Reports()[0].Counts
	if counts.Asked != 1 || counts.Met+counts.Missed != 1 {
		t.Fatalf("one decision, one attempt that was answered: %+v", counts)
	}
	// gRPC draws the pause between 0.16 and 0.24 s.
	if outcome.Latency <= 0 || outcome.Latency > total-150*time.Millisecond {
		t.Fatalf("the pause between attempts is not the network's: %s of %s", outcome.Latency, total)
	}
}

func TestWithoutTheGateTheTargetIsTheDestination(t *testing.T) {
	_, address := serve(t)
	a, _, random := at(t, threeClasses())
	conn, err := Dial(a, address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if _, err := say(t, conn, 0, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if p := a.Probability(address, 0); p >= 1 {
		t.Fatalf("probability %v", p)
	}
	*random = 1<<32 - 1
	if outcome, err := say(t, conn, 0, "again"); err != nil || !outcome.Downgraded {
		t.Fatal(outcome, err)
	}
}

func TestAServiceConfigThatCannotBeIsRefused(t *testing.T) {
	if _, err := Balanced("no"); err == nil {
		t.Fatal("taken")
	}
	if _, err := (gateBuilder{}).ParseConfig([]byte(`{"childPolicy":[{"no_such":{}}]}`)); err == nil {
		t.Fatal("taken")
	}
}

func TestTheEndOfACallSaysWhatIsKnownOfItsLatency(t *testing.T) {
	for _, test := range []struct {
		err      error
		answered bool
		due      bool
		want     endings
	}{
		{nil, true, false, measured},
		{status.Error(codes.DeadlineExceeded, ""), false, false, lowerBound},
		{status.Error(codes.DeadlineExceeded, ""), true, true, lowerBound},
		{status.Error(codes.DeadlineExceeded, ""), true, false, unknown},
		{status.Error(codes.Canceled, ""), false, false, lowerBound},
		{status.Error(codes.Unavailable, ""), false, false, lowerBound},
		{status.Error(codes.Unavailable, ""), true, false, unknown},
		{status.Error(codes.Internal, ""), false, false, unknown},
		{errors.New("of the codec"), false, false, unknown},
	} {
		if got := ending(test.err, test.answered, test.due); got != test.want {
			t.Errorf("%v, answered %v: %d, want %d", test.err, test.answered, got, test.want)
		}
	}
}
