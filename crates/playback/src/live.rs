//! A session that runs on another machine, as its node sends it (`record::live`): bytes in, a screen out. No I/O. A node may send
//! what it likes: everything has a bound, and nothing but the model's screen comes out.

use crate::about::Begin;
use crate::identity::Keys;
use crate::play::{screen, show};
use crate::screen::Screen;
use crate::source::Source;
use fleetgate_policy::text::printable;
use fleetgate_record::frame::{Frame, Kind, TICK};
use fleetgate_record::live::{self, START, Start};

pub use fleetgate_record::live::request;
use fleetgate_record::pipe::HEAD;

/// The longest recording that is taken.
const MAX_RECORDED: u64 = 4 << 20;
/// So much of the output before is drawn at most, the last of it: while it is, nothing else is done.
const MAX_DRAWN: u64 = 2 << 20;
/// The most that is read for that.
const MAX_READ: u64 = 64 << 20;
/// The most of a list of viewers.
const MAX_WHO: usize = 512;

/// What is expected next.
#[derive(Debug)]
enum Stage {
    /// The start.
    Start,
    /// So many bytes of a recording.
    Recording(Start),
    /// Frames.
    Frames,
}

/// Somebody's view of a session.
pub struct Viewer {
    stage: Stage,
    /// What came and is not whole.
    kept: Vec<u8>,
    screen: Screen,
    /// Who sees it.
    who: String,
    /// The screen is not what the session's is, and why.
    incomplete: Option<String>,
    /// The node left something out.
    has_gap: bool,
    is_recorded: bool,
    /// For a recording that is encrypted.
    keys: Keys,
}

impl Default for Viewer {
    fn default() -> Viewer {
        Viewer {
            stage: Stage::Start,
            kept: Vec::new(),
            screen: Screen::new(80, 24),
            who: String::new(),
            incomplete: None,
            has_gap: false,
            is_recorded: false,
            keys: Keys::default(),
        }
    }
}

impl Viewer {
    /// Of somebody with keys for what was shown before, where it is encrypted.
    pub fn with_keys(keys: Keys) -> Viewer {
        Viewer {
            keys,
            ..Viewer::default()
        }
    }

