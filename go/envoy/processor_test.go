package isolaneenvoy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"isolane.dev/isolane/go/isolane"
)

// proxy plays Envoy by its published protocol: one stream for each HTTP request.
type proxy struct {
	t         *testing.T
	client    proc.ExternalProcessorClient
	admission *isolane.Admission
}

// withTarget makes a proxy whose high class has this objective for each packet. After one miss the class admits nothing.
func withTarget(t *testing.T, target time.Duration) *proxy {
	t.Helper()
	admission, err := isolane.New(isolane.Config{MTUBytes: 1000, Classes: []isolane.Class{
		{Name: "high", DSCP: 46, TargetPerMTU: target, Percentile: 50, Beta: 1, Floor: 1e-9},
		{Name: "low", DSCP: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	New(admission).Register(server)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &proxy{t, proc.NewExternalProcessorClient(conn), admission}
}

func headers(pairs ...string) *core.HeaderMap {
	all := &core.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		all.Headers = append(all.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return all
}

func request(pairs ...string) *proc.ProcessingRequest {
	pairs = append([]string{":authority", "storage:443", isolane.RequestedClassKey, "high"}, pairs...)
	return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{
		RequestHeaders: &proc.HttpHeaders{Headers: headers(pairs...)},
	}}
}

func response(end bool, pairs ...string) *proc.ProcessingRequest {
	return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &proc.HttpHeaders{Headers: headers(pairs...), EndOfStream: end},
	}}
}

func trailers(pairs ...string) *proc.ProcessingRequest {
	return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseTrailers{
		ResponseTrailers: &proc.HttpTrailers{Trailers: headers(pairs...)},
	}}
}

// of a server's response to a gRPC call.
var of = []string{":status", "200", "content-type", "application/grpc", "x-envoy-upstream-service-time", "0"}

// exchange sends the parts of one request; it returns the answers. The service has ended the stream when it returns.
func (p *proxy) exchange(parts ...*proc.ProcessingRequest) []*proc.ProcessingResponse {
	p.t.Helper()
	ctx := metadata.AppendToOutgoingContext(context.Background(), DestinationKey, "storage")
	stream, err := p.client.Process(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	var answers []*proc.ProcessingResponse
	for _, part := range parts {
		if err := stream.Send(part); err != nil {
			p.t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			p.t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	if err := stream.CloseSend(); err != nil {
		p.t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		p.t.Fatal(err)
	}
	return answers
}

// wants checks the counts of the high class at the first destination.
func (p *proxy) wants(asked, met, missed uint64) {
	p.t.Helper()
	counts := p.admission.Reports()[0].Counts
	if counts.Asked != asked || counts.Met != met || counts.Missed != missed {
		p.t.Fatalf("%+v; want %d asked, %d met, %d missed", counts, asked, met, missed)
	}
}

// mutated returns the headers that the answer sets.
func mutated(answer *proc.ProcessingResponse) map[string]string {
	found := map[string]string{}
	mutation := answer.GetRequestHeaders().GetResponse().GetHeaderMutation()
	for _, option := range mutation.GetSetHeaders() {
		if option.AppendAction != core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			found[option.Header.Key] = "would be added to what the client sent"
			continue
		}
		found[option.Header.Key] = string(option.Header.RawValue)
	}
	for _, key := range mutation.GetRemoveHeaders() {
		found[key] = "removed"
	}
	return found
}

func TestACallIsMarkedAndMeasured(t *testing.T) {
	p := withTarget(t, time.Hour)
	answers := p.exchange(request(isolane.DowngradedKey, "0"), response(false, of...), trailers("grpc-status", "0"))
	got := mutated(answers[0])
	if got[isolane.RequestedClassKey] != "high" || got[isolane.ClassKey] != "high" || got[isolane.DowngradedKey] != "removed" {
		t.Fatalf("%v", got)
	}
	if !answers[0].GetRequestHeaders().GetResponse().GetClearRouteCache() {
		t.Fatal("the route must follow the class")
	}
	if answers[1].GetResponseHeaders() == nil || answers[2].GetResponseTrailers() == nil {
		t.Fatalf("Envoy needs the answer to each part: %v", answers)
	}
	if to := p.admission.Reports()[0].Destination; to != "storage" {
		t.Fatal(to)
	}
	p.wants(1, 1, 0)
}

func TestASlowCallSendsTheNextOneToTheLowestClass(t *testing.T) {
	p := withTarget(t, time.Nanosecond)
	p.exchange(request(), response(false, of...), trailers("grpc-status", "0"))
	p.wants(1, 0, 1)
	got := mutated(p.exchange(request(), response(false, of...), trailers("grpc-status", "0"))[0])
	if got[isolane.RequestedClassKey] != "high" || got[isolane.ClassKey] != "low" || got[isolane.DowngradedKey] != "0" {
		t.Fatalf("%v", got)
	}
	p.wants(2, 0, 1)
}

func TestTheServersOwnTimeIsSubtracted(t *testing.T) {
	p := withTarget(t, time.Nanosecond)
	all := append([]string{isolane.ServerTimeKey, "9223372036854775807"}, of...)
	p.exchange(request(), response(false, all...), trailers("grpc-status", "0"))
	p.wants(1, 1, 0)
}

// Goal: only an end that the network can have caused is evidence.
func TestEndsAreClassified(t *testing.T) {
	http := func(code string, more ...string) *proc.ProcessingRequest {
		return response(true, append([]string{":status", code}, more...)...)
	}
	service := []string{"x-envoy-upstream-service-time", "3"}
	for _, test := range []struct {
		name   string
		parts  []*proc.ProcessingRequest
		missed uint64
	}{
		{"the client left", nil, 1},
		{"the server failed", []*proc.ProcessingRequest{response(false, of...), trailers("grpc-status", "13")}, 0},
		{"the server's deadline", []*proc.ProcessingRequest{response(false, of...), trailers("grpc-status", "4")}, 0},
		{"no status", []*proc.ProcessingRequest{response(false, of...), trailers()}, 0},
		{"the client left after the headers", []*proc.ProcessingRequest{response(false, of...)}, 1},
		{"a response of Envoy", []*proc.ProcessingRequest{
			response(true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14"),
		}, 1},
		{"Envoy's time limit", []*proc.ProcessingRequest{http("504")}, 1},
		{"a gateway's time limit behind Envoy", []*proc.ProcessingRequest{http("504", service...)}, 0},
		{"a lost connection", []*proc.ProcessingRequest{http("503")}, 1},
		{"HTTP that succeeds", []*proc.ProcessingRequest{http("200", service...)}, 1},
		{"HTTP that Envoy answers", []*proc.ProcessingRequest{http("404")}, 0},
		{"HTTP that fails", []*proc.ProcessingRequest{http("500", service...)}, 0},
		{"HTTP without a status", []*proc.ProcessingRequest{http("")}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := withTarget(t, time.Nanosecond)
			p.exchange(append([]*proc.ProcessingRequest{request()}, test.parts...)...)
			p.wants(1, 0, test.missed)
		})
	}
}

func TestHostileHeadersDoNoHarm(t *testing.T) {
	p := withTarget(t, time.Hour)
	service := []string{":status", "200", "x-envoy-upstream-service-time", "0"}
	for _, us := range []string{"-1", "soon", "99999999999999999999"} {
		p.exchange(request(), response(true, append([]string{isolane.ServerTimeKey, us}, service...)...))
	}
	p.wants(3, 3, 0)
	// A client chooses neither a destination nor how much a miss lowers the probability.
	for range 100 {
		p.exchange(request(":authority", strings.Repeat("a", 10_000), "content-length", "100000000"), response(true, service...))
	}
	p.wants(103, 103, 0)
	if reports := p.admission.Reports(); len(reports) != 2 {
		t.Fatalf("%d reports: more than one destination", len(reports))
	}
	// What Envoy answers says nothing of the network.
	p.exchange(request(), response(true, ":status", "200"))
	p.wants(104, 103, 0)
	got := mutated(p.exchange(request(isolane.RequestedClassKey, "urgent"))[0])
	if got[isolane.RequestedClassKey] != "low" || got[isolane.ClassKey] != "low" {
		t.Fatalf("an unknown class is the lowest: %v", got)
	}
	// A response without a request, and an empty stream.
	p.exchange(response(false, of...), trailers("grpc-status", "0"))
	p.exchange()
}

func TestBodiesAreRejectedWithTheRemedy(t *testing.T) {
	p := withTarget(t, time.Hour)
	stream, err := p.client.Process(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	body := &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{}}}
	if err := stream.Send(body); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "request_body_mode") {
		t.Fatal(err)
	}
}
