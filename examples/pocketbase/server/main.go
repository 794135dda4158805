// Command server is PocketBase as its own documentation builds it, and nothing
// else: what somebody who runs PocketBase already has.
//
// What lives here: main, and in go.mod the release of PocketBase. How it flows:
// start.sh beside this folder builds and starts it. What does not live here:
// anything of the gateway. The module is its own so that PocketBase runs on
// exactly the versions that it was released with.
package main

import (
	"log"

	"github.com/pocketbase/pocketbase"
)

func main() {
	app := pocketbase.New()
	if err := app.Start(); err != nil {
		log.Fatal(err)
	}
}
