// Package planted proves that the tests can fail: it takes one guard after the
// other out of the product and demands that a test notices.
//
// What lives here: the list of planted bugs (bugs.go and its neighbours), each an
// edit of the product's own source with the test that must find it, and the
// program that builds and runs them (planted_test.go).
//
// How it flows: all edits are made at once in copies of the sources that only the
// compiler sees (go build -overlay), each behind a switch that is off. Each test
// binary is built once with that overlay; then it runs once with every switch off,
// which must pass, and once for each of its bugs with that switch on, which must
// fail. So the bugs stand in the very code that ships, and an edit that no longer
// fits its source is an error.
//
// What does not live here: the tests that find the bugs.
package planted
