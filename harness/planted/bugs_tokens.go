package planted

// Tokens, keys and signed statements.
var bugsTokens = []bug{
	{
		Name: "token_signature", Rule: "S1: a token is ours only when its signature verifies", By: room("tokens", "^TestSigner_Verify_one_field_mutation$"),
		edit: edit{"tokens/tokens.go", `if jwt.SigningMethodEdDSA.Verify(t.input, t.signature, t.key.public) != nil {`, `if jwt.SigningMethodEdDSA.Verify(t.input, t.signature, t.key.public) != nil && !fault.Planted("token_signature") {`},
	},
	{
		Name: "token_expiry", Rule: "R4: a commit token is short-lived", By: room("tokens", "^TestSigner_Verify_times$"),
		edit: edit{"tokens/tokens.go", `case c.Expired(now):`, `case c.Expired(now) && !fault.Planted("token_expiry"):`},
	},
	{
		Name: "token_retired_key", Rule: "a retired key replays and opens nothing (matrix row 41)", By: room("tokens", "^TestKeySet_Rotate$"),
		edit: edit{"tokens/tokens.go", `case !t.key.opens(now):`, `case !t.key.opens(now) && !fault.Planted("token_retired_key"):`},
	},
	{
		Name: "token_spelling", Rule: "S7: a token has one spelling", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/tokens.go", `return b, err == nil && encode(b) == s`, `return b, err == nil && (encode(b) == s || fault.Planted("token_spelling"))`},
	},
	{
		Name: "token_of_another_deployment", Rule: "S4: a token of another deployment is none", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/claims.go", `case c.Issuer != issuer:`, ``},
	},
	{
		Name: "token_of_another_audience", Rule: "S4: a token for something else is none", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/claims.go", `case c.Audience != audience(issuer):`, ``},
	},
	{
		Name: "token_of_another_purpose", Rule: "S4: a token commits and nothing else", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/claims.go", `case c.Purpose != purpose:`, ``},
	},
	{
		Name: "token_of_any_life", Rule: "S3: a token lives 15 minutes at most", By: room("tokens", "^TestSigner_Verify_times$"),
		edit: edit{"tokens/claims.go", `case c.ExpiresAt-c.IssuedAt > int64(MaxTTL/time.Second):`, ``},
	},
	{
		Name: "token_from_the_future", Rule: "S3: a token of the future is none", By: room("tokens", "^TestSigner_Verify_times$"),
		edit: edit{"tokens/tokens.go", `if c.IssuedAt > now.Add(MaxSkew).Unix() {`, ``},
	},
	{
		Name: "token_of_loose_claims", Rule: "S7: the claims are spelt as they were minted", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/claims.go", `if err != nil || !bytes.Equal(again, payload) {`, `if err != nil || !bytes.Equal(again, payload) && !fault.Planted("token_of_loose_claims") {`},
	},
	{
		Name: "token_of_any_length", Rule: "S7: a token is looked at up to a bounded length", By: room("tokens", "^TestInput_token_long$"),
		edit: edit{"tokens/tokens.go", `if len(token) > MaxLength {
		return opened{}`, ``},
	},
	{
		Name: "token_without_a_digest", Rule: "S2: a token holds no key, but its digest", By: room("tokens", "^TestSigner_Verify_payload$"),
		edit: edit{"tokens/claims.go", `case !isKeyDigest(b.KeyDigest):`, ``},
	},
	{
		Name: "key_verifies_for_ever", Rule: "S9: a key that was retired long ago verifies nothing", By: room("tokens", "^TestKeySet_Rotate$"),
		edit: edit{"tokens/keys.go", `if found == nil || !found.verifies(now, k.retention) {`, `if found == nil || !found.verifies(now, k.retention) && !fault.Planted("key_verifies_for_ever") {`},
	},
	{
		Name: "previous_key_opens_for_ever", Rule: "S9: a key that signs no more opens nothing after its last token", By: room("tokens", "^TestKeySet_Rotate$"),
		edit: edit{"tokens/keys.go", `k.state == previous && now.Before(k.retiredAt.Add(MaxTTL))`, `k.state == previous && (now.Before(k.retiredAt.Add(MaxTTL)) || fault.Planted("previous_key_opens_for_ever"))`},
	},
	{
		Name: "key_file_open_to_others", Rule: "S11: a key file that others can read is refused", By: room("tokens", "^TestKeyFile_mode$"),
		edit: edit{"tokens/keyfile.go", `case info.Mode().Perm()&0o077 != 0:`, ``},
	},
	{
		Name: "key_of_another_name", Rule: "S11: a key's id is its thumbprint", By: room("tokens", "^TestLoad_refuses$"),
		edit: edit{"tokens/keyfile.go", `case s.ID != k.id:`, ``},
	},
	{
		Name: "seed_of_another_key", Rule: "S11: seed and public key belong together", By: room("tokens", "^TestLoad_refuses$"),
		edit: edit{"tokens/keyfile.go", `if !k.public.Equal(k.private.Public()) {`, ``},
	},
	{
		Name: "two_keys_sign", Rule: "S9: exactly one key signs", By: room("tokens", "^TestLoad_refuses$"),
		edit: edit{"tokens/keyfile.go", `if signing != 1 {`, ``},
	},
	{
		Name: "statement_as_a_token", Rule: "S4: no statement has the type of tokens", By: room("tokens", "^TestStatement_KindsAreApart$"),
		edit: edit{"tokens/statement.go", `return typ != commitType &&`, `return (typ != commitType || fault.Planted("statement_as_a_token")) &&`},
	},
	{
		Name: "statement_signature", Rule: "a statement is what its key signed", By: room("tokens", "^TestStatement_EveryByteCounts$"),
		edit: edit{"tokens/statement.go", `if !ok || !ed25519.Verify(p[kid], []byte(header+"."+body), signature) {`, `if !ok || !ed25519.Verify(p[kid], []byte(header+"."+body), signature) && !fault.Planted("statement_signature") {`},
	},
	{
		Name: "published_key_of_another_name", Rule: "a published key's id is its thumbprint", By: room("tokens", "^TestParseJWKS_Refuses$"),
		edit: edit{"tokens/statement.go", `if k.ID != thumbprint(public) {`, ``},
	},
}
