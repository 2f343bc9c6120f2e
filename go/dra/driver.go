package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// reconcileMax bounds one comparison with the API server: the kubelet waits for the first one.
const reconcileMax = 20 * time.Second

// driver answers the kubelet.
type driver struct {
	node              string
	offers            *offers
	latencyNamespaces []string
	store             *store
	claims            resourceclient.ResourceClaimsGetter
	fatal             context.CancelCauseFunc
	// mutex: the kubelet's calls and reconcile change the same files.
	mutex sync.Mutex
	// changes counts the kubelet's calls: a claim that was read before a call is not applied after it.
	changes int
	// last is the claim that the last comparison ended with; the next one begins after it.
	last types.UID
	// said are the reports of the last reconcile; each is printed once while its reason lasts.
	said map[string]bool
}

var _ kubeletplugin.DRAPlugin = (*driver)(nil)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. Each claim succeeds or fails by itself.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.changes++
	made := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		if err != nil {
			log.Printf("cannot prepare: %v", err)
		}
		made[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	return made, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if err := checkUID("claim", claim.UID); err != nil {
		return nil, err
	}
	if len(validation.IsDNS1123Label(claim.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(claim.Name)) > 0 {
		return nil, fmt.Errorf("claim %.80q of the namespace %.80q: must have names as the API server accepts them", claim.Name, claim.Namespace)
	}
	wanted, err := requestOf(claim, d.node, d.offers, d.mayHaveLatency)
	if err != nil {
		return nil, err
	}
	one := record{uid: claim.UID, claim: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, share: wanted.share}
	var devices []kubeletplugin.Device
	for _, result := range wanted.results {
		one.devices = append(one.devices, result.Device)
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{deviceID(claim.UID)},
		})
	}
	pods, err := podsOf(claim)
	if err != nil {
		return nil, err
	}
	if err := d.conflict(one, pods); err != nil {
		return nil, err
	}
	if err := d.store.prepare(one, pods); err != nil {
		return nil, fmt.Errorf("claim %s: %w", one.claim, err)
	}
	return devices, nil
}

// conflict rejects a device that another prepared claim holds, and a pod that has another claim: a process has one class and weight.
func (d *driver) conflict(one record, pods []types.UID) error {
	others, wrong := d.store.prepared()
	if len(wrong) > 0 {
		return fmt.Errorf("claim %s: cannot compare it with the prepared claims: %w", one.claim, wrong[0])
	}
	for _, other := range others {
		if other.uid == one.uid {
			continue
		}
		for _, device := range one.devices {
			if slices.Contains(other.devices, device) {
				return fmt.Errorf("claim %s: device %s is prepared for the claim %s; delete the pods of one of the two", one.claim, device, other.claim)
			}
		}
	}
	for _, pod := range pods {
		if err := d.podConflict(one, pod); err != nil {
			return err
		}
	}
	return nil
}

// podConflict is an error if the pod has an assignment by another claim.
func (d *driver) podConflict(one record, pod types.UID) error {
	for _, name := range d.store.assigned("") {
		other, ours := claimOf(name)
		if ours && other != one.uid && name == assignmentName(other, pod) {
			return fmt.Errorf("claim %s: the pod with uid %s already has the claim with uid %s; give a pod one claim, with all its devices", one.claim, pod, other)
		}
	}
	return nil
}

func (d *driver) mayHaveLatency(namespace string) bool {
	return slices.Contains(d.latencyNamespaces, namespace) || slices.Contains(d.latencyNamespaces, "*")
}

// podsOf are the pods that may use the claim.
func podsOf(claim *resourceapi.ResourceClaim) ([]types.UID, error) {
	var pods []types.UID
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		if err := checkUID("pod", consumer.UID); err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		pods = append(pods, consumer.UID)
	}
	return pods, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.changes++
	made := map[types.UID]error{}
	for _, claim := range claims {
		err := d.store.remove(claim.UID)
		if err != nil {
			log.Printf("cannot unprepare %.300s: %v", claim.String(), err)
		}
		made[claim.UID] = err
	}
	return made, nil
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fatal(fmt.Errorf("%s: %w", message, err))
	}
}

// reconcile compares what is prepared with the claims of the API server. It undoes claims that are gone, which the kubelet of a
// machine that was down may never name again, and follows the pods of a shared claim: the kubelet prepares such a claim once, for
// its first pod. While the API server does not answer, everything stays.
func (d *driver) reconcile(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reconcileMax)
	defer cancel()
	d.mutex.Lock()
	records, wrong := d.store.prepared()
	d.mutex.Unlock()
	// All claims are compared in turn, also if they are too many for one comparison. The records are in the order of their identifiers.
	begin := slices.IndexFunc(records, func(one record) bool { return one.uid > d.last })
	if begin > 0 {
		records = slices.Concat(records[begin:], records[:begin])
	}
	for _, one := range records {
		d.mutex.Lock()
		changes := d.changes
		d.mutex.Unlock()
		claim, err := d.claims.ResourceClaims(one.claim.Namespace).Get(ctx, one.claim.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			wrong = append(wrong, fmt.Errorf("claim %s: %w; its share stays", one.claim, err))
			continue
		}
		gone := err != nil || claim.UID != one.uid
		d.last = one.uid
		d.mutex.Lock()
		if d.changes == changes {
			if err := d.follow(one, claim, gone); err != nil {
				wrong = append(wrong, fmt.Errorf("claim %s: %w", one.claim, err))
			}
		}
		d.mutex.Unlock()
	}
	d.mutex.Lock()
	if err := d.sweep(); err != nil {
		wrong = append(wrong, err)
	}
	d.mutex.Unlock()
	d.report(wrong)
}

// follow brings one claim up to date.
func (d *driver) follow(one record, claim *resourceapi.ResourceClaim, gone bool) error {
	now, err := d.store.read(one.uid)
	if errors.Is(err, errNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	if gone || !holds(claim, d.node) {
		log.Printf("claim %s is gone: its share ends", one.claim)
		return d.store.remove(one.uid)
	}
	pods, err := podsOf(claim)
	if err != nil {
		return err
	}
	// The kubelet did not ask for the later pods of a shared claim, so no answer could reject them.
	var mine []types.UID
	var conflicts []error
	for _, pod := range pods {
		if err := d.podConflict(now, pod); err != nil {
			conflicts = append(conflicts, err)
			continue
		}
		mine = append(mine, pod)
	}
	if err := d.store.assign(now, mine); err != nil {
		return err
	}
	if len(conflicts) > 0 {
		return conflicts[0]
	}
	return nil
}

// holds says whether the claim still has devices of this machine.
func holds(claim *resourceapi.ResourceClaim, node string) bool {
	allocation := claim.Status.Allocation
	return allocation != nil && slices.ContainsFunc(allocation.Devices.Results, func(result resourceapi.DeviceRequestAllocationResult) bool {
		return result.Driver == driverName && result.Pool == node
	})
}

// sweep removes assignments without a record, and files that were never complete.
func (d *driver) sweep() error {
	if err := d.store.removeParts(); err != nil {
		return err
	}
	records, wrong := d.store.prepared()
	if len(wrong) > 0 {
		// A record that cannot be read may have assignments.
		return nil
	}
	for _, name := range d.store.assigned("") {
		uid, ours := claimOf(name)
		if !ours || slices.ContainsFunc(records, func(one record) bool { return one.uid == uid }) {
			continue
		}
		if err := d.store.remove(uid); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) report(wrong []error) {
	said := map[string]bool{}
	for _, err := range wrong {
		said[err.Error()] = true
		if !d.said[err.Error()] {
			log.Print(err)
		}
	}
	d.said = said
}
