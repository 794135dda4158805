package tokens

import "time"

// KeyInfo describes one key of a set, without its seed.
type KeyInfo struct {
	// ID is the kid in tokens and in the published set.
	ID string `json:"kid"`
	// State is active (signs), previous (its tokens still open operations for a
	// while) or retired (its tokens verify for replay only).
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// RetiredAt is when the key stopped signing; zero while it signs.
	RetiredAt time.Time `json:"retired_at,omitzero"`
	// VerifiesUntil is when its tokens are no longer believed at all; zero while
	// it signs.
	VerifiesUntil time.Time `json:"verifies_until,omitzero"`
}

// List describes the keys that verify at now, the newest first, with the state
// that they have at that moment: a previous key whose tokens have all expired
// counts as retired, also before the file says so.
func (k *KeySet) List(now time.Time) []KeyInfo {
	var list []KeyInfo
	for _, key := range k.table.Load().keys {
		if !key.verifies(now, k.retention) {
			continue
		}
		info := KeyInfo{ID: key.id, State: string(key.state), CreatedAt: key.createdAt, RetiredAt: key.retiredAt}
		if key.state != active {
			info.VerifiesUntil = key.retiredAt.Add(k.retention)
			if !key.opens(now) {
				info.State = string(retired)
			}
		}
		list = append(list, info)
	}
	return list
}
