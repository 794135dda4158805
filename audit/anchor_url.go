package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// URLAnchor posts each record as JSON to one address, and reads the newest back
// with GET from the same: 200 and the record, or 204 or 404 when there is none.
// Whoever serves it keeps them in the order in which they came, and answers 2xx
// once one is durable. 409 says that it does not follow.
type URLAnchor struct {
	url    string
	bearer func() (string, error)
	client *http.Client
}

// NewURLAnchor takes an https:// address, or http:// on loopback. bearer, if any,
// is asked for the credential at each request.
func NewURLAnchor(address string, bearer func() (string, error)) (*URLAnchor, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("must be https:// with a host, without credentials in it")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, errors.New("must be https:// beyond loopback: who can change it on the way can make it say anything")
	}
	// Nothing of the environment decides where it goes, and a redirect is refused.
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext, MaxResponseHeaderBytes: 32 << 10}
	return &URLAnchor{url: address, bearer: bearer, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// Name implements Anchor. A query may hold a secret and is left out.
func (a *URLAnchor) Name() string {
	name, _, _ := strings.Cut(a.url, "?")
	return "url " + name
}

// Append implements Anchor.
func (a *URLAnchor) Append(ctx context.Context, r Record) error {
	status, _, err := a.do(ctx, http.MethodPost, mustJSON(r))
	switch {
	case err != nil:
		return err
	case status == http.StatusConflict:
		return ErrForked
	case status/100 != 2:
		return fmt.Errorf("it answered %d", status)
	}
	return nil
}

// Last implements Anchor.
func (a *URLAnchor) Last(ctx context.Context) (Record, bool, error) {
	status, body, err := a.do(ctx, http.MethodGet, nil)
	switch {
	case err != nil:
		return Record{}, false, err
	case status == http.StatusNotFound || status == http.StatusNoContent:
		return Record{}, false, nil
	case status != http.StatusOK:
		return Record{}, false, fmt.Errorf("it answered %d", status)
	}
	r, err := readRecord(body)
	return r, err == nil, err
}

func (a *URLAnchor) do(ctx context.Context, method string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.bearer != nil {
		token, err := a.bearer()
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err // without the address, whose query may hold a secret
		}
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // what counts was read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRecord+1))
	if err == nil && len(text) > maxRecord {
		err = errors.New("its answer is too long to be a record")
	}
	return resp.StatusCode, text, err
}
