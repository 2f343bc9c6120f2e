package isolane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"
)

// Group is a set of destinations that share a quota: those behind one narrowest port.
type Group struct {
	// Name of the group at the quota server.
	Name string
	// Destinations are patterns of names, separated by commas: * matches any text, ? one character. The first matching
	// group counts.
	Destinations string
}

// Quota names the quota server (`isolane rpc quota serve`) and this process's tenant.
type Quota struct {
	// Server is "unix:/absolute/path" or an address and a port, like "127.0.0.1:7480".
	Server string
	// KeyFile is the file of the server's key, which only its owner may read; none if empty. It is read for each
	// connection.
	KeyFile string
	// Tenant that the process sends for.
	Tenant string
}

const (
	groupsMax = 256
	// quotaPatience is the longest wait for the server, including an answer.
	quotaPatience = 2 * time.Second
	// quotaHeadroom is the requested rate above the used rate, percent, so that a growing sender is not limited to its
	// past rate.
	quotaHeadroom = 25
	// quotaClientPart is the used part of a term, percent: clocks may differ by up to a tenth.
	quotaClientPart = 90
	// quotaFirst is the time between two rounds before a term is known, and after a failure.
	quotaFirst = 200 * time.Millisecond
	// quotaAnswerMax is the longest answer, bytes.
	quotaAnswerMax = 1 << 20
)

// StartQuota renews leases from the configured quota server until the context ends, in its own goroutine. Calls never
// wait for it: without the server, leases expire and the admit probability decides. say gets one line whenever the
// server becomes unreachable or reachable; it may be nil.
func (a *Admission) StartQuota(ctx context.Context, say func(string)) error {
	config := a.config.Load()
	if config.Quota == nil {
		return errors.New("isolane: no quota server is configured; set Config.Quota, or [quota] in the settings file")
	}
	if !a.quotaRuns.CompareAndSwap(false, true) {
		return errors.New("isolane: leases are already renewed; call StartQuota once")
	}
	if say == nil {
		say = func(string) {}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	keeper := &quotaKeeper{
		admission: a,
		quota:     *config.Quota,
		client:    fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32()),
		say:       say,
		looked:    a.now(),
	}
	classes := len(config.Classes) - 1
	for group := range config.Groups {
		for class := range classes {
			asked := a.lease(group, class).asked.Load()
			keeper.seats = append(keeper.seats, quotaSeat{group: group, class: class, asked: asked})
		}
	}
	go keeper.keep(ctx)
	return nil
}

// lease returns the lease of a group and a class with an objective.
func (a *Admission) lease(group, class int) *lease {
	return &a.leases[group*(len(a.config.Load().Classes)-1)+class]
}

// quotaKeeper renews the leases of one Admission.
type quotaKeeper struct {
	admission *Admission
	quota     Quota
	client    string
	say       func(string)
	seats     []quotaSeat
	// looked is the time of the last reading of the seats' demand, on the Admission's clock.
	looked uint64
	line   *quotaLine
}

// quotaSeat is one group and class, with the bytes requested at the last reading and the number of its lease.
type quotaSeat struct {
	group, class int
	asked        uint64
	holds        *uint64
}

func (k *quotaKeeper) keep(ctx context.Context) {
	defer k.admission.quotaRuns.Store(false)
	pause := quotaFirst
	well, known := true, false
	for {
		select {
		case <-ctx.Done():
			k.giveUp()
			return
		case <-time.After(pause):
		}
		term, err := k.round()
		if err == nil {
			pause = term / 3
			if known && !well {
				k.say(fmt.Sprintf("quota from %s again", k.quota.Server))
			}
		} else {
			k.close()
			pause = max(quotaFirst, min(pause, 5*time.Second))
			if !known || well {
				k.say(fmt.Sprintf("no quota from %s: %v; going on without", k.quota.Server, err))
			}
		}
		well, known = err == nil, true
	}
}

// giveUp ends all leases at the end of the context: the server gives our rates to others from here on, without waiting
// for the end of our term.
func (k *quotaKeeper) giveUp() {
	now := k.admission.now() / psPerNs
	for _, seat := range k.seats {
		k.admission.lease(seat.group, seat.class).set(0, 0, now)
	}
	if k.line != nil {
		// Best effort: if the message is lost, the lease expires at the server.
		_, _ = k.line.ask(quotaRequest{Ask: "release", Tenant: k.quota.Tenant, Client: k.client})
		k.close()
	}
}

