//! What every page of metrics shares: the request that a reader sends, the answer to it, and Prometheus' text form 0.0.4. It
//! reads no socket and writes none; those who serve a page do, each in its own way.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;

/// The longest request that is read.
pub const MAX_REQUEST: usize = 8192;

/// A request, as far as a page needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path without its query; none: it is no GET.
    path: Option<&'a str>,
    /// The token of `Authorization: Bearer`.
    pub token: Option<&'a [u8]>,
}

/// What is there at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The status, with its words.
    pub status: &'static str,
    /// What kind of text it is.
    pub content_type: &'static str,
    /// The text.
    pub body: String,
}

/// What a service has at a path of its page: `/metrics`, `/healthz` (it serves), `/readyz` (it can do what it is there for;
/// what keeps it from that is said).
#[must_use]
pub fn at(path: &str, metrics: impl FnOnce() -> String, ready: impl FnOnce() -> Result<(), String>) -> Text {
    let (status, body) = match path {
        "/metrics" => {
            return Text {
                status: "200 OK",
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: metrics(),
            };
        }
        "/healthz" => ("200 OK", "ok\n".to_owned()),
        "/readyz" => match ready() {
            Ok(()) => ("200 OK", "ready\n".to_owned()),
            Err(why) => ("503 Service Unavailable", format!("not ready: {why}\n")),
        },
        _ => (
            "404 Not Found",
            "there is /metrics, /healthz and /readyz, and nothing else\n".to_owned(),
        ),
    };
    Text {
        status,
        content_type: "text/plain; charset=utf-8",
        body,
    }
}

/// Whether the page may be served at this address: it is not encrypted, and asks nobody who reads it.
pub fn check(address: SocketAddr) -> Result<(), String> {
    match address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(format!(
            "metrics are served on loopback only, and {address} is not: use 127.0.0.1:{}",
            address.port()
        )),
    }
}

impl Text {
    /// The status alone.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status
            .split(' ')
            .next()
            .and_then(|code| code.parse().ok())
            .unwrap_or(500)
    }
}

/// Whether the request is there as a whole.
#[must_use]
pub fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|w| w == b"\r\n\r\n")
}

impl<'a> Request<'a> {
    /// From its bytes.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Request<'a> {
        let mut lines = bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
        let path = lines.next().and_then(path);
        let headers = lines.take_while(|line| !line.is_empty());
        let mut tokens = headers.filter_map(token);
        let token = tokens.next();
        Request {
            path,
            // Two of them would leave open which one counts.
            token: token.filter(|_| tokens.next().is_none()),
        }
    }

    /// The answer of a service that has health too; see [`at`].
    #[must_use]
    pub fn answer_with_health(
        &self,
        metrics: impl FnOnce() -> String,
        ready: impl FnOnce() -> Result<(), String>,
    ) -> String {
        let Some(path) = self.path else {
            return self.answer(metrics);
        };
        let text = at(path, metrics, ready);
        answer(
            text.status,
            &format!("Content-Type: {}", text.content_type),
            &text.body,
        )
    }

    /// The answer, with the page that `page` makes.
    #[must_use]
    pub fn answer(&self, page: impl FnOnce() -> String) -> String {
        match self.path {
            Some("/metrics") => answer(
                "200 OK",
                "Content-Type: text/plain; version=0.0.4; charset=utf-8",
                &page(),
            ),
            Some(_) => answer(
                "404 Not Found",
                "Content-Type: text/plain",
                "there is /metrics and nothing else\n",
            ),
            None => answer(
                "405 Method Not Allowed",
                "Content-Type: text/plain",
                "only GET is served\n",
            ),
        }
    }
}

/// The answer to somebody who has not shown the token.
#[must_use]
pub fn unauthorized() -> String {
    let header = "Content-Type: text/plain\r\nWWW-Authenticate: Bearer";
    answer(
        "401 Unauthorized",
        header,
        "the token is missing, or another one\n",
    )
}

