package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Names of CDI: the kind of the claims' devices, and the device whose edits they have.
const (
	cdiClass   = "claim"
	cdiKind    = driverName + "/" + cdiClass
	cdiPaced   = driverName + "/rdma=paced"
	cdiVersion = "0.6.0"
)

// Annotations of a claim's specification: who the claim is, and which devices it holds.
const (
	noteNamespace = driverName + "/namespace"
	noteName      = driverName + "/name"
	noteClass     = driverName + "/class"
	noteWeight    = driverName + "/weight"
	noteDevices   = driverName + "/devices"
)

const (
	assignmentPrefix = "claim-"
	assignmentSuffix = ".toml"
	specPrefix       = driverName + "-" + cdiClass + "_"
	specSuffix       = ".json"
	// A file that is not complete has these before and after its name.
	partPrefix = "."
	partSuffix = ".part"
	// uidLength is that of a UUID.
	uidLength = 36
	// tenantMax is the longest name of a tenant, bytes.
	tenantMax = 64
)

// store is what the driver keeps on the machine. The CDI specification of a claim is the record that the claim is prepared: it is
// written before the claim's assignments and removed after them. So a driver that was killed finds each claim that it must still undo.
type store struct {
	folder      string
	assignments string
	cache       *cdi.Cache
}

// errNoRecord: the claim is not prepared.
var errNoRecord = errors.New("the claim is not prepared")

// record is a prepared claim.
type record struct {
	uid     types.UID
	claim   types.NamespacedName
	share   share
	devices []string
}

func newStore(folder, assignments string) *store {
	// The error is always nil; errors of specifications come from Refresh.
	cache, _ := cdi.NewCache(cdi.WithSpecDirs(folder), cdi.WithAutoRefresh(false))
	return &store{folder: folder, assignments: assignments, cache: cache}
}

// uuid is the form of all identifiers that the API server makes.
var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// checkUID rejects an identifier that would name another file or another pod, before a path or an assignment is made of it.
func checkUID(what string, uid types.UID) error {
	if !uuid.MatchString(string(uid)) {
		return fmt.Errorf("uid %.80q of a %s: must be a UUID of hexadecimal digits and dashes", uid, what)
	}
	return nil
}

func specName(uid types.UID) string { return specPrefix + string(uid) + specSuffix }

// deviceID is the name by which a container runtime finds the claim's device.
func deviceID(uid types.UID) string { return cdiKind + "=" + string(uid) }

// prepare writes the claim's specification, and then its assignments. The kubelet may call it again.
func (s *store) prepare(one record, pods []types.UID) error {
	if err := checkUID("claim", one.uid); err != nil {
		return err
	}
	// Errors of other vendors' specifications are theirs.
	_ = s.cache.Refresh()
	paced := s.cache.GetDevice(cdiPaced)
	if paced == nil {
		return fmt.Errorf("no CDI device %s in %s: run isolane rdma cdi --write %s", cdiPaced, s.folder, s.folder)
	}
	spec := &specs.Spec{
		Version: cdiVersion,
		Kind:    cdiKind,
		Annotations: map[string]string{
			noteNamespace: one.claim.Namespace,
			noteName:      one.claim.Name,
			noteClass:     one.share.class,
			noteWeight:    strconv.FormatInt(one.share.weight, 10),
			noteDevices:   strings.Join(one.devices, ","),
		},
		Devices: []specs.Device{{Name: string(one.uid), ContainerEdits: paced.ContainerEdits}},
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = replace(s.folder, specName(one.uid), string(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the CDI specification of the claim into %s: %w", s.folder, err)
	}
	return s.assign(one, pods)
}

// remove undoes prepare: the assignments first, the record last. A claim that is not prepared is no error.
func (s *store) remove(uid types.UID) error {
	if err := checkUID("claim", uid); err != nil {
		return err
	}
	if err := s.assign(record{uid: uid}, nil); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.folder, specName(uid))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the CDI specification of the claim: %w", err)
	}
	return nil
}

// prepared are the claims whose specification is there. A file that cannot be read is an error and no claim.
func (s *store) prepared() ([]record, []error) {
	entries, err := os.ReadDir(s.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, []error{err}
	}
	var records []record
	var wrong []error
	for _, entry := range entries {
		name, hasBegin := strings.CutPrefix(entry.Name(), specPrefix)
		name, hasEnd := strings.CutSuffix(name, specSuffix)
		if !hasBegin || !hasEnd || checkUID("claim", types.UID(name)) != nil {
			continue
		}
		one, err := s.read(types.UID(name))
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		records = append(records, one)
	}
	return records, wrong
}

