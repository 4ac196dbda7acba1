// Many SSH connections for little: the load of `cargo xtask bench ssh`, the same for every server. It obeys one line
// on standard input after the other and answers each with one line of numbers; it never judges them.
//
//	load ADDRESS USER_KEY HOST_KEY.pub
//
//	open N LOGIN…    N more connections, the logins in turn; how many are open
//	shells           a terminal and a shell, up to its prompt, on each open connection without one; how many
//	close            closes all of them; 0
//	burst N COMMAND LOGIN   N at once, each runs COMMAND; microseconds of each that was served, then how many were not
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// One connection that is held open.
type held struct {
	client *ssh.Client
	shell  bool
}

type load struct {
	address string
	config  ssh.ClientConfig
	held    []*held
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: load ADDRESS USER_KEY HOST_KEY.pub")
	}
	l, err := with(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := l.obey(strings.Fields(lines.Text()))
		if err != nil {
			log.Fatalf("%s: %v", lines.Text(), err)
		}
		fmt.Println(answer)
	}
}

// The key exchange and the cipher are the ones that the other cases pin.
func with(address, userKey, hostKey string) (*load, error) {
	text, err := os.ReadFile(userKey)
	if err != nil {
		return nil, err
	}
	user, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, err
	}
	if text, err = os.ReadFile(hostKey); err != nil {
		return nil, err
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, err
	}
	return &load{
		address: address,
		config: ssh.ClientConfig{
			Config: ssh.Config{
				KeyExchanges: []string{"curve25519-sha256"},
				Ciphers:      []string{"chacha20-poly1305@openssh.com"},
			},
			Auth:              []ssh.AuthMethod{ssh.PublicKeys(user)},
			HostKeyCallback:   ssh.FixedHostKey(host),
			HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
			Timeout:           60 * time.Second,
		},
	}, nil
}

func (l *load) obey(words []string) (string, error) {
	if len(words) == 0 {
		return "", fmt.Errorf("an empty line")
	}
	switch {
	case words[0] == "open" && len(words) >= 3:
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		logins := words[2:]
		for i := 0; i < n; i++ {
			client, err := l.dial(logins[i%len(logins)])
			if err != nil {
				return "", err
			}
			l.held = append(l.held, &held{client: client})
		}
		return strconv.Itoa(len(l.held)), nil
	case words[0] == "shells" && len(words) == 1:
		for _, h := range l.held {
			if !h.shell {
				if err := prompt(h.client); err != nil {
					return "", err
				}
				h.shell = true
			}
		}
		return strconv.Itoa(len(l.held)), nil
	case words[0] == "close" && len(words) == 1:
		for _, h := range l.held {
			_ = h.client.Close()
		}
		l.held = nil
		return "0", nil
	case words[0] == "burst" && len(words) == 4:
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		return l.burst(n, words[2], words[3]), nil
	}
	return "", fmt.Errorf("not a line that load knows")
}

func (l *load) dial(login string) (*ssh.Client, error) {
	config := l.config
	config.User = login
	return ssh.Dial("tcp", l.address, &config)
}

// Opens a shell and waits for the first that it says. The session stays open with the connection.
func prompt(client *ssh.Client) error {
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	if err := session.RequestPty("xterm", 24, 80, ssh.TerminalModes{}); err != nil {
		return err
	}
	// Without a pipe of its own the shell would read an end of file and go.
	if _, err := session.StdinPipe(); err != nil {
		return err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return err
	}
	if err := session.Shell(); err != nil {
		return err
	}
	_, err = out.Read(make([]byte, 1))
	return err
}

func (l *load) burst(n int, command, login string) string {
	var all sync.WaitGroup
	taken := make([]int64, n)
	for i := range taken {
		all.Add(1)
		go func(mine *int64) {
			defer all.Done()
			start := time.Now()
			client, err := l.dial(login)
			if err == nil {
				var session *ssh.Session
				if session, err = client.NewSession(); err == nil {
					err = session.Run(command)
				}
				_ = client.Close()
			}
			*mine = time.Since(start).Microseconds()
			if err != nil {
				fmt.Fprintf(os.Stderr, "load: %s: %v\n", l.address, err)
				*mine = -1
			}
		}(&taken[i])
	}
	all.Wait()
	refused := 0
	var answer []string
	for _, micros := range taken {
		if micros < 0 {
			refused++
		} else {
			answer = append(answer, strconv.FormatInt(micros, 10))
		}
	}
	return strings.Join(append(answer, strconv.Itoa(refused)), " ")
}
