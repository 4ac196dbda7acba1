//! The questions and answers of keyboard-interactive (RFC 4256). It keeps no answer longer than it is used.

use crate::codec::{Malformed, Reader, Write, number};
use crate::message::{USERAUTH_60, USERAUTH_INFO_RESPONSE};
use zeroize::Zeroizing;

/// Questions at once, and answers at once, at most.
pub const MAX_PROMPTS: usize = 64;
/// An answer, at most.
pub const MAX_ANSWER: usize = 4096;

/// A user's answers.
pub struct InfoResponse {
    /// One for each question, in their order.
    pub answers: Vec<Zeroizing<Vec<u8>>>,
}

impl InfoResponse {
    /// Reads a USERAUTH_INFO_RESPONSE, its message number included.
    pub fn parse(payload: &[u8]) -> Result<InfoResponse, Malformed> {
        let mut r = Reader::new(payload);
        if r.u8("number")? != USERAUTH_INFO_RESPONSE {
            return Err(Malformed::Invalid("number"));
        }
        let count = r.u32("number of answers")?;
        if count as usize > MAX_PROMPTS {
            return Err(Malformed::Invalid("number of answers"));
        }
        let mut answers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let answer = r.string("answer")?;
            if answer.len() > MAX_ANSWER {
                return Err(Malformed::Invalid("answer"));
            }
            answers.push(Zeroizing::new(answer.to_vec()));
        }
        r.end()?;
        Ok(InfoResponse { answers })
    }

    /// Writes one.
    pub fn write(answers: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let size = 5 + answers.iter().map(|a| 4 + a.len()).sum::<usize>();
        let mut out = Zeroizing::new(Vec::with_capacity(size));
        out.put_u8(USERAUTH_INFO_RESPONSE);
        out.put_u32(number(answers.len()));
        for answer in answers {
            out.put_string(answer);
        }
        out
    }
}

/// What a server asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Questions<'a> {
    pub name: &'a [u8],
    pub instruction: &'a [u8],
    pub prompts: Vec<(Vec<u8>, bool)>,
}

impl<'a> Questions<'a> {
    /// Reads a USERAUTH_INFO_REQUEST, its message number included.
    pub fn parse(payload: &'a [u8]) -> Result<Questions<'a>, Malformed> {
        let mut r = Reader::new(payload);
        if r.u8("number")? != USERAUTH_60 {
            return Err(Malformed::Invalid("number"));
        }
        let name = r.string("name")?;
        let instruction = r.string("instruction")?;
        r.string("language")?;
        let count = r.u32("number of prompts")?;
        if count as usize > MAX_PROMPTS {
            return Err(Malformed::Invalid("number of prompts"));
        }
        let mut prompts = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let prompt = r.string("prompt")?;
            prompts.push((prompt.to_vec(), r.bool("echo flag")?));
        }
        r.end()?;
        Ok(Questions {
            name,
            instruction,
            prompts,
        })
    }

    /// Writes one.
    pub fn write(out: &mut Vec<u8>, name: &[u8], instruction: &[u8], prompts: &[(Vec<u8>, bool)]) {
        out.put_u8(USERAUTH_60);
        out.put_string(name);
        out.put_string(instruction);
        out.put_string("");
        out.put_u32(number(prompts.len()));
        for (prompt, echo) in prompts {
            out.put_string(prompt);
            out.put_bool(*echo);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_bounded() {
        let long = vec![b'x'; MAX_ANSWER + 1];
        let most = vec![&b"a"[..]; MAX_PROMPTS];
        let many = vec![&b"a"[..]; MAX_PROMPTS + 1];
        for (answers, wrong) in [
            (&[][..], None),
            (&[&b"secret"[..], b""][..], None),
            (&[&long[..MAX_ANSWER]][..], None),
            (&most[..], None),
            (&[&long[..]][..], Some(Malformed::Invalid("answer"))),
            (&many[..], Some(Malformed::Invalid("number of answers"))),
        ] {
            let payload = InfoResponse::write(answers);
            match (InfoResponse::parse(&payload), wrong) {
                (Ok(read), None) => {
                    let read: Vec<&[u8]> = read.answers.iter().map(|a| &a[..]).collect();
                    assert_eq!(read, answers);
                }
                (Err(e), Some(wrong)) => assert_eq!(e, wrong),
                (read, wrong) => panic!("{:?} {wrong:?}", read.err()),
            }
        }
        let payload = InfoResponse::write(&[b"a", b"b"]);
        for cut in 0..payload.len() {
            assert!(InfoResponse::parse(&payload[..cut]).is_err());
        }
        let long = [&payload[..], &[0]].concat();
        assert_eq!(InfoResponse::parse(&long).err(), Some(Malformed::Trailing));
    }

    #[test]
    fn questions_are_read_as_written() {
        let prompts = vec![(b"Password: ".to_vec(), false), (b"Code: ".to_vec(), true)];
        let mut payload = Vec::new();
        Questions::write(&mut payload, b"a title", b"a text", &prompts);
        let read = Questions::parse(&payload).unwrap();
        assert_eq!((read.name, read.instruction), (&b"a title"[..], &b"a text"[..]));
        assert_eq!(read.prompts, prompts);
        for cut in 0..payload.len() {
            assert!(Questions::parse(&payload[..cut]).is_err());
        }
        let mut many = Vec::new();
        Questions::write(&mut many, b"", b"", &vec![(Vec::new(), true); MAX_PROMPTS + 1]);
        assert_eq!(
            Questions::parse(&many),
            Err(Malformed::Invalid("number of prompts"))
        );
    }
}