func (k *quotaKeeper) close() {
	if k.line != nil {
		_ = k.line.conn.Close()
		k.line = nil
	}
}

// round makes one request and returns the term.
func (k *quotaKeeper) round() (time.Duration, error) {
	config := k.admission.config.Load()
	begin := k.admission.now()
	since := begin - k.looked
	k.looked = begin
	request := quotaRequest{Ask: "renew", Tenant: k.quota.Tenant, Client: k.client, Wants: []quotaWant{}}
	for i := range k.seats {
		seat := &k.seats[i]
		asked := k.admission.lease(seat.group, seat.class).asked.Load()
		request.Wants = append(request.Wants, quotaWant{
			Group:  config.Groups[seat.group].Name,
			Class:  config.Classes[seat.class].Name,
			Demand: quotaDemand(asked-seat.asked, since),
			Holds:  seat.holds,
		})
		seat.asked = asked
	}
	if k.line == nil {
		line, err := dialQuota(k.quota.Server, k.quota.KeyFile)
		if err != nil {
			return 0, err
		}
		k.line = line
	}
	// The term counts from here: the server's begins later.
	asked := k.admission.now() / psPerNs
	answer, err := k.line.ask(request)
	if err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, errors.New(answer.Error)
	}
	if len(answer.Leases) != len(k.seats) {
		return 0, fmt.Errorf("an answer of %d leases to a question for %d", len(answer.Leases), len(k.seats))
	}
	term := uint64(math.MaxUint64)
	for i, lease := range answer.Leases {
		seat := &k.seats[i]
		until := saturatingAdd(asked, saturatingMul(lease.TermMs, 1_000_000/100*quotaClientPart))
		k.admission.lease(seat.group, seat.class).set(lease.Rate, until, k.admission.now()/psPerNs)
		serial := lease.Serial
		seat.holds = &serial
		term = min(term, lease.TermMs)
	}
	return time.Duration(min(max(term, 300), 600_000)) * time.Millisecond, nil
}

// quotaDemand is the reported demand with headroom, from the bytes of so many picoseconds.
func quotaDemand(asked, since uint64) uint64 {
	ns := max(since/psPerNs, 1)
	return mulDiv(saturatingMul(asked, 100+quotaHeadroom), 10_000_000, ns)
}

// The messages of clients and the server: one line of JSON each.
type quotaRequest struct {
	Ask    string      `json:"ask"`
	Tenant string      `json:"tenant"`
	Client string      `json:"client"`
	Wants  []quotaWant `json:"wants,omitempty"`
}

type quotaHello struct {
	Ask   string `json:"ask"`
	Nonce string `json:"nonce"`
}

type quotaWant struct {
	Group  string  `json:"group"`
	Class  string  `json:"class"`
	Demand uint64  `json:"demand_bytes_per_s"`
	Holds  *uint64 `json:"holds"`
}

type quotaAnswer struct {
	Leases    []quotaLease `json:"leases"`
	Challenge string       `json:"challenge"`
	Error     string       `json:"error"`
}

type quotaLease struct {
	Serial uint64 `json:"serial"`
	Rate   uint64 `json:"rate_bytes_per_s"`
	TermMs uint64 `json:"term_ms"`
}

// quotaLine is a connection to the server.
type quotaLine struct {
	conn  net.Conn
	read  *bufio.Reader
	seals *seals
}

