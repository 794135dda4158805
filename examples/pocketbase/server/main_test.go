package main_test

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// module is what `go mod edit -json` and `go list -m -json` tell of one.
type module struct {
	Path, Version, GoMod string
	Require              []struct{ Path, Version string }
}

func goJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}

// PocketBase is unmodified: the release that go.mod names, not replaced, on
// exactly the versions that it was released with. Its SQLite and libc belong
// together, so another requirement here could change what it does.
func TestVersions_AreTheReleaseOfPocketBase(t *testing.T) {
	var own struct {
		module
		Replace []any
	}
	goJSON(t, &own, "mod", "edit", "-json")
	if len(own.Replace) != 0 {
		t.Fatalf("go.mod replaces %v", own.Replace)
	}
	chosen := map[string]string{}
	for _, r := range own.Require {
		chosen[r.Path] = r.Version
	}
	var pocketbase, released module
	goJSON(t, &pocketbase, "list", "-m", "-json", "github.com/pocketbase/pocketbase")
	goJSON(t, &released, "mod", "edit", "-json", pocketbase.GoMod)
	compared := 0
	for _, r := range released.Require {
		if version, ok := chosen[r.Path]; ok {
			compared++
			if version != r.Version {
				t.Errorf("%s is %s here; PocketBase %s was released with %s", r.Path, version, pocketbase.Version, r.Version)
			}
		}
	}
	if compared < 20 {
		t.Fatalf("only %d versions compared", compared)
	}
}
