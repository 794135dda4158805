package tokens

// Remembers reports whether s would skip the signature check of token.
func (s *Signer) Remembers(token string) bool { return s.own.remembers(token) }

// Remembered is how many of its own tokens s holds.
func (s *Signer) Remembered() int { return len(s.own.present) }
