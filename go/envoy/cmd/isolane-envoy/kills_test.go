package main

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"isolane.dev/isolane/go/envoy"
	"isolane.dev/isolane/go/isolane"
)

// patience is how long a start, an answer and the end of a proxy's stream may take.
const patience = 30 * time.Second

// TestMain is the program itself in a process that the test starts.
func TestMain(m *testing.M) {
	if os.Getenv("ISOLANE_ENVOY_KILLED") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start starts the program; the channel closes when it serves, or when it has ended.
func start(t *testing.T, folder string) (*exec.Cmd, chan string) {
	t.Helper()
	program := exec.Command(os.Args[0], "-listen", "unix:"+filepath.Join(folder, "socket"), "-settings", filepath.Join(folder, "rpc.toml"))
	program.Env = append(os.Environ(), "ISOLANE_ENVOY_KILLED=1")
	program.Stderr = os.Stderr
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	// No error if the test has killed it.
	t.Cleanup(func() { _ = program.Process.Kill() })
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(output).ReadString('\n')
		said <- line
	}()
	return program, said
}

func kill(t *testing.T, program *exec.Cmd) {
	t.Helper()
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended by itself: %v", err)
	}
}

// settle writes the program's settings.
func settle(t *testing.T, folder string) {
	t.Helper()
	settings := "mtu_bytes = 1000\n[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"1s\"\npercentile = 99\n[[class]]\nname = \"low\"\ndscp = 8\n"
	if err := os.WriteFile(filepath.Join(folder, "rpc.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
}

// request marks one request over a stream of its own, as Envoy does.
func request(client proc.ExternalProcessorClient, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, isolaneenvoy.DestinationKey, "storage")
	stream, err := client.Process(ctx, options...)
	if err != nil {
		return err
	}
	headers := &core.HeaderMap{Headers: []*core.HeaderValue{
		{Key: ":authority", RawValue: []byte("storage:443")}, {Key: isolane.RequestedClassKey, RawValue: []byte("high")},
	}}
	part := &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: headers}}}
	// The answer, or its error, says how a stream ended to which nothing can be sent.
	_ = stream.Send(part)
	_, err = stream.Recv()
	return err
}

// Goal: silent connections, more than there are places, keep a proxy out for no longer than one of them may be silent.
func TestSilentConnectionsKeepNoProxyOut(t *testing.T) {
	folder := t.TempDir()
	settle(t, folder)
	_, said := start(t, folder)
	<-said
	path := filepath.Join(folder, "socket")
	for range connections + 16 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	proxy, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if err := request(proc.NewExternalProcessorClient(proxy), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
}

// Goal: after each kill a proxy's stream ends, and the next program serves at the same socket.
func TestKillsOfTheProgram(t *testing.T) {
	folder := t.TempDir()
	settle(t, folder)
	kills, starting := 16, 0
	if text := os.Getenv("ISOLANE_KILLS"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		kills = number
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ISOLANE_SEED"); text != "" {
		number, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = number
	}
	t.Logf("again: ISOLANE_SEED=%d make kills KILLS=%d PROGRAM=envoy", seed, kills)
	random := rand.New(rand.NewPCG(seed, 0))
	pause := func() { time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond)))) }
	for done := 0; done < kills; done++ {
		program, said := start(t, folder)
		if done%4 == 3 {
			pause()
			kill(t, program)
			starting++
			continue
		}
		select {
		case line := <-said:
			if !strings.Contains(line, "serving on") {
				t.Fatalf("after %d kills the next start fails: %q", done, line)
			}
		case <-time.After(patience):
			t.Fatalf("after %d kills the program does not serve", done)
		}
		conn, err := grpc.NewClient("unix:"+filepath.Join(folder, "socket"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := proc.NewExternalProcessorClient(conn)
		if err := request(client); err != nil {
			t.Fatalf("after %d kills a request has no answer: %v", done, err)
		}
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				err = request(client)
			}
			ended <- err
		}()
		pause()
		select {
		case err := <-ended:
			t.Fatalf("a request failed before kill %d: %v", done, err)
		default:
		}
		kill(t, program)
		if err := <-ended; strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Fatalf("a proxy still waits %v after kill %d", patience, done)
		}
		conn.Close()
	}
	t.Logf("%d kills of isolane-envoy, %d of them within 20 ms of the start", kills, starting)
}
