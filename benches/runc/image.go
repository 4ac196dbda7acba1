// Seals its own file by runc's code, executes `true` from the image, and prints how long each round took, in
// microseconds. `cargo xtask bench seal-runc` builds it inside of runc's source, whose package it uses.
//
//	image none|sealed N: N rounds
//	image true: ends at once
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/opencontainers/runc/libcontainer/exeseal"
)

// What runc gives as its second layer, its directory of states, only has to be no neighbour of the program.
const state = "/run"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "true" {
		return
	}
	n, err := strconv.Atoi(os.Args[2])
	check(err)
	for i := 0; i < n; i++ {
		start := time.Now()
		check(round(os.Args[1] == "sealed"))
		fmt.Printf("%.3f\n", float64(time.Since(start).Nanoseconds())/1e3)
	}
}

func round(sealed bool) error {
	path := "/proc/self/exe"
	if sealed {
		file, err := exeseal.CloneSelfExe(state)
		if err != nil {
			return err
		}
		defer file.Close()
		path = "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
	}
	return exec.Command(path, "true").Run()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
