// A server made of Go's x/crypto/ssh, as its users get it. It lets in whoever has a key, and every command succeeds.
// Arguments: where to listen, and the file of its host key.
package main

import (
	"log"
	"net"
	"os"

	"golang.org/x/crypto/ssh"
)

// must ends the program where what was expected did not happen.
func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

// run answers a session's requests; a command has exit status 0 and ends at once.
func run(channel ssh.Channel, requests <-chan *ssh.Request) {
	for request := range requests {
		isCommand := request.Type == "exec"
		if request.WantReply {
			request.Reply(isCommand, nil)
		}
		if isCommand {
			channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{0}))
			channel.Close()
		}
	}
}

// serve has one connection, to its end.
func serve(stream net.Conn, config *ssh.ServerConfig) {
	connection, channels, requests, err := ssh.NewServerConn(stream, config)
	if err != nil {
		log.Print(err)
		return
	}
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		if asked.ChannelType() != "session" {
			asked.Reject(ssh.UnknownChannelType, "sessions alone")
			continue
		}
		channel, requests, err := asked.Accept()
		must(err)
		go run(channel, requests)
	}
	connection.Close()
}

func main() {
	text, err := os.ReadFile(os.Args[2])
	must(err)
	key, err := ssh.ParsePrivateKey(text)
	must(err)
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil },
	}
	config.AddHostKey(key)
	listener, err := net.Listen("tcp", os.Args[1])
	must(err)
	for {
		stream, err := listener.Accept()
		must(err)
		go serve(stream, config)
	}
}
