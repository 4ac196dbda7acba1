//! The model beside tmux: the same bytes, the same screen. The streams of vim, less and a shell were recorded from the real
//! programs (Debian 12, TERM=xterm-256color, 80x24); the one like htop's is made here.

use super::Folder;
use crate::screen::{Cell, Screen};
use std::path::Path;
use std::process::Command;

const VIM: &[u8] = include_bytes!("data/vim.out");
const LESS: &[u8] = include_bytes!("data/less.out");
const SHELL: &[u8] = include_bytes!("data/shell.out");
/// tmux itself with three panes, for a terminal without UTF-8.
const TMUX: &[u8] = include_bytes!("data/tmux.out");
/// The title that says that tmux has read everything.
const DONE: &str = "all-of-it-was-read";

/// Meters, a table that is drawn again and again, line drawing, wide characters, 256 colours.
fn like_htop() -> Vec<u8> {
    let mut out = "\x1b[?1049h\x1b[?25l\x1b(B\x1b[m\x1b[H\x1b[2J".to_owned();
    for round in 0..12_usize {
        for cpu in 0..4 {
            let bars = (round * 7 + cpu * 5) % 30;
            out += &format!(
                "\x1b[{};3H\x1b[36m{cpu}\x1b[39m\x1b[1m[\x1b[0m\x1b[32m{}\x1b[31m{}\x1b[K\x1b[{};40H\x1b[90m{bars}%\x1b[39m\x1b[1m]\x1b[m",
                cpu + 1,
                "|".repeat(bars),
                "|".repeat(3),
                cpu + 1,
            );
        }
        out += "\x1b[6;1H┌────┬────┐\x1b[30;42m  PID USER      PRI  NI 命令 Command\x1b[K\x1b[m";
        for row in 0..14 {
            let style = if row == round { "\x1b[30;46m" } else { "\x1b[m" };
            out += &format!(
                "\x1b[{};1H{style}{:5} \x1b[38;5;{}mädä{style}  20   0 {}工作{}\x1b[K",
                7 + row,
                1000 + row * round,
                16 + row,
                "x".repeat(row),
                if row % 2 == 0 { "，終" } else { "é" },
            );
        }
        out += "\x1b[m\x1b[24;1HF1\x1b[30;46mHelp \x1b[mF10\x1b[30;46mQuit\x1b[K\x1b[m";
        // The region scrolls, lines and characters go in and out.
        out += "\x1b[7;20r\x1b[20;1H\n\x1b[7;1H\x1bM\x1b[r\x1b[10;5H\x1b[2@\x1b[3P\x1b[4X\x1b[12;1H\x1b[L\x1b[13;1H\x1b[M";
    }
    out += "\x1b[22;70Hwraps 日本語の文\x1b[22;79H界";
    out.into_bytes()
}

/// Frames of the set of line drawing, chosen in every way, and kept by a saved cursor.
fn drawings() -> Vec<u8> {
    let mut out = "\x1b[H\x1b[2J".to_owned();
    out += "\x1b(0lqqqwqqqk\x1b(B lqk\r\n\x1b(0x\x1b(B a \x1b(0x\x1b(B b \x1b(0x\x1b(B\r\n\x1b(0tqqqnqqqu\x1b(B\r\n";
    out += "\x1b(B\x1b)0\x0emqqqvqqqj\x0f mqj\r\n\x1b)B\x0eqqq\x0f\r\n";
    // What is saved has the set of its time.
    out += "\x1b(0\x1b7\x1b(Bqqq\x1b[7;1H\x1b8xx\x1b(B\x1b[8;1Hxx\x1b7\x1b(0\x1b8xx";
    out += "\x1b[10;1H\x1b)0\x0e\x1b7\x0fq\x1b8qq\x0f\x1b[11;1H\x1b(0qq\x1b(B";
    out += "\x1b[13;1H\x1b(0q\x1b[20b\x1b(B\x1b[14;1H\x1b[31m\x1b(0`afgijklmnopqrstuvwxyz{|}~\x1b[m\x1b(B";
    out += "\x1b[16;1H\x1b[1m\x1b[44m\x1b(0";
    out += &"x".repeat(70);
    out += "\x1b(B\x1b[m";
    out.into_bytes()
}

struct Tmux<'a>(&'a Path);

impl Tmux<'_> {
    fn run(&self, words: &[&str]) -> String {
        let out = Command::new("tmux")
            .args(["-u", "-S"])
            .arg(self.0.join("socket"))
            .arg("-f")
            .arg(self.0.join("conf"))
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .output()
            .expect("tmux (Debian: tmux)");
        let why = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "tmux {words:?}: {why}");
        String::from_utf8(out.stdout).expect("UTF-8")
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(self.0.join("socket"))
            .arg("kill-server")
            .output();
    }
}

/// What tmux shows of these bytes: with colours, and without.
fn captured(name: &str, bytes: &[u8]) -> (String, String) {
    let folder = Folder::new(&format!("tmux-{name}"));
    std::fs::write(
        folder.0.join("conf"),
        "set -g status off\nset -g history-limit 0\n",
    )
    .expect("a file");
    let mut all = bytes.to_vec();
    all.extend_from_slice(format!("\x1b]2;{DONE}\x07").as_bytes());
    std::fs::write(folder.0.join("bytes"), all).expect("a file");
    let tmux = Tmux(&folder.0);
    let program = format!("stty raw -echo; cat {}/bytes; exec sleep 600", folder.0.display());
    tmux.run(&["new-session", "-d", "-x", "80", "-y", "24", &program]);
    while tmux.run(&["display-message", "-p", "#{pane_title}"]).trim() != DONE {}
    (
        tmux.run(&["capture-pane", "-e", "-p"]),
        tmux.run(&["capture-pane", "-p"]),
    )
}

/// The cells that show something, in their looks; what a blank looks like tmux does not tell to the end of a row.
fn seen(screen: &Screen) -> Vec<(usize, usize, Cell)> {
    let (_, rows) = screen.size();
    let row = |row| {
        screen
            .row(row)
            .enumerate()
            .map(move |(column, cell)| (row, column, cell))
    };
    (0..rows)
        .flat_map(row)
        .filter(|(_, _, cell)| cell.text != ' ')
        .collect()
}

#[test]
fn the_screen_is_the_one_that_tmux_shows() {
    for (name, bytes) in [
        ("vim", VIM),
        ("less", LESS),
        ("shell", SHELL),
        ("htop", &like_htop()[..]),
        ("drawings", &drawings()[..]),
        ("tmux", TMUX),
    ] {
        let (coloured, plain) = captured(name, bytes);
        let mut screen = Screen::new(80, 24);
        // As a recording has them: in pieces.
        bytes.chunks(61).for_each(|piece| screen.feed(piece));
        // Without colours tmux leaves lines the letters that they were drawn with; with them it shifts to G1 for each.
        let draws = coloured.contains('\x0e');
        assert!(
            draws || screen.text() == plain,
            "{name}:\n{}\n{plain}",
            screen.text()
        );
        let mut theirs = Screen::new(80, 24);
        theirs.feed(b"\x1b)0");
        theirs.feed(coloured.trim_end_matches('\n').replace('\n', "\r\n").as_bytes());
        let (ours, theirs) = (seen(&screen), seen(&theirs));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{name}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
        assert!(ours.len() > 50, "{name}: there is something to compare");
        let has_lines = ours.iter().any(|(_, _, cell)| cell.text == '│');
        assert!(has_lines || !draws, "{name}");
    }
}