    /// More bytes of the node's. An error is a sentence, and nothing more is to be given.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.kept.extend_from_slice(bytes);
        let kept = std::mem::take(&mut self.kept);
        let mut rest = &kept[..];
        while let Some(left) = self.step(rest)? {
            rest = left;
        }
        self.kept = match rest.len() == kept.len() {
            true => kept,
            false => rest.to_vec(),
        };
        Ok(())
    }

    /// What the session shows, as far as is known.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Whether there is something to look at: the session goes on from here.
    pub fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Frames)
    }

    /// Whether anything came.
    pub fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Start)
    }

    /// How much of the recording is there, and how much there will be.
    pub fn progress(&self) -> Option<(u64, u64)> {
        match self.stage {
            Stage::Recording(start) => Some((self.kept.len() as u64, start.recorded)),
            _ => None,
        }
    }

    /// Who else sees it, in words that can be shown.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Why the screen is not the session's, if it is not.
    pub fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// Whether it began with a recording.
    pub fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Whether the node left something out: another view begins with the whole screen again.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Takes one thing off the front; none: it is not whole yet.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        match self.stage {
            Stage::Start => {
                let Some((start, rest)) = bytes.split_first_chunk::<START>() else {
                    return Ok(None);
                };
                let start = Start::decode(start);
                if start.recorded > MAX_RECORDED {
                    return Err("the node sends a recording that is longer than any that is taken".to_owned());
                }
                self.is_recorded = start.recorded > 0;
                self.stage = Stage::Recording(start);
                Ok(Some(rest))
            }
            Stage::Recording(start) => {
                let len = usize::try_from(start.recorded).unwrap_or(usize::MAX);
                let Some((recording, rest)) = bytes.split_at_checked(len) else {
                    return Ok(None);
                };
                self.stage = Stage::Frames;
                self.incomplete = match start.recorded {
                    0 => Some(
                        "what was shown before is missing: not recorded, or not yours to play".to_owned(),
                    ),
                    _ => self.play(recording, start.at).err(),
                };
                Ok(Some(rest))
            }
            Stage::Frames => {
                let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
                    return Ok(None);
                };
                let head = live::head(head).ok_or("the node sends what is no frame")?;
                let Some((bytes, rest)) = rest.split_at_checked(head.len) else {
                    return Ok(None);
                };
                match head.kind {
                    Kind::Event => {
                        let who = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_WHO)]);
                        self.who = printable(&who);
                    }
                    Kind::Gap => {
                        self.has_gap = true;
                        self.incomplete =
                            Some("something was left out: your connection is too slow".to_owned());
                    }
                    kind => show(
                        &mut self.screen,
                        &Frame {
                            kind,
                            at: head.at,
                            bytes,
                        },
                    ),
                }
                Ok(Some(rest))
            }
        }
    }

    /// The screen as it was when the view began: at the first size that the recording has from `since` on. By their times alone
    /// frames could not be told apart, as several may have one.
    fn play(&mut self, recording: &[u8], since: u64) -> Result<(), String> {
        let unreadable = |why: String| format!("what was shown before cannot be read: {why}");
        let open = || match Source::new(recording, None) {
            Ok(source) => Ok(source.with_keys(self.keys.clone())),
            Err(_) => Err(unreadable("it is no recording".to_owned())),
        };
        let is_mark = |frame: &Frame<'_>| frame.kind == Kind::Resize && frame.at >= since / TICK * TICK;
        // How much there is of it is not known before.
        let (mut source, mut shown) = (open()?, 0);
        while let Some(frame) = source.next_frame().map_err(|e| unreadable(e.to_string()))? {
            if is_mark(&frame) {
                break;
            }
            shown += frame.bytes.len() as u64;
            if shown > MAX_READ {
                return Err("what was shown before is too long to be drawn".to_owned());
            }
        }
        let (mut source, mut left_out) = (open()?, shown.saturating_sub(MAX_DRAWN));
        let is_cut = left_out > 0;
        while let Some(frame) = source.next_frame().map_err(|e| unreadable(e.to_string()))? {
            match frame.kind {
                _ if is_mark(&frame) && is_cut => {
                    return Err("what was shown long before is left out".to_owned());
                }
                _ if is_mark(&frame) => return Ok(()),
                Kind::Begin => self.screen = screen(&Begin::read(frame.bytes)),
                Kind::Output if left_out > 0 => left_out = left_out.saturating_sub(frame.bytes.len() as u64),
                _ => show(&mut self.screen, &frame),
            }
        }
        if source.passed_over() > 0 {
            return Err("what was shown before is encrypted: see --identity".to_owned());
        }
        source
            .fault()
            .map_or(Ok(()), |fault| Err(unreadable(fault.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_record::age::{Identity, Recipients};
    use fleetgate_record::block::file_head;
    use fleetgate_record::frame;
    use fleetgate_record::pipe::Head;
    use fleetgate_record::writer::{Position, Writer};

    fn recording(frames: &[(Kind, u64, &[u8])]) -> Vec<u8> {
        let session = [7; 16];
        let mut file = file_head(&session).to_vec();
        let mut writer = Writer::at(Position::start(&session));
        for &(kind, at, bytes) in frames {
            writer.push(&Frame { kind, at, bytes });
        }
        file.extend(writer.close(None).expect("a block"));
        file
    }

    fn live(kind: Kind, at: u64, bytes: &[u8]) -> Vec<u8> {
        let len = bytes.len();
        [&Head { kind, len, at }.encode()[..], bytes].concat()
    }

    /// What the node sends from `at` on, of a recording and frames.
    fn sent(at: u64, recording: &[u8], frames: &[Vec<u8>]) -> Vec<u8> {
        let recorded = recording.len() as u64;
        let mut out = Start { at, recorded }.encode().to_vec();
        out.extend_from_slice(recording);
        out.extend(frames.concat());
        out
    }

    #[test]
    fn the_recording_and_what_comes_are_one_screen_however_it_comes() {
        let file = recording(&[
            (
                Kind::Begin,
                0,
                br#"{"terminal":{"term":"x","columns":20,"rows":4}}"#,
            ),
            (Kind::Output, 5, b"before\r\n"),
            (Kind::Resize, 9, &frame::resize(20, 4)),
            (Kind::Output, 9, b"both\r\n"),
        ]);
        let bytes = sent(
            9,
            &file,
            &[
                live(Kind::Resize, 9, &frame::resize(30, 5)),
                live(Kind::Event, 9, b"ada, bob\x1b[2J (types)"),
                live(Kind::Output, 9, b"both\r\n"),
                live(Kind::Output, 12, b"after \x1b]52;c;AAAA\x07\x1b[1mbold"),
            ],
        );
        for piece in [1, 7, bytes.len()] {
            let mut viewer = Viewer::default();
            for part in bytes.chunks(piece) {
                viewer.take(part).expect("it is what a node sends");
            }
            assert_eq!(viewer.screen().text().trim_end(), "before\nboth\nafter bold");
            assert_eq!(viewer.screen().size(), (30, 5));
            assert!(!viewer.who().contains('\x1b'), "{}", viewer.who());
            assert_eq!((viewer.incomplete(), viewer.has_gap()), (None, false));
        }
    }

    #[test]
    fn an_encrypted_recording_is_shown_to_whoever_has_a_key() {
        let (identity, session) = (Identity::new([7; 32]), [7; 16]);
        let mut file = file_head(&session).to_vec();
        let recipients = Recipients::new(&[identity.recipient()]);
        let mut writer = Writer::at(Position::start(&session)).sealed_for(recipients);
        for (kind, at, bytes) in [
            (
                Kind::Begin,
                0,
                &br#"{"terminal":{"term":"x","columns":20,"rows":4}}"#[..],
            ),
            (Kind::Output, 4, b"before\r\n"),
            (Kind::Resize, 9, &frame::resize(30, 5)),
        ] {
            writer.push(&Frame { kind, at, bytes });
        }
        file.extend(writer.close(None).expect("a block"));
        let bytes = sent(9, &file, &[live(Kind::Output, 9, b"after")]);
        for (keys, text, is_told) in [
            (Keys::new(vec![identity]), "before\nafter", false),
            (Keys::new(vec![Identity::new([8; 32])]), "after", true),
            (Keys::default(), "after", true),
        ] {
            let mut viewer = Viewer::with_keys(keys);
            viewer.take(&bytes).expect("it is what a node sends");
            assert_eq!(viewer.screen().text().trim_end(), text);
            assert_eq!(
                viewer.incomplete().is_some(),
                is_told,
                "{:?}",
                viewer.incomplete()
            );
        }
    }

    #[test]
    fn what_is_missing_is_told_and_nonsense_ends_it() {
        let mut viewer = Viewer::default();
        viewer
            .take(&sent(0, b"", &[live(Kind::Output, 1, b"x")]))
            .expect("unrecorded");
        assert!(
            viewer
                .incomplete()
                .is_some_and(|why| why.contains("not recorded"))
        );
        assert_eq!(viewer.screen().text().trim_end(), "x");
        viewer.take(&live(Kind::Gap, 2, b"{}")).expect("a gap");
        assert!(viewer.has_gap());
        let mut viewer = Viewer::default();
        viewer
            .take(&sent(9, b"age-encryption.org/v1 and more", &[]))
            .expect("another file");
        assert!(viewer.is_live() && viewer.incomplete().is_some());
        assert!(viewer.take(&live(Kind::Input, 2, b"x")).is_err());
        let too_long = Start {
            at: 0,
            recorded: u64::MAX,
        };
        assert!(Viewer::default().take(&too_long.encode()).is_err());
    }
}