// dialQuota connects. With a key file, it connects only to a server that proves the same key.
func dialQuota(server, keyFile string) (*quotaLine, error) {
	var key []byte
	if keyFile != "" {
		var err error
		if key, err = readKey(keyFile); err != nil {
			return nil, err
		}
	}
	network, address := "tcp", server
	if path, unix := strings.CutPrefix(server, "unix:"); unix {
		network, address = "unix", path
	}
	conn, err := net.DialTimeout(network, address, quotaPatience)
	if err != nil {
		return nil, err
	}
	line := &quotaLine{conn: conn, read: bufio.NewReader(conn)}
	if key != nil {
		if err := line.prove(key); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return line, nil
}

// prove exchanges nonces; the seal of the first answer shows whether the peer has the key.
func (l *quotaLine) prove(key []byte) error {
	nonce := newNonce()
	answer, err := l.ask(quotaHello{Ask: "hello", Nonce: nonce})
	switch {
	case err != nil:
		return err
	case answer.Error != "":
		return errors.New(answer.Error)
	case !isNonce(answer.Challenge):
		return errors.New("an answer to another question")
	}
	l.seals = newSeals(key, "client", nonce, answer.Challenge)
	return nil
}

func (l *quotaLine) ask(request any) (quotaAnswer, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return quotaAnswer{}, err
	}
	if l.seals != nil {
		text = l.seals.seal(text)
	}
	if err := l.conn.SetDeadline(time.Now().Add(quotaPatience)); err != nil {
		return quotaAnswer{}, err
	}
	if _, err := l.conn.Write(append(text, '\n')); err != nil {
		return quotaAnswer{}, err
	}
	line, err := readLine(l.read)
	if err != nil {
		return quotaAnswer{}, err
	}
	if l.seals != nil {
		text, proven := l.seals.open(line)
		if !proven {
			// A server without the key cannot make a seal, so its rejection needs none.
			var refused quotaAnswer
			if json.Unmarshal(line, &refused) == nil && refused.Error != "" {
				return quotaAnswer{Error: refused.Error}, nil
			}
			return quotaAnswer{}, errors.New("an answer without a valid seal of the shared key")
		}
		line = text
	}
	if string(line) == `"done"` {
		return quotaAnswer{}, nil
	}
	var answer quotaAnswer
	if err := json.Unmarshal(line, &answer); err != nil {
		return quotaAnswer{}, fmt.Errorf("an answer that is none: %w", err)
	}
	return answer, nil
}

func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > quotaAnswerMax:
			return nil, fmt.Errorf("an answer of more than %d bytes", quotaAnswerMax)
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func splitPatterns(patterns string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for pattern := range strings.SplitSeq(patterns, ",") {
			if !yield(strings.TrimSpace(pattern)) {
				return
			}
		}
	}
}

// checkQuota rejects invalid groups and servers with object, value and remedy.
func (c Config) checkQuota() error {
	if len(c.Groups) > groupsMax {
		return fmt.Errorf("isolane: %d groups; give at most %d", len(c.Groups), groupsMax)
	}
	for i, group := range c.Groups {
		if !namePattern.MatchString(group.Name) {
			return fmt.Errorf("isolane: group %d (%q): a name is 1 to 64 letters, digits, '-', '_' or '.'", i, group.Name)
		}
		if strings.TrimSpace(group.Destinations) == "" {
			return fmt.Errorf("isolane: group %q has no destinations; give a pattern, like \"10.0.1.*\"", group.Name)
		}
		for _, other := range c.Groups[:i] {
			if other.Name == group.Name {
				return fmt.Errorf("isolane: group %q is listed twice; merge the two", group.Name)
			}
		}
	}
	if c.Quota == nil {
		return nil
	}
	if len(c.Groups) == 0 {
		return errors.New("isolane: a quota is for groups of destinations; add a group")
	}
	if c.Quota.Tenant == "" {
		return errors.New("isolane: the quota has no tenant; name the tenant that this process sends for")
	}
	if c.Quota.KeyFile != "" && !strings.HasPrefix(c.Quota.KeyFile, "/") {
		return fmt.Errorf("isolane: quota key file %q: must be an absolute path", c.Quota.KeyFile)
	}
	if path, unix := strings.CutPrefix(c.Quota.Server, "unix:"); unix {
		if !strings.HasPrefix(path, "/") || len(path) == 1 {
			return fmt.Errorf("isolane: quota server %q: must have an absolute path behind unix:", c.Quota.Server)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Quota.Server); err != nil {
		return fmt.Errorf("isolane: quota server %q: must be \"unix:/absolute/path\" or an address and a port, like "+
			"\"127.0.0.1:7480\"", c.Quota.Server)
	}
	return nil
}
