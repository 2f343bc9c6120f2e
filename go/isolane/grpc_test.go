package isolane

import (
	"context"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echo is a real server on loopback that returns a StringValue unchanged, and records the calls' metadata.
type echo struct {
	mutex sync.Mutex
	from  []string
}

const echoMethod = "/isolane.test.Echo/Say"

func (e *echo) handle(_ any, stream grpc.ServerStream) error {
	values := metadata.ValueFromIncomingContext(stream.Context(), DowngradedKey)
	e.mutex.Lock()
	e.from = append(e.from, strings.Join(values, ","))
	e.mutex.Unlock()
	for {
		message := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(message); err != nil {
			return nil
		}
		if message.Value == "fail" {
			return context.DeadlineExceeded
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
}

func serve(t *testing.T) (*echo, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := new(echo)
	server := grpc.NewServer(grpc.UnknownServiceHandler(e.handle))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return e, listener.Addr().String()
}

func dial(t *testing.T, a *Admission, address string) *Conn {
	t.Helper()
	conn, err := Dial(a, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func say(t *testing.T, conn grpc.ClientConnInterface, class int, text string) (Outcome, error) {
	t.Helper()
	var outcome Outcome
	ctx, cancel := context.WithTimeout(WithOutcome(WithClass(context.Background(), class), &outcome), time.Minute)
	defer cancel()
	reply := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, echoMethod, wrapperspb.String(text), reply)
	if err == nil && reply.Value != text {
		t.Fatalf("%q came back as %q", text, reply.Value)
	}
	return outcome, err
}

func TestADowngradedCallSaysSoToServerAndApplication(t *testing.T) {
	e, address := serve(t)
	a, _, random := at(t, threeClasses())
	conn := dial(t, a, address)
	if outcome, err := say(t, conn, 0, "hello"); err != nil || outcome.Downgraded || outcome.Latency <= 0 {
		t.Fatal(outcome, err)
	}
	// Over loopback no call meets 15 us for its one MTU, so the probability has fallen.
	if p := a.Probability(address, 0); p >= 1 {
		t.Fatalf("a miss lowers the probability: %v", p)
	}
	*random = 1<<32 - 1
	outcome, err := say(t, conn, 0, "again")
	if err != nil || !outcome.Downgraded || outcome.Asked != 0 || outcome.Ran != 2 {
		t.Fatal(outcome, err)
	}
	if len(e.from) != 2 || e.from[0] != "" || e.from[1] != "0" {
		t.Fatalf("the server received %q", e.from)
	}
}

func TestAFailedCallTeachesNothingAndIsPassedOn(t *testing.T) {
	_, address := serve(t)
	a, _, _ := at(t, threeClasses())
	conn := dial(t, a, address)
	if _, err := say(t, conn, 0, "fail"); err == nil {
		t.Fatal("the error is lost")
	}
	if p := a.Probability(address, 0); p != 1 {
		t.Fatalf("an error says nothing of the network: %v", p)
	}
}

func TestInterceptorsMoveTheCallsOfAPlainConnection(t *testing.T) {
	e, address := serve(t)
	a, _, random := at(t, threeClasses())
	conn := dial(t, a, address)
	plain, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(conn.UnaryClientInterceptor()), grpc.WithStreamInterceptor(conn.StreamClientInterceptor()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := say(t, plain, 1, "one"); err != nil {
		t.Fatal(err)
	}
	*random = 1<<32 - 1
	if outcome, err := say(t, plain, 1, "two"); err != nil || !outcome.Downgraded {
		t.Fatal(outcome, err)
	}
	if e.from[1] != "1" {
		t.Fatalf("the server received %q", e.from)
	}
}

func TestAStreamIsDecidedOnAndTeachesNothing(t *testing.T) {
	_, address := serve(t)
	a, _, _ := at(t, threeClasses())
	conn := dial(t, a, address)
	var outcome Outcome
	ctx := WithOutcome(WithClass(context.Background(), 0), &outcome)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, echoMethod)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := stream.SendMsg(wrapperspb.String("x")); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			t.Fatal(err)
		}
	}
	if outcome.Latency != 0 {
		t.Fatalf("the stream has not ended: %+v", outcome)
	}
	stream.CloseSend()
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); err == nil {
		t.Fatal("the stream goes on")
	}
	ended := outcome.Latency
	if stream.RecvMsg(new(wrapperspb.StringValue)); ended == 0 || outcome.Latency != ended {
		t.Fatalf("one end: %s, then %s", ended, outcome.Latency)
	}
	// It took longer than the 15 us of one MTU, but part of that may be the server's time.
	if p, counts := a.Probability(address, 0), a.Reports()[0].Counts; p != 1 || counts != (Counts{Asked: 1}) {
		t.Fatalf("probability %v, %+v", p, counts)
	}
}

func TestACallSaysItsClassesAsInTheOtherLanguages(t *testing.T) {
	_, address := serve(t)
	a, _, random := at(t, threeClasses())
	conn := dial(t, a, address)
	a.Complete(a.Decide(address, 0, 1), time.Second)
	*random = 1<<32 - 1
	ctx := WithClassName(context.Background(), "high")
	call := conn.begin(ctx, 1, true)
	(&attempt{call: call}).admit(address)
	sent, _ := metadata.FromOutgoingContext(conn.sent(ctx, call))
	for key, want := range map[string]string{RequestedClassKey: "high", ClassKey: "low", DowngradedKey: "0"} {
		if got := sent.Get(key); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func TestAServerSaysItsTimeInTheMetadata(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(UnaryServerInterceptor()))
	answer := func(_ any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		message := new(wrapperspb.StringValue)
		if err := decode(message); err != nil {
			return nil, err
		}
		handler := func(context.Context, any) (any, error) { return message, nil }
		return through(ctx, message, &grpc.UnaryServerInfo{FullMethod: echoMethod}, handler)
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "isolane.test.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: answer}},
	}, nil)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	plain, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var header metadata.MD
	reply := new(wrapperspb.StringValue)
	if err := plain.Invoke(ctx, echoMethod, wrapperspb.String("x"), reply, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	// The Rust client finds it there too.
	if len(header.Get(ServerTimeKey)) != 1 {
		t.Fatalf("metadata %v", header)
	}
}

func TestTheDialerMarksItsSockets(t *testing.T) {
	_, address := serve(t)
	conn, err := Dialer(46)(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var field int
	raw.Control(func(fd uintptr) { field, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TOS) })
	if err != nil || field != 46<<2 {
		t.Fatalf("field %#x, %v", field, err)
	}
}

func TestServerTimeIsNotTheNetworks(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1500": 1500 * time.Microsecond, "-1": 0, "x": 0, "9223372036854775807": 0,
	} {
		trailer := metadata.Pairs(ServerTimeKey, text)
		if got := serverTime(trailer); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
