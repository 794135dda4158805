package shop

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed static
var files embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"money": money,
	"state": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	"clock": func(t time.Time) string { return t.Format("15:04:05") },
	"date":  func(t time.Time) string { return t.Format(time.RFC3339) },
}).ParseFS(files, "static/page.html"))

// The page shows so many rows of what grows without end.
const (
	shownHappenings = 50
	shownRequests   = 20
	shownLetters    = 20
	shownRefunds    = 20
)

// happening is one line of what really happened: an effect, or a change by hand.
type happening struct {
	Number int // of the effect; 0 for a change by hand
	Time   time.Time
	ID     string
	Text   string
	Key    string
}

// spoilt is one way to spoil the next answer, in words.
type spoilt struct {
	Answer Answer
	Words  string
}

var spoiltWords = []spoilt{
	{AnswerTruncated, "do it, answer with half a body"},
	{AnswerNotJSON, "do it, answer with HTML"},
	{AnswerHuge, "do it, answer with 32 MiB"},
	{AnswerTrickle, "do it, answer one byte a second"},
	{AnswerHints, "do it, send 1,000 interim answers first"},
	{AnswerNotDone, "don't do it, and say it is done"},
	{AnswerTooMany, "don't do it, answer 429"},
	{AnswerRedirect, "don't do it, answer 307"},
}

type pageData struct {
	Effects, Requests, Reads int
	Happened                 []happening
	Recent                   []Request
	Orders                   []Order
	Payments                 []Payment
	Refunds                  []Refund
	Addresses                []Address
	Letters                  []Letter
	Switches                 Switches
	Broken                   bool // some switch is on
	Spoilt                   []spoilt
}

func (s *Shop) pageData() pageData {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := pageData{
		Effects: len(s.effects), Requests: len(s.requests), Reads: s.reads,
		Orders:    s.state.orders.all(),
		Payments:  s.state.payments.all(),
		Refunds:   newest(s.state.refunds.all(), shownRefunds),
		Addresses: s.state.addresses.all(),
		Letters:   newest(s.state.letters.all(), shownLetters),
		Switches:  s.switches,
		Broken:    s.switches != Switches{},
		Spoilt:    spoiltWords,
	}
	inOrder(s.effects, s.changes, func(e Effect) {
		d.Happened = append(d.Happened, happening{e.Number, e.Time, e.ID, e.Text, e.Key})
	}, func(c change) {
		d.Happened = append(d.Happened, happening{Time: c.Time, Text: c.Text})
	})
	d.Happened = newest(d.Happened, shownHappenings)
	for _, r := range newest(s.requests, shownRequests) {
		d.Recent = append(d.Recent, *r)
	}
	return d
}

// getPage is GET /: what really happened, the rows, the switches. It works
// without script; with it the page follows by itself.
func (s *Shop) getPage(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, s.pageData()); err != nil {
		s.cfg.Logger.Error("shop: the page can't be rendered", "error", err)
		answerError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// static serves one embedded file, checked again by its digest on each use.
func static(name, contentType string) http.HandlerFunc {
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		panic("shop: " + err.Error()) // the file is embedded
	}
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}
