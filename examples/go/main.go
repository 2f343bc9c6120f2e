// A gRPC client and its server on loopback, with admission by latency objectives in front of the client.
//
// The server has one slow method. The client calls it in the class "critical", whose objective no call can meet. So the admit
// probability of the class falls to its floor, and most of the later calls run in the lowest class. The program prints how many.
//
//	go run .
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"isolane.dev/isolane/go/isolane"
)

const settings = `
[[class]]
name = "critical"
dscp = 46
target_per_mtu = "1us"
percentile = 50
beta = 0.1

[[class]]
name = "scavenger"
dscp = 8
`

// calls is how many calls the client sends, one after another.
const calls = 200

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen on loopback: %w", err)
	}
	// The health service stands for a storage service: it is in gRPC itself, so the example needs no generated code.
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, slowly{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	downgraded, err := call(listener.Addr().String())
	server.Stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("the server ended: %w", err)
	}
	if downgraded == 0 {
		return fmt.Errorf("no call of %d was downgraded, though no call met the objective", calls)
	}
	fmt.Printf("%d of %d calls ran in the lowest class\n", downgraded, calls)
	return nil
}

// call sends the calls and returns how many of them were downgraded.
func call(address string) (int, error) {
	config, err := isolane.ParseConfig(settings)
	if err != nil {
		return 0, err
	}
	admission, err := isolane.New(config)
	if err != nil {
		return 0, err
	}
	connection, err := isolane.Dial(admission, address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	storage := grpc_health_v1.NewHealthClient(connection)
	downgraded := 0
	for range calls {
		var outcome isolane.Outcome
		critical := isolane.WithOutcome(isolane.WithClass(ctx, 0), &outcome)
		if _, err := storage.Check(critical, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			return 0, fmt.Errorf("a call failed: %w", err)
		}
		if outcome.Downgraded {
			downgraded++
		}
	}
	return downgraded, nil
}

// slowly answers after a millisecond, a thousand times the objective.
type slowly struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (slowly) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	time.Sleep(time.Millisecond)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}
