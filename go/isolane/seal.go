package isolane

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
)

const (
	// keyMin is the shortest key, bytes: what HMAC-SHA256 can use in full.
	keyMin = 32
	// keyFileMax is the longest key file, bytes.
	keyFileMax = 4096
	// sealDigits is the length of a seal.
	sealDigits = 2 * sha256.Size
)

var noncePattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// readKey reads a key shared by several machines: the file's text without surrounding spaces. Only its owner may read
// the file.
func readKey(file string) ([]byte, error) {
	failed := func(reason string) error { return fmt.Errorf("the key file %s: %s", file, reason) }
	// Non-blocking, because a pipe may have no writer.
	opened, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the key file: %w", err)
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, fmt.Errorf("the key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, failed("is not a regular file; give the file itself")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, failed("others may read or write it; chmod 600")
	}
	text, err := io.ReadAll(io.LimitReader(opened, keyFileMax+1))
	if err != nil {
		return nil, fmt.Errorf("the key file: %w", err)
	}
	if len(text) > keyFileMax {
		return nil, failed(fmt.Sprintf("has more than %d bytes; give a shorter key", keyFileMax))
	}
	key := bytes.Trim(text, " \t\r\n\f")
	if len(key) < keyMin {
		return nil, failed(fmt.Sprintf("has %d bytes, needs %d or more; make one with: head -c 32 /dev/urandom | base64",
			len(key), keyMin))
	}
	return key, nil
}

// seals are the seals of one connection at one end of it. Each line begins with an HMAC over the sender's role, the
// line's number in its direction and its text, under a key derived from the shared key and both ends' nonces.
// crates/rpc/library/src/quota/seal.rs is the server's side.
type seals struct {
	key           []byte
	end, other    string
	written, read uint64
}

func newNonce() string {
	nonce := make([]byte, sha256.Size)
	// It never fails: without randomness the program ends.
	_, _ = rand.Read(nonce)
	return hex.EncodeToString(nonce)
}

func isNonce(text string) bool { return noncePattern.MatchString(text) }

// newSeals makes the seals of the end "client" or "server".
func newSeals(key []byte, end, clientNonce, serverNonce string) *seals {
	other := "server"
	if end == other {
		other = "client"
	}
	own := mac(key, []byte("isolane quota 1\n"+clientNonce+"\n"+serverNonce))
	return &seals{key: own, end: end, other: other}
}

func mac(key, text []byte) []byte {
	hash := hmac.New(sha256.New, key)
	hash.Write(text)
	return hash.Sum(nil)
}

func (s *seals) of(end string, number uint64, line []byte) []byte {
	return mac(s.key, append(fmt.Appendf(nil, "%s\n%d\n", end, number), line...))
}

// seal returns the line with its seal.
func (s *seals) seal(line []byte) []byte {
	seal := s.of(s.end, s.written, line)
	s.written++
	return append(append(hex.AppendEncode(nil, seal), ' '), line...)
}

// open returns the text of a sealed line; false if the peer did not write it as the next line of this connection.
func (s *seals) open(line []byte) ([]byte, bool) {
	if len(line) <= sealDigits || line[sealDigits] != ' ' {
		return nil, false
	}
	seal, err := hex.DecodeString(string(line[:sealDigits]))
	text := line[sealDigits+1:]
	if err != nil || !hmac.Equal(seal, s.of(s.other, s.read, text)) {
		return nil, false
	}
	s.read++
	return text, true
}
