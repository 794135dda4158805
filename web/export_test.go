package web

// What the tests of the start look at.
var (
	ParseViews    = parseViews
	TemplateFiles = templateFiles
	OwnPath       = ownPath
)
