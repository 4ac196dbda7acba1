/*
 * A PAM module for tests that keeps each PAM session apart: a network of its own with nothing in it but loopback, and a
 * mount table of its own with an empty /tmp. It notes in the file of its argument what it opened and closed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SUCCESS = 0, SESSION_ERR = 14 };

static int note(int argc, const char **argv, const char *what)
{
    int fd = argc == 1 ? open(argv[0], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    int written = fd >= 0 && write(fd, what, strlen(what)) > 0;
    close(fd);
    return written ? SUCCESS : SESSION_ERR;
}

static int loopback_up(void)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int failed = ioctl(fd, SIOCSIFFLAGS, &lo);
    close(fd);
    return failed;
}

int pam_sm_open_session(void *pam, int flags, int argc, const char **argv)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) || loopback_up() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
        || mount("none", "/tmp", "tmpfs", 0, "mode=1777"))
        return SESSION_ERR;
    return note(argc, argv, "open\n");
}

int pam_sm_close_session(void *pam, int flags, int argc, const char **argv)
{
    return note(argc, argv, "close\n");
}
