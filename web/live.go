package web

import (
	"net/http"
	"net/url"
)

// liveParam marks the fetches that a page makes by itself, to refresh what it
// shows.
const liveParam = "live"

func isLive(r *http.Request) bool { return r.URL.Query().Has(liveParam) }

// address builds one of our own addresses; members are pairs of name and value,
// empty values are left out.
func address(path string, members ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(members); i += 2 {
		if members[i+1] != "" {
			q.Add(members[i], members[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
