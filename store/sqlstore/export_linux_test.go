package sqlstore

// RefuseNetwork is what Open asks of a file system by its number.
var RefuseNetwork = refuseNetwork