func (s *store) read(uid types.UID) (record, error) {
	path := filepath.Join(s.folder, specName(uid))
	spec, err := cdi.ReadSpec(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, errNoRecord
	}
	if err != nil {
		return record{}, fmt.Errorf("%s: is not a specification that this driver wrote: %w; remove it", path, err)
	}
	notes := spec.Annotations
	weight, err := strconv.ParseInt(notes[noteWeight], 10, 64)
	if err != nil || notes[noteName] == "" || notes[noteNamespace] == "" || notes[noteDevices] == "" {
		return record{}, fmt.Errorf("%s: lacks the annotations of this driver; remove it", path)
	}
	return record{
		uid:     uid,
		claim:   types.NamespacedName{Namespace: notes[noteNamespace], Name: notes[noteName]},
		share:   share{class: notes[noteClass], weight: weight},
		devices: strings.Split(notes[noteDevices], ","),
	}, nil
}

// assign writes an assignment for each pod of the claim and removes those of other pods.
func (s *store) assign(one record, pods []types.UID) error {
	wanted := map[string]bool{}
	for _, pod := range pods {
		if err := checkUID("pod", pod); err != nil {
			return err
		}
		name := assignmentName(one.uid, pod)
		wanted[name] = true
		if err := s.write(name+assignmentSuffix, assignment(one, pod)); err != nil {
			return fmt.Errorf("cannot write an assignment into %s: %w; start isolaned", s.assignments, err)
		}
	}
	for _, name := range s.assigned(one.uid) {
		if wanted[name] {
			continue
		}
		if err := os.Remove(filepath.Join(s.assignments, name+assignmentSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove an assignment: %w", err)
		}
	}
	return nil
}

// assigned are the names of the claim's assignments; of all claims' without a claim.
func (s *store) assigned(claim types.UID) []string {
	begin := assignmentPrefix
	if claim != "" {
		begin += string(claim) + "-"
	}
	// A folder that cannot be read has no assignments.
	entries, _ := os.ReadDir(s.assignments)
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), assignmentSuffix); ok && strings.HasPrefix(name, begin) {
			names = append(names, name)
		}
	}
	return names
}

func assignmentName(claim, pod types.UID) string {
	return assignmentPrefix + string(claim) + "-" + string(pod)
}

// claimOf is the claim of an assignment's name, if this driver has made the name.
func claimOf(name string) (types.UID, bool) {
	rest, ok := strings.CutPrefix(name, assignmentPrefix)
	if !ok || len(rest) < uidLength {
		return "", false
	}
	uid := types.UID(rest[:uidLength])
	return uid, checkUID("claim", uid) == nil
}

// assignment is the text of the file. No pod and no label can have a name with `=`, so the tenant is that of no other workload.
func assignment(one record, pod types.UID) string {
	tenant := fmt.Sprintf("%s/claim=%s", one.claim.Namespace, one.claim.Name)
	if len(tenant) > tenantMax {
		tenant = assignmentPrefix + string(one.uid)
	}
	return fmt.Sprintf("pod = %q\ntenant = %q\nclass = %q\nweight = %d\n", string(pod), tenant, one.share.class, one.share.weight)
}

// write puts a file into the daemon's folder.
func (s *store) write(name, text string) error {
	if there, err := os.ReadFile(filepath.Join(s.assignments, name)); err == nil && string(there) == text {
		return nil
	}
	// Only the daemon makes the folders above, with their modes.
	if err := os.Mkdir(s.assignments, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return replace(s.assignments, name, text, 0o600)
}

// replace writes a file in place of an earlier one. The file is never half there: neither isolaned nor a container runtime reads a
// name with partSuffix.
func replace(folder, name, text string, mode fs.FileMode) error {
	part := filepath.Join(folder, partPrefix+name+partSuffix)
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	// The folder may be on a disk: no power loss leaves an empty file under the name.
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(folder, name))
}

// removeParts removes what a driver left that was killed before a rename.
func (s *store) removeParts() error {
	for folder, begin := range map[string]string{s.folder: specPrefix, s.assignments: assignmentPrefix} {
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			if strings.HasPrefix(entry.Name(), partPrefix+begin) && strings.HasSuffix(entry.Name(), partSuffix) {
				if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return nil
}
