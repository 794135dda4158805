package strictjson

import "golang.org/x/text/unicode/rangetable"

// The characters below come from confusables.txt of UTS 39, version 13.0.0
// (© 2020 Unicode, Inc., under the Unicode terms of use): those whose prototype
// is one printable ASCII character, or "rn", and that NFKC leaves alone. Left
// out are scripts whose writing no reader takes for Latin letters in a row, as
// Arabic, Hebrew, Thai, those of India and of China and Japan.

// likeASCII are non-ASCII Latin letters and symbols of no script that look like
// ASCII wherever they stand.
var likeASCII = rangetable.New([]rune("" +
	// Latin
	"\u0131\u0184\u018d\u0196\u01a6\u01a7\u01b7\u01bc\u01bd\u01c0\u01c3\u021c\u0222\u0223\u0241\u0251" +
	"\u0261\u0263\u0269\u026a\u026f\u028b\u028f\u0294\u1d04\u1d0f\u1d11\u1d1c\u1d20\u1d21\u1d22\u1d83" +
	"\u1d8c\u1e9d\u1eff\ua731\ua75a\ua76a\ua76e\ua778\ua78c\ua798\ua799\ua79f\ua7ab\ua7b2\ua7b3\ua7b4" +
	"\uab32\uab35\uab3d\uab47\uab48\uab4e\uab52\uab5a" +
	// Common
	"\u00d7\u02b9\u02bb\u02bc\u02bd\u02be\u02c2\u02c3\u02c4\u02c6\u02c8\u02ca\u02cb\u02d0\u02d7\u02f4" +
	"\u02f8\u16ec\u16ed\u1735\u1803\u2010\u2012\u2013\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a" +
	"\u2041\u2043\u2044\u204e\u2053\u205a\u212e\u2212\u2215\u2216\u2217\u2223\u2228\u222a\u2236\u223c" +
	"\u22a4\u22c1\u22c3\u22ff\u2373\u2374\u237a\u23fd\u2571\u2573\u2768\u2769\u276e\u276f\u2772\u2773" +
	"\u2774\u2775\u2795\u2796\u27cb\u27cd\u27d9\u292b\u292c\u29f5\u29f8\u29f9\u2a2f\u2e40\u3014\u3015" +
	"\u3033\u30a0\u31d3\u31d4\ua789\ufd3e\ufd3f\U000102f5\U0001d114\U0001d16d\U0001f74c\U0001f768" +
	// ideographic full stop, which resolvers take for the dot
	"\u3002")...)

// likeASCIIInScript are letters that look like ASCII, and so deceive when a
// whole label is made of them.
var likeASCIIInScript = rangetable.New([]rune("" +
	// Armenian
	"\u054d\u054f\u0555\u055a\u055d\u0561\u0563\u0566\u0570\u0578\u057c\u057d\u0581\u0584\u0585\u0589" +
	// Bamum
	"\ua6df\ua6eb\ua6ef" +
	// Canadian_Aboriginal
	"\u1400\u142f\u1433\u1438\u144a\u144c\u146d\u146f\u1472\u148d\u14aa\u14bf\u1541\u157c\u157d\u1587" +
	"\u15af\u15b4\u15c5\u15de\u15ea\u15f0\u15f7\u166d\u166e" +
	// Carian
	"\U000102a0\U000102a1\U000102a2\U000102a5\U000102ab\U000102b0\U000102b1\U000102b2\U000102b4\U000102cf" +
	// Cherokee
	"\u13a0\u13a1\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13ae\u13b3\u13b7\u13bb\u13bd\u13c0\u13c2\u13c3" +
	"\u13ce\u13cf\u13d2\u13d4\u13d5\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13e7\u13ee\u13f3\u13f4\uab75" +
	"\uab81\uab83\uab93\uaba9\uabaa\uabaf" +
	// Coptic
	"\u03e8\u2c85\u2c8e\u2c92\u2c94\u2c98\u2c9a\u2c9e\u2c9f\u2ca2\u2ca3\u2ca4\u2ca5\u2ca6\u2ca8\u2cac" +
	"\u2cba\u2cc6\u2cca\u2ccc\u2cd0\u2cd2" +
	// Cyrillic
	"\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425" +
	"\u042c\u0430\u0431\u0433\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u0461\u0474\u0475" +
	"\u04ae\u04af\u04bb\u04bd\u04c0\u04cf\u04e0\u0501\u050c\u051b\u051c\u051d\ua644\ua647" +
	// Deseret
	"\U00010404\U00010415\U0001041b\U00010420\U0001042c\U0001043d\U00010448" +
	// Elbasan
	"\U00010513\U00010516\U00010518\U0001051c\U0001051d\U00010525\U00010526\U00010527" +
	// Georgian
	"\u10e7\u10ff" +
	// Greek
	"\u037f\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1" +
	"\u03b3\u03b9\u03bd\u03bf\u03c1\u03c3\u03c5\u03dc\u03f3\u03fa\u1d26\U0001d206\U0001d20d\U0001d20f\U0001d212\U0001d213" +
	"\U0001d216\U0001d22a\U0001d236\U0001d237\U0001d23a\U0001d23b" +
	// Lisu
	"\ua4d0\ua4d1\ua4d2\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd\ua4df\ua4e0\ua4e1\ua4e2\ua4e3" +
	"\ua4e6\ua4e7\ua4ea\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4\ua4f8\ua4f9\ua4fd\ua4ff" +
	// Lycian
	"\U00010282\U00010286\U00010287\U0001028a\U00010290\U00010292\U00010295\U00010296\U00010297\U0001029b" +
	// Miao
	"\U00016f08\U00016f0a\U00016f16\U00016f28\U00016f35\U00016f3a\U00016f3b\U00016f3f\U00016f40\U00016f42\U00016f43\U00016f51\U00016f52" +
	// Old_Italic
	"\U00010301\U00010302\U00010309\U00010311\U00010315\U00010317\U0001031a\U0001031f\U00010320\U00010322" +
	// Osage
	"\U000104b4\U000104c2\U000104ce\U000104d2\U000104ea\U000104f6" +
	// Runic
	"\u16b2\u16b7\u16c1\u16cc\u16d5\u16d6" +
	// Tifinagh
	"\u2d38\u2d39\u2d4f\u2d51\u2d54\u2d55\u2d5d" +
	// Vai
	"\ua60e" +
	// Warang_Citi
	"\U000118a0\U000118a2\U000118a3\U000118a4\U000118a6\U000118a9\U000118ac\U000118ae\U000118af\U000118b2\U000118b5\U000118b8\U000118bb\U000118bc\U000118c0\U000118c1" +
	"\U000118c2\U000118c3\U000118c4\U000118c6\U000118c8\U000118ca\U000118cc\U000118d5\U000118d6\U000118d7\U000118d8\U000118dc\U000118e0\U000118e3\U000118e5\U000118e6" +
	"\U000118e9\U000118ec\U000118ef\U000118f2" +
	// κ and к, whose prototype in the table is ĸ, beside k
	"\u03ba\u043a")...)
