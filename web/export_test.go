package web

// What the tests of the start and of wording look at.
var (
	ParseViews    = parseViews
	TemplateFiles = templateFiles
	OwnPath       = ownPath
	AmountWords   = amountWords
	RuleAmount    = ruleAmount
	NobodyWhen    = nobodyWhen
)
