package tools

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
)

// ErrUpstreamGone: the configuration has no upstream of that name at the
// address that the version is pinned to. An operation is never sent to another
// address.
var ErrUpstreamGone = errors.New("tools: the pinned upstream is no longer configured")

// Registry holds the tools that are in force, by name, and the older versions
// that operations still finish on. It is safe for concurrent use.
type Registry struct {
	load func(ctx context.Context, version string) (*Tool, error)

	mu      sync.RWMutex
	current map[string]*Tool
	// versions are all that were compiled in this process, by digest; few, as
	// only reloads add to it.
	versions map[string]*Tool
}

// NewRegistry makes an empty registry. load compiles a version that is not in
// force any more from its stored manifest; it returns ErrUpstreamGone (wrapped)
// when its upstream is gone.
func NewRegistry(load func(ctx context.Context, version string) (*Tool, error)) *Registry {
	return &Registry{load: load, current: map[string]*Tool{}, versions: map[string]*Tool{}}
}

// Set replaces what is in force, all at once. Two tools of one name are
// refused and nothing changes.
func (r *Registry) Set(list []*Tool) error {
	next := make(map[string]*Tool, len(list))
	for _, t := range list {
		if _, twice := next[t.Name]; twice {
			return fmt.Errorf("two manifests declare the tool %s", t.Name)
		}
		next[t.Name] = t
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = next
	for _, t := range list {
		r.versions[t.Version] = t
	}
	return nil
}

// Get gives the tool in force under a name.
func (r *Registry) Get(name string) (*Tool, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.current[name]
	return t, ok
}

// List gives the tools in force, by name.
func (r *Registry) List() []*Tool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]*Tool, 0, len(r.current))
	for _, t := range r.current {
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Versions gives the version in force of each tool, for the guard row.
func (r *Registry) Versions() map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[string]string, len(r.current))
	for name, t := range r.current {
		out[name] = t.Version
	}
	return out
}

// Version gives a tool by its version, in force or not.
func (r *Registry) Version(ctx context.Context, version string) (*Tool, error) {
	r.mu.RLock()
	t, ok := r.versions[version]
	r.mu.RUnlock()
	if ok {
		return t, nil
	}
	t, err := r.load(ctx, version)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[version] = t
	return t, nil
}
