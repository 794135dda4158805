package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"countersign"
)

// service adds the routes that are open to everybody. They take no credential,
// no query and no body, and most of them are no JSON, so they are written by
// hand.
func (s *Server) service(r chi.Router) {
	r.Get("/.well-known/jwks.json", s.getKeySet)
	r.Get("/openapi.yaml", s.getContract)
	r.Get("/docs", s.getReference)
	r.Get("/docs/{file}", s.getReferenceFile)
	r.Get("/healthz", s.getHealth)
	r.Get("/readyz", s.getReadiness)
}

func (s *Server) getKeySet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jwk-set+json")
	// Short, so that a new key is known soon after a rotation.
	w.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = w.Write(s.cfg.Keys.JWKS(s.cfg.Now()))
}

func (s *Server) getContract(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(countersign.OpenAPI)
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) { healthy(w) }

func (s *Server) getReadiness(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Ledger.Ready(r.Context()); err != nil {
		s.refuse(w, r, err)
		return
	}
	healthy(w)
}

func healthy(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status":"ok"}` + "\n"))
}
