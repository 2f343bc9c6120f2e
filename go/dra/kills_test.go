package main

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Longest time from a start, or from the first request, to a kill.
const (
	startMax = 20 * time.Millisecond
	serveMax = 40 * time.Millisecond
)

// killed has the claims of the test, and what a kubelet knows of each.
type killed struct {
	mutex  sync.Mutex
	claims []*resourceapi.ResourceClaim
	// prepared claims were confirmed; of unsure ones the last request had no answer.
	prepared, unsure map[int]bool
}

// work prepares and unprepares random claims until the driver ends.
func (w *killed) work(ctx context.Context, k *kubelet) {
	for ctx.Err() == nil {
		at := rand.IntN(len(w.claims))
		claim := w.claims[at]
		one := []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}}
		w.mutex.Lock()
		isPrepared := w.prepared[at]
		w.unsure[at] = true
		w.mutex.Unlock()
		var text string
		var err error
		if isPrepared {
			var got *drapb.NodeUnprepareResourcesResponse
			got, err = k.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: one})
			text = got.GetClaims()[string(claim.UID)].GetError()
		} else {
			var got *drapb.NodePrepareResourcesResponse
			got, err = k.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: one}, grpc.WaitForReady(true))
			text = got.GetClaims()[string(claim.UID)].GetError()
		}
		if err != nil || text != "" {
			return
		}
		w.mutex.Lock()
		w.prepared[at] = !isPrepared
		w.unsure[at] = false
		w.mutex.Unlock()
	}
}

// check compares the files with what the kubelet knows.
func (w *killed) check(t *testing.T, m *machine) {
	t.Helper()
	for at, claim := range w.claims {
		assignment := assignmentName(claim.UID, podUID(at+1)) + assignmentSuffix
		for _, file := range []string{m.path("cdi/" + specName(claim.UID)), m.path("control/assignments/" + assignment)} {
			if _, err := os.Stat(file); w.prepared[at] && !w.unsure[at] && err != nil {
				t.Errorf("a prepared claim has lost a file: %v", err)
			}
		}
	}
}

// Goal: a driver that is killed at any moment loses no prepared claim, its successor starts, and nothing stays of claims that ended.
func TestKillsLoseNoClaimAndLeaveNothing(t *testing.T) {
	count := 8
	if text := os.Getenv("ISOLANE_KILLS"); text != "" {
		count, _ = strconv.Atoi(text)
	}
	m := newMachine(t)
	w := &killed{prepared: map[int]bool{}, unsure: map[int]bool{}}
	for number := range 4 {
		claim := newClaim("prod", number+1, "mlx5-0-bandwidth-4-"+strconv.Itoa(number))
		w.claims = append(w.claims, claim)
		m.api.put(claim)
	}
	for round := range count {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			m.t = t
			if rand.IntN(4) == 0 {
				k := m.launch()
				time.Sleep(rand.N(startMax))
				k.kill()
			}
			k := m.start()
			w.check(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			ended.Go(func() { w.work(ctx, k) })
			time.Sleep(rand.N(serveMax))
			k.kill()
			cancel()
			ended.Wait()
			w.check(t, m)
		})
	}
	m.t = t
	k := m.start()
	for _, claim := range w.claims {
		if wrong := k.unprepare(string(claim.UID)); wrong != "" {
			t.Error(wrong)
		}
	}
	m.mustHave(t, 0)
}
