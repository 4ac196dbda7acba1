// An SSH server made of Go's x/crypto/ssh, as small as one can be that a login can be made at: a rival for `cargo
// xtask bench ssh`. It takes what the account's authorized_keys lists, becomes the user and runs his shell, with a
// terminal where one is asked for; nothing else. Root, since it becomes others; no password, no PAM, no forwarding.
//
//	server ADDRESS HOST_KEY
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Whoever has an account here.
type account struct {
	name, home, shell string
	uid, gid          uint32
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: server ADDRESS HOST_KEY")
	}
	key, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(key)
	if err != nil {
		log.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: mayEnter}
	config.AddHostKey(host)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn, config)
	}
}

// Reads the account file each time, as the others ask the system each time.
func find(name string) (account, error) {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return account{}, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Split(line, ":")
		if len(f) != 7 || f[0] != name {
			continue
		}
		uid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return account{}, err
		}
		gid, err := strconv.ParseUint(f[3], 10, 32)
		return account{f[0], f[5], f[6], uint32(uid), uint32(gid)}, err
	}
	return account{}, fmt.Errorf("there is no account %q", name)
}

func mayEnter(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	who, err := find(meta.User())
	if err != nil {
		return nil, err
	}
	keys, err := os.ReadFile(filepath.Join(who.home, ".ssh/authorized_keys"))
	if err != nil {
		return nil, err
	}
	for len(keys) > 0 {
		listed, _, _, rest, err := ssh.ParseAuthorizedKey(keys)
		if err != nil {
			break
		}
		if bytes.Equal(listed.Marshal(), key.Marshal()) {
			return nil, nil
		}
		keys = rest
	}
	return nil, errors.New("this key is not listed")
}

func serve(socket net.Conn, config *ssh.ServerConfig) {
	conn, channels, requests, err := ssh.NewServerConn(socket, config)
	if err != nil {
		_ = socket.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	who, err := find(conn.User())
	if err != nil {
		_ = conn.Close()
		return
	}
	for asked := range channels {
		if asked.ChannelType() != "session" {
			_ = asked.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		go session(who, channel, requests)
	}
}

func session(who account, channel ssh.Channel, requests <-chan *ssh.Request) {
	var terminal *os.File
	started := false
	for r := range requests {
		ok := false
		switch r.Type {
		case "pty-req":
			if terminal == nil && !started {
				var err error
				terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
				ok = err == nil
			}
		case "env":
			ok = true
		case "shell", "exec":
			if !started {
				argv := []string{"-" + filepath.Base(who.shell)}
				if r.Type == "exec" && len(r.Payload) >= 4 {
					argv = []string{filepath.Base(who.shell), "-c", string(r.Payload[4:])}
				}
				ok = start(who, argv, terminal, channel) == nil
				started = ok
			}
		}
		_ = r.Reply(ok, nil)
	}
}

// Starts the user's shell on the channel and sends its exit status when it has ended.
func start(who account, argv []string, terminal *os.File, channel ssh.Channel) error {
	command := &exec.Cmd{
		Path: who.shell,
		Args: argv,
		Dir:  who.home,
		Env: []string{
			"USER=" + who.name, "LOGNAME=" + who.name, "HOME=" + who.home, "SHELL=" + who.shell,
			"PATH=/usr/local/bin:/usr/bin:/bin",
		},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: []uint32{who.gid}},
		},
	}
	var copying sync.WaitGroup
	copyOut := func(to io.Writer, from io.ReadCloser) {
		copying.Add(1)
		go func() {
			_, _ = io.Copy(to, from)
			copying.Done()
		}()
	}
	if terminal != nil {
		side, err := open(terminal)
		if err != nil {
			return err
		}
		defer side.Close()
		command.Stdin, command.Stdout, command.Stderr = side, side, side
		command.SysProcAttr.Setctty = true
		if err := command.Start(); err != nil {
			return err
		}
		go func() { _, _ = io.Copy(terminal, channel) }()
		copyOut(channel, terminal)
	} else {
		in, err := command.StdinPipe()
		if err != nil {
			return err
		}
		out, err := command.StdoutPipe()
		if err != nil {
			return err
		}
		problems, err := command.StderrPipe()
		if err != nil {
			return err
		}
		if err := command.Start(); err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(in, channel)
			_ = in.Close()
		}()
		copyOut(channel, out)
		copyOut(channel.Stderr(), problems)
	}
	go func() {
		copying.Wait()
		_ = command.Wait()
		if terminal != nil {
			_ = terminal.Close()
		}
		status := binary.BigEndian.AppendUint32(nil, uint32(command.ProcessState.ExitCode()))
		_, _ = channel.SendRequest("exit-status", false, status)
		_ = channel.Close()
	}()
	return nil
}

// The user's side of a terminal. Not by Fd(), which would make reads block a thread each.
func open(terminal *os.File) (*os.File, error) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return nil, err
	}
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); failed == nil {
			failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
}
