package preview

// Changing is what a key looks like that is made anew on each try.
var Changing = changing
