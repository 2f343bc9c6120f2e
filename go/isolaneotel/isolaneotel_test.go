package isolaneotel

import (
	"context"
	"net"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"isolane.dev/isolane/go/isolane"
)

func TestTheSpanOfACallHasItsClasses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()
	admission, err := isolane.New(isolane.Config{Classes: []isolane.Class{
		{Name: "critical", DSCP: 46, TargetPerMTU: time.Nanosecond},
		{Name: "scavenger", DSCP: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	Annotate(admission)
	conn, err := isolane.Dial(admission, listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)).Tracer("test")
	ctx, span := tracer.Start(context.Background(), "operation")
	client := grpc_health_v1.NewHealthClient(conn)
	ctx = isolane.WithClassName(ctx, "critical")
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	span.End()
	found := map[string]string{}
	for _, one := range recorder.Ended()[0].Attributes() {
		found[string(one.Key)] = one.Value.Emit()
	}
	for key, want := range map[string]string{
		"isolane.requested_class": "critical", "isolane.class": "critical", "isolane.downgraded": "false",
		"isolane.would_downgrade": "false", "isolane.backend": listener.Addr().String(),
	} {
		if found[key] != want {
			t.Errorf("%s is %q, want %q", key, found[key], want)
		}
	}
}