fn answer(status: &str, header: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{header}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The path that a GET asks for, without its query.
fn path(line: &[u8]) -> Option<&str> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => path.split('?').next(),
        _ => None,
    }
}

/// The token in this header. Names of headers and schemes are the same in any case (RFC 9110 §5.1, §11.1).
fn token(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|b| *b == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let is_it = name.eq_ignore_ascii_case(b"authorization") && scheme.eq_ignore_ascii_case(b"bearer ");
    is_it.then(|| token.trim_ascii())
}

/// A page in the making. Names of families are without `fleetgate_`.
#[derive(Debug)]
pub struct Page(String);

impl Page {
    /// An empty one, with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Page {
        Page(String::with_capacity(bytes))
    }

    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(
            self.0,
            "# HELP fleetgate_{name} {help}\n# TYPE fleetgate_{name} {kind}\n"
        );
    }

    /// A value of the family, with its labels; what stands in a label is escaped.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "fleetgate_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push_str(if at == 0 { "{" } else { "," });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// The text.
    #[must_use]
    pub fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_its_header_alone() {
        let token = |headers: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n\r\nAuthorization: Bearer body\r\n");
            Request::parse(request.as_bytes()).token.map(<[u8]>::to_vec)
        };
        for (headers, found) in [
            ("Host: x", None),
            ("Authorization: Bearer abc", Some("abc")),
            ("host: x\r\nauthorization:bearer abc ", Some("abc")),
            ("Authorization: Basic abc", None),
            ("Authorization: Bearer", None),
            ("X-Authorization: Bearer abc", None),
            ("Authorization: Bearer a\r\nAuthorization: Bearer b", None),
            ("Authorization", None),
        ] {
            assert_eq!(token(headers), found.map(|f| f.as_bytes().to_vec()), "{headers}");
        }
    }

    #[test]
    fn health_and_readiness_have_paths_of_their_own() {
        let ask = |path: &str, ready: Result<(), &str>| {
            let text = at(path, || "page".to_owned(), || ready.map_err(str::to_owned));
            (text.code(), text.body)
        };
        assert_eq!(ask("/metrics", Err("x")), (200, "page".to_owned()));
        assert_eq!(ask("/healthz", Err("x")), (200, "ok\n".to_owned()));
        assert_eq!(ask("/readyz", Ok(())), (200, "ready\n".to_owned()));
        assert_eq!(ask("/readyz", Err("why")), (503, "not ready: why\n".to_owned()));
        assert_eq!(ask("/", Ok(())).0, 404);
        let request = Request::parse(b"GET /readyz HTTP/1.1\r\n\r\n");
        let answer = request.answer_with_health(String::new, || Err("why".to_owned()));
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\nnot ready: why\n"));
        let post = Request::parse(b"POST /readyz HTTP/1.1\r\n\r\n");
        assert!(
            post.answer_with_health(String::new, || Ok(()))
                .starts_with("HTTP/1.1 405 ")
        );
        assert!(check("127.0.0.1:1".parse().unwrap()).is_ok() && check("[::1]:1".parse().unwrap()).is_ok());
        let refused = check("0.0.0.0:9".parse().unwrap()).unwrap_err();
        assert!(refused.contains("127.0.0.1:9"), "{refused}");
    }

    #[test]
    fn what_stands_in_a_label_ends_no_line_and_no_label() {
        let mut page = Page::with_capacity(64);
        page.family("x", "gauge", "What.");
        page.value("x", &[], 1);
        page.value("x", &[("a", "b\\\"c\nd"), ("e", "")], 0.5);
        assert_eq!(
            page.text(),
            "# HELP fleetgate_x What.\n# TYPE fleetgate_x gauge\nfleetgate_x 1\n\
             fleetgate_x{a=\"b\\\\\\\"c\\nd\",e=\"\"} 0.5\n"
        );
    }
}
