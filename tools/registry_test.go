package tools_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools"
)

func named(name, version string) *tools.Tool {
	return &tools.Tool{Spec: tools.Spec{Name: name, Version: version}}
}

func TestRegistry_Set(t *testing.T) {
	r := tools.NewRegistry(func(context.Context, string) (*tools.Tool, error) { return nil, errors.New("not stored") })
	require.Empty(t, r.List())
	require.NoError(t, r.Set([]*tools.Tool{named("b", "b1"), named("a", "a1")}))
	require.Equal(t, "a", r.List()[0].Name)
	require.Equal(t, map[string]string{"a": "a1", "b": "b1"}, r.Versions())

	require.Error(t, r.Set([]*tools.Tool{named("c", "c1"), named("c", "c2")}))
	_, ok := r.Get("a")
	require.True(t, ok, "a refused set changes nothing")

	require.NoError(t, r.Set([]*tools.Tool{named("a", "a2")}))
	_, ok = r.Get("b")
	require.False(t, ok)
	got, ok := r.Get("a")
	require.True(t, ok)
	require.Equal(t, "a2", got.Version)
	for _, version := range []string{"a1", "b1", "a2"} {
		old, err := r.Version(context.Background(), version)
		require.NoError(t, err, "operations finish on the version that they were opened with")
		require.Equal(t, version, old.Version)
	}
}

// An older version is compiled from its stored manifest once, and never for
// another address.
func TestRegistry_Version(t *testing.T) {
	m := parse(t, smallest)
	want := bound(t, m)
	var loads atomic.Int64
	load := func(_ context.Context, version string) (*tools.Tool, error) {
		loads.Add(1)
		if version != want.Version {
			return nil, fmt.Errorf("version %s: %w", version, tools.ErrUpstreamGone)
		}
		return bound(t, parse(t, string(m.Spec.Manifest))), nil
	}
	r := tools.NewRegistry(load)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			got, err := r.Version(context.Background(), want.Version)
			require.NoError(t, err)
			require.Equal(t, want.Version, got.Version)
		})
	}
	wait.Wait()
	before := loads.Load()
	_, err := r.Version(context.Background(), want.Version)
	require.NoError(t, err)
	require.Equal(t, before, loads.Load(), "a compiled version is kept")
	_, err = r.Version(context.Background(), "sha256:other")
	require.ErrorIs(t, err, tools.ErrUpstreamGone)
}
