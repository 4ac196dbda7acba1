module fleetgate.example/go-sshd

go 1.19

require (
	golang.org/x/crypto v0.24.0
	golang.org/x/sys v0.21.0
)
