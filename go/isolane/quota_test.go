package isolane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnExpiredLeaseLetsNothingPassAndCountsWhatWasAsked(t *testing.T) {
	var l lease
	if l.take(10, 5) {
		t.Fatal("nothing was granted")
	}
	l.set(1_000_000, 100, 5)
	if !l.take(10, 99) || l.take(10, 100) || l.asked.Load() != 30 {
		t.Fatalf("until 100 and not at it; asked %d", l.asked.Load())
	}
}

func TestADebtFromALowRateIsPaidAtTheNextOne(t *testing.T) {
	var l lease
	l.set(1, math.MaxUint64, 1_000)
	if !l.take(32_768, 1_000) || l.take(1, 2_000_000_000) {
		t.Fatal("the one call that fits uses nine hours")
	}
	// 32 KiB at 1 GB/s are 33 us.
	l.set(1_000_000_000, math.MaxUint64, 2_000_000_000)
	if !l.take(32_768, 2_000_000_000) {
		t.Fatal("the debt is counted at the new rate")
	}
}

// Over any time at most the rate, the saved credit and the last call are admitted.
func TestNoMorePassesThanTheRate(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		rate := 1 + random.Uint64N(10_000_000_000)
		var l lease
		l.set(rate, math.MaxUint64, 0)
		begin := uint64(1_000_000_000)
		now, passed, largest := begin, 0.0, uint64(0)
		for range 300 {
			now += random.Uint64N(50_000_000)
			size := 1 + random.Uint64N(1_000_000)
			if l.take(size, now) {
				passed += float64(size)
				largest = max(largest, size)
			}
		}
		// Each call's time is rounded down to a nanosecond.
		rounding := 300 * float64(rate/1_000_000_000+1)
		most := float64(rate)*float64(now-begin+leaseBurst)/1e9 + float64(largest) + rounding
		if passed > most {
			t.Fatalf("seed %d: %v bytes at %d/s, more than %v", seed, passed, rate, most)
		}
	}
}

func TestPatternsMatchWholeNames(t *testing.T) {
	for _, c := range []struct {
		patterns, name string
		want           bool
	}{
		{"10.0.1.*", "10.0.1.7:443", true},
		{"10.0.1.*", "10.0.2.7:443", false},
		{"a, *.rack?.example:443", "x.rack1.example:443", true},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"a", "ab", false},
		{"", "", true},
	} {
		if got := fits(c.patterns, c.name); got != c.want {
			t.Errorf("%q on %q: %v", c.patterns, c.name, got)
		}
	}
}

func withQuota(server string) Config {
	config := threeClasses()
	config.Groups = []Group{{Name: "rack", Destinations: "host:*"}}
	config.Quota = &Quota{Server: server, Tenant: "search"}
	return config
}

func TestALeaseAdmitsWhateverTheProbabilitySays(t *testing.T) {
	a, now, random := at(t, withQuota("127.0.0.1:1"))
	*random = math.MaxUint32
	for _, to := range []string{"host:1", "elsewhere:1"} {
		a.Complete(a.Decide(to, 0, 100), time.Second)
	}
	if !a.Decide("host:1", 0, 1000).Downgraded {
		t.Fatal("no lease yet")
	}
	a.lease(0, 0).set(1_000_000, math.MaxUint64, *now/psPerNs)
	if a.Decide("host:1", 0, 1000).Downgraded {
		t.Fatal("within the lease")
	}
	if !a.Decide("elsewhere:1", 0, 1000).Downgraded {
		t.Fatal("another destination is not in the group")
	}
	if counts := a.Reports()[3].Counts; counts.Leased != 1 {
		t.Fatalf("counted: %+v", a.Reports())
	}
	// A megabyte is one second of the rate; the next call exceeds it.
	a.Decide("host:1", 0, 1_000_000)
	if !a.Decide("host:1", 0, 1).Downgraded {
		t.Fatal("the lease is used up")
	}
}

// answering serves one connection after the other and sends the given answer to each request.
func answering(t *testing.T, answer func(map[string]any) string) (string, chan map[string]any) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quota")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	requests := make(chan map[string]any, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				var request map[string]any
				if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
					request = map[string]any{"broken": lines.Text()}
				}
				requests <- request
				if _, err := fmt.Fprintln(conn, answer(request)); err != nil {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return "unix:" + path, requests
}

