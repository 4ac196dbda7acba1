// A static program of about 10 MB that exits at once: what `cargo xtask bench seal` seals. It is written in Go and
// links a web server, its cryptography and a type checker, because programs of this size that are started often and
// sealed each time (runc, for one) are made so. It uses none of it; only the linker must believe that it might.
package main

import (
	"encoding/json"
	"go/token"
	"go/types"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) > 100 {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			found, _ := types.Eval(token.NewFileSet(), nil, 0, os.Args[1])
			_ = json.NewEncoder(w).Encode(found.Type.String())
		})
		_ = http.ListenAndServeTLS(os.Args[2], os.Args[3], os.Args[4], nil)
	}
}
