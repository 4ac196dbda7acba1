// What Go's x/crypto/ssh does with a server. An argument is the one key exchange to offer.
package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// must ends the program where what was expected did not happen.
func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

// want compares.
func want(got, wanted string) {
	if got != wanted {
		log.Output(2, fmt.Sprintf("got %q, wanted %q", got, wanted))
		os.Exit(1)
	}
}

// dial logs in with a key, and its certificate where there is one.
func dial(key string) (*ssh.Client, error) {
	text, err := os.ReadFile(key)
	must(err)
	signer, err := ssh.ParsePrivateKey(text)
	must(err)
	if text, err := os.ReadFile(key + "-cert.pub"); err == nil {
		public, _, _, _, err := ssh.ParseAuthorizedKey(text)
		must(err)
		signer, err = ssh.NewCertSigner(public.(*ssh.Certificate), signer)
		must(err)
	}
	known, err := knownhosts.New("/run/test/known_hosts")
	must(err)
	config := ssh.ClientConfig{
		User:              "ada",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   known,
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	}
	if len(os.Args) > 1 {
		config.KeyExchanges = os.Args[1:]
	}
	return ssh.Dial("tcp", "127.0.0.1:2222", &config)
}

// echoes sends, ends its side, and reads the same to the other side's end.
func echoes(peer net.Conn) {
	_, err := peer.Write([]byte("hello"))
	must(err)
	must(peer.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(peer)
	must(err)
	want(string(got), "hello")
}

func main() {
	log.SetFlags(log.Lshortfile)
	client, err := dial("/run/test/user_ed25519")
	must(err)
	open := func() *ssh.Session {
		session, err := client.NewSession()
		must(err)
		return session
	}

	var out, errors bytes.Buffer
	session := open()
	session.Stdout, session.Stderr = &out, &errors
	exit, _ := session.Run("echo out; echo err >&2; exit 7").(*ssh.ExitError)
	want(fmt.Sprint(out.String(), errors.String(), exit.ExitStatus()), "out\nerr\n7")

	big := make([]byte, 5<<20)
	rand.Read(big)
	session = open()
	session.Stdin = bytes.NewReader(big)
	back, err := session.Output("cat")
	must(err)
	if !bytes.Equal(back, big) {
		log.Fatal("cat gave back something else")
	}

	session = open()
	must(session.Setenv("LANG", "C.UTF-8"))
	back, err = session.Output("echo $LANG")
	must(err)
	want(string(back), "C.UTF-8\n")

	// A signal; the program's end says which it was.
	session = open()
	pipe, err := session.StdoutPipe()
	must(err)
	must(session.Start("echo up; exec sleep 1000"))
	io.ReadFull(pipe, make([]byte, 3))
	must(session.Signal(ssh.SIGTERM))
	exit, _ = session.Wait().(*ssh.ExitError)
	want(exit.Signal(), "TERM")

	// A terminal with modes, its size, and a break, which is answered.
	session = open()
	out.Reset()
	session.Stdout = &out
	input, err := session.StdinPipe()
	must(err)
	must(session.RequestPty("vt100", 40, 100, ssh.TerminalModes{ssh.ECHO: 0, ssh.TTY_OP_OSPEED: 38400}))
	must(session.Shell())
	must(session.WindowChange(41, 101))
	done, err := session.SendRequest("break", true, ssh.Marshal(struct{ Length uint32 }{500}))
	must(err)
	want(fmt.Sprint(done), "true")
	input.Write([]byte("stty size; stty -a | grep -o -- -echo; echo $TERM; exit\n"))
	session.Wait()
	for _, part := range []string{"41 101", "-echo", "vt100"} {
		if !strings.Contains(out.String(), part) {
			log.Fatalf("%q is not on the terminal: %q", part, out.String())
		}
	}

	peer, err := client.Dial("tcp", "127.0.0.1:7100")
	must(err)
	echoes(peer)
	peer, err = client.Dial("unix", "echo.sock")
	if err == nil {
		log.Fatal("a relative path was opened")
	}
	here, _ := os.Getwd()
	peer, err = client.Dial("unix", here+"/echo.sock")
	must(err)
	echoes(peer)
	_, err = client.Dial("tcp", "127.0.0.1:7999")
	if refused, is := err.(*ssh.OpenChannelError); !is || refused.Reason != ssh.ConnectionFailed {
		log.Fatal("nobody was reached: ", err)
	}

	listener, err := client.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		peer, err := listener.Accept()
		must(err)
		io.Copy(peer, peer)
		peer.Close()
	}()
	peer, err = net.Dial("tcp", listener.Addr().String())
	must(err)
	echoes(peer)
	must(listener.Close())

	// Unknown requests are answered, and refused.
	done, _, err = client.SendRequest("keepalive@openssh.com", true, nil)
	must(err)
	want(fmt.Sprint(done), "false")
	_, _, err = client.OpenChannel("nothing@fleetgate.test", nil)
	if _, is := err.(*ssh.OpenChannelError); !is {
		log.Fatal("an unknown kind of channel: ", err)
	}

	var all sync.WaitGroup
	for n := range 10 {
		all.Add(1)
		go func() {
			defer all.Done()
			back, err := open().Output(fmt.Sprint("echo ", n))
			must(err)
			want(string(back), fmt.Sprintln(n))
		}()
	}
	all.Wait()
	must(client.Close())

	for _, key := range []string{"user_rsa", "user_ecdsa256", "user_ecdsa384", "cert_ed25519", "cert_rsa"} {
		client, err = dial("/run/test/" + key)
		must(err)
		back, err = open().Output("id -un")
		must(err)
		want(string(back), "ada\n")
		client.Close()
	}
	if _, err = dial("/run/test/stranger"); err == nil {
		log.Fatal("a stranger came in")
	}
}
