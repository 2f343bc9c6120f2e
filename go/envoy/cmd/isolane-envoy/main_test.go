package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Goal: the socket has its mode when it has its name, because a link may take the name later. Method: the kernel reports what
// happened in the folder.
func TestTheModeOfANamedSocketIsNotChanged(t *testing.T) {
	folder := t.TempDir()
	events, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(events)
	if _, err := syscall.InotifyAddWatch(events, folder, syscall.IN_ATTRIB|syscall.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	path := filepath.Join(folder, "envoy.sock")
	listener, err := open("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if now := syscall.Umask(0o022); now != 0o022 {
		t.Errorf("the umask is %#o afterwards", now)
	}
	var buffer [4096]byte
	bytes, err := syscall.Read(events, buffer[:])
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for at := 0; at < bytes; seen++ {
		if mask := binary.NativeEndian.Uint32(buffer[at+4:]); mask != syscall.IN_CREATE {
			t.Errorf("event %#x of the folder", mask)
		}
		at += syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buffer[at+12:]))
	}
	if seen != 1 {
		t.Errorf("%d events, not one", seen)
	}
	status, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if status.Mode().Perm() != 0o660 {
		t.Errorf("mode %#o", status.Mode().Perm())
	}
}
