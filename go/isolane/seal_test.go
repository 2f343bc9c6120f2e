package isolane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The seal equals that of crates/rpc/library/src/quota/seal.rs.
func TestTheSealIsThatOfTheServer(t *testing.T) {
	client := newSeals([]byte(strings.Repeat("k", 32)), "client", strings.Repeat("0", 64), strings.Repeat("1", 64))
	const line = `{"ask":"show"}`
	want := "b538e6f9786db4b10a69ccd9addbfcabea9481135c83e8aaa442b7361ba34c7d " + line
	if got := string(client.seal([]byte(line))); got != want {
		t.Errorf("seal %s, want %s", got, want)
	}
}

func TestEachEndReadsWhatTheOtherWroteOnceAndInOrder(t *testing.T) {
	key := []byte(strings.Repeat("k", 32))
	client, server := newSeals(key, "client", "a", "b"), newSeals(key, "server", "a", "b")
	first, second := client.seal([]byte("one")), client.seal([]byte("two"))
	opens := func(line []byte, want string) {
		t.Helper()
		text, proven := server.open(line)
		if string(text) != want || proven != (want != "") {
			t.Errorf("%s opens as %q, %v; want %q", line, text, proven, want)
		}
	}
	opens(second, "")
	opens(first, "one")
	opens(first, "")
	opens(second, "two")
	opens(server.seal([]byte("its own")), "")
	opens([]byte("short"), "")
	opens([]byte(strings.Repeat("x", 64)+" no digits"), "")
}

func TestOnlyAFileThatItsOwnerAloneReadsHoldsAKey(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "key")
	refused := func(path, text string, mode os.FileMode, want string) {
		t.Helper()
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
		}
		_, err := readKey(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(file, "", 0, "no such file")
	refused(folder, "", 0, "is not a regular file")
	refused(file, strings.Repeat("k", 32), 0o640, "chmod 600")
	refused(file, strings.Repeat("k", 31)+"\n", 0o600, "has 31 bytes, needs 32 or more")
	refused(file, strings.Repeat("k", 5000), 0o600, "more than 4096 bytes")
	if err := os.WriteFile(file, []byte(" "+strings.Repeat("k", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := readKey(file); err != nil || string(key) != strings.Repeat("k", 32) {
		t.Errorf("%q, %v", key, err)
	}
}