func next[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

func TestLeasesAreRenewedAndReleased(t *testing.T) {
	server, requests := answering(t, func(request map[string]any) string {
		if request["ask"] == "release" {
			return `"done"`
		}
		return `{"leases":[{"serial":7,"rate_bytes_per_s":1000,"term_ms":300},{"serial":8,"rate_bytes_per_s":0,"term_ms":300}]}`
	})
	a, err := New(withQuota(server))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.StartQuota(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.StartQuota(ctx, nil); err == nil {
		t.Fatal("once is enough")
	}
	first := next(t, requests)
	wants := first["wants"].([]any)
	want := wants[0].(map[string]any)
	if first["tenant"] != "search" || len(wants) != 2 || want["group"] != "rack" || want["class"] != "high" || want["holds"] != nil {
		t.Fatalf("%+v", first)
	}
	a.Decide("host:1", 0, 1_000_000)
	second := next(t, requests)
	want = second["wants"].([]any)[0].(map[string]any)
	if want["holds"] != 7.0 || want["demand_bytes_per_s"].(float64) <= 0 {
		t.Fatalf("%+v", second)
	}
	cancel()
	for request := next(t, requests); request["ask"] != "release"; request = next(t, requests) {
	}
	if a.Decide("host:1", 0, 1); a.lease(0, 0).take(1, a.now()/psPerNs) {
		t.Fatal("what was released is not used")
	}
}

func TestAServerThatRefusesIsToldOnceAndAskedAgain(t *testing.T) {
	answers := make(chan string, 3)
	answers <- `{"error":"tenant \"search\" is unknown"}`
	answers <- `{"leases":[]}`
	answers <- "nonsense"
	server, requests := answering(t, func(map[string]any) string {
		select {
		case answer := <-answers:
			return answer
		default:
			return `{"leases":[{"serial":1,"rate_bytes_per_s":5,"term_ms":300},{"serial":2,"rate_bytes_per_s":5,"term_ms":300}]}`
		}
	})
	a, err := New(withQuota(server))
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 10)
	if err := a.StartQuota(t.Context(), func(line string) { said <- line }); err != nil {
		t.Fatal(err)
	}
	if line := next(t, said); !strings.Contains(line, "\"search\" is unknown; going on without") {
		t.Fatal(line)
	}
	for range 4 {
		next(t, requests)
	}
	if line := next(t, said); line != "quota from "+server+" again" {
		t.Fatal(line)
	}
}

// A server that does not prove the key is rejected, and its own rejection is reported.
func TestAServerWithoutTheKeyIsRefused(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(strings.Repeat("k", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, answers := range map[string][]string{
		"without a valid seal":   {`{"challenge":"` + strings.Repeat("1", 64) + `"}`, `"done"`},
		"an answer to another":   {`{"challenge":"short"}`},
		"this server has no key": {`{"error":"this server has no key"}`},
		"the key is another one": {`{"challenge":"` + strings.Repeat("1", 64) + `"}`, `{"error":"the key is another one"}`},
	} {
		given := make(chan string, len(answers))
		for _, answer := range answers {
			given <- answer
		}
		server, _ := answering(t, func(map[string]any) string { return <-given })
		line, err := dialQuota(server, keyFile)
		if err == nil {
			var answer quotaAnswer
			if answer, err = line.ask(quotaRequest{Ask: "show"}); err == nil {
				err = fmt.Errorf("%s", answer.Error)
			}
			_ = line.conn.Close()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestQuotasThatCannotBeAreRefused(t *testing.T) {
	for part, spoil := range map[string]func(*Config){
		"add a group":                    func(c *Config) { c.Groups = nil },
		"has no tenant":                  func(c *Config) { c.Quota.Tenant = "" },
		"absolute path":                  func(c *Config) { c.Quota.Server = "unix:here" },
		"key file \"here\"":              func(c *Config) { c.Quota.KeyFile = "here" },
		"an address and a port":          func(c *Config) { c.Quota.Server = "somewhere" },
		"group \"rack\" is listed twice": func(c *Config) { c.Groups = append(c.Groups, c.Groups[0]) },
		"group \"rack\" has no destina":  func(c *Config) { c.Groups[0].Destinations = " " },
		"group 0 (\"two words\")":        func(c *Config) { c.Groups[0].Name = "two words" },
	} {
		config := withQuota("127.0.0.1:7480")
		spoil(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("want %q in %v", part, err)
		}
	}
	a, _, _ := at(t, threeClasses())
	if err := a.StartQuota(t.Context(), nil); err == nil {
		t.Error("no quota is configured")
	}
	if err := a.Reconfigure(withQuota("127.0.0.1:7480")); err == nil {
		t.Error("groups cannot come while calls run")
	}
}

const quotaServerSettings = `
listen = "unix:FOLDER/socket"
store = "FOLDER/store"
term = "1s"
[[class]]
name = "high"
weight = 8
[[class]]
name = "medium"
weight = 4
[[class]]
name = "low"
weight = 1
[[group]]
name = "rack"
line_rate = "100Gb/s"
load = 0.8
burst = 1.4
[[tenant]]
name = "search"
group = "rack"
class = "high"
guarantee = "1Gb/s"
`

// Goal: the real server and this client work together across a kill of the server. Method: `isolane rpc quota serve`,
// named by ISOLANE or found on PATH; on a Unix socket, and over TCP with a key.
func TestTheRealServerGrantsWhatWasAskedFor(t *testing.T) {
	program := os.Getenv("ISOLANE")
	if program == "" {
		found, err := exec.LookPath("isolane")
		if err != nil {
			t.Skip("no isolane: set ISOLANE to its path")
		}
		program = found
	}
	t.Run("unix", func(t *testing.T) { grantedByTheRealServer(t, program, "") })
	t.Run("tcp", func(t *testing.T) {
		keyFile := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(keyFile, []byte(strings.Repeat("k", 40)), 0o600); err != nil {
			t.Fatal(err)
		}
		grantedByTheRealServer(t, program, keyFile)
	})
}

// grantedByTheRealServer runs on a Unix socket, or with a key on a free TCP port.
func grantedByTheRealServer(t *testing.T, program, keyFile string) {
	folder := t.TempDir()
	file := filepath.Join(folder, "quota.toml")
	settings := strings.ReplaceAll(quotaServerSettings, "FOLDER", folder)
	place := "unix:" + filepath.Join(folder, "socket")
	server := place
	if keyFile != "" {
		settings = fmt.Sprintf("key_file = %q\n%s", keyFile, settings)
		server = "127.0.0.1:0"
	}
	// The server's address is in server afterwards, so that the next one listens there too.
	serve := func() *exec.Cmd {
		text := strings.Replace(settings, place, server, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		process := exec.Command(program, "rpc", "quota", "serve", file)
		out, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if at, listens := strings.CutPrefix(lines.Text(), "listening on "); listens {
				server = at
				return process
			}
		}
		t.Fatal("it ended before it listened")
		return nil
	}
	process := serve()
	config := withQuota(server)
	config.Quota.KeyFile = keyFile
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	// The probability admits nothing, so every admitted call uses the lease.
	a.random = func() uint32 { return math.MaxUint32 }
	a.Complete(a.Decide("host:1", 0, 100), time.Second)
	if err := a.StartQuota(t.Context(), func(line string) { t.Log(line) }); err != nil {
		t.Fatal(err)
	}
	admitted := func() bool {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if !a.Decide("host:1", 0, 10_000).Downgraded {
				return true
			}
		}
		return false
	}
	if !admitted() {
		t.Fatal("a guaranteed tenant is admitted")
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	expired := false
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !expired; time.Sleep(10 * time.Millisecond) {
		expired = a.Decide("host:1", 0, 10_000).Downgraded && a.now()/psPerNs >= a.lease(0, 0).until.Load()
	}
	if !expired {
		t.Fatal("without the server the lease runs out")
	}
	serve()
	if !admitted() {
		t.Fatal("the next server grants again")
	}
}
