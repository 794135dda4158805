package identity

import "strings"

// common tells the passwords of ten characters and more that every guessing
// tool begins with (NIST SP 800-63B, section 5.1.1.2 asks for such a list):
// those of the published lists, the product's own name, and one or two
// characters over and over. Case does not save them.
func common(password string) bool {
	p := strings.ToLower(password)
	return commonPasswords[p] || repeats(p)
}

// repeats tells a text made of one unit of at most three characters.
func repeats(p string) bool {
	runes := []rune(p)
	for unit := 1; unit <= 3; unit++ {
		same := true
		for i := unit; i < len(runes) && same; i++ {
			same = runes[i] == runes[i-unit]
		}
		if same {
			return true
		}
	}
	return false
}

var commonPasswords = func() map[string]bool {
	set := map[string]bool{}
	for _, p := range strings.Fields(`
		0123456789 1234567890 12345678901 12345678910 123456789012 1234567891
		123456789a 123456789q 1234567899 12345678900 9876543210 0987654321 1029384756
		1q2w3e4r5t 1q2w3e4r5t6y 1qaz2wsx3edc 1qazxsw23edc q1w2e3r4t5 q1w2e3r4t5y6
		qazwsxedcrfv qwertyuiop qwertyuiop123 qwerty12345 qwerty123456 qwerty1234
		qwertyuiop[] asdfghjkl; asdfghjkl1 asdfghjkl123 qwertzuiop azertyuiop zaq12wsxcde3
		zxcvbnm123 zxcvbnm1234 abcdefghij abcdefghijk abcdefghijklmnop abcd123456
		abc123456789 abcdef123456 a123456789 a1b2c3d4e5 aa123456789 1234567890a
		1234qwerasdf qwer1234asdf 123qweasdzxc 123456qwerty
		password01 password10 password11 password12 password123 password1234
		password12345 password123! password1! password123456 passw0rd123 passw0rd1234
		p@ssw0rd123 p@ssword123 p@ssw0rd1234 p@ssw0rd1! p@ssword1234 mypassword
		mypassword1 thepassword newpassword yourpassword passwordpassword
		administrator admin12345 admin123456 adminadmin admin1234567 admin@1234
		changeme123 changemenow changeme1234 letmein123 letmein1234 letmeinnow
		welcome123 welcome1234 welcome12345 welcome2024 welcome2025 welcome2026
		summer2024 summer2025 summer2026 winter2024 winter2025 winter2026
		iloveyou123 iloveyou12 iloveyouforever sunshine123 princess123 football123
		football12 baseball123 superman123 batman12345 dragon12345 monkey12345
		master12345 master123456 computer123 internet123 starwars123 liverpool1
		liverpool123 charlie123 michael123 jennifer123 jordan12345
		correcthorse correcthorsebatterystaple trustno1234
		countersign countersign1 countersign12 countersign123 countersign1234
	`) {
		set[p] = true
	}
	return set
}()
