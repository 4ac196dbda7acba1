//! POST by HTTP/1.1, over TLS or without, on a connection that is kept for the next one. It sends a text that its owner
//! made and gives back the status and a bounded beginning of the answer. It follows no redirection and tries nothing again,
//! but what was asked on a kept connection that the server had closed. Errors name the host, and never the path or a header,
//! since either may hold a secret.

use crate::h2::io::Io;
use crate::{dial, tls};
use bytes::Bytes;
use fleetgate_policy::Invalid;
use http::header::{HOST, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use std::fmt;
use tokio::task::{AbortHandle, JoinHandle};

/// All that is read of an answer's body, and of its head.
pub const ANSWER_MAX: usize = 64 * 1024;
/// Headers of an answer.
const HEADERS_MAX: usize = 64;

/// Where it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// `host:port` as the URL has it, for `Host`.
    authority: String,
    path: String,
}

/// A place, and the connection to it.
pub struct Poster {
    endpoint: Endpoint,
    tls: Option<tls::Client>,
    kept: Option<Connection>,
}

struct Connection {
    requests: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The beginning of the body; empty where it was longer than [`ANSWER_MAX`] or broke off.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub struct PostError(String);

impl Endpoint {
    /// From `http://HOST:PORT/PATH` or `https://…`.
    pub fn parse(url: &str) -> Result<Endpoint, Invalid> {
        let no_url = || Invalid::from("it is no URL: https://HOST/PATH, or http://HOST:PORT/PATH".to_owned());
        let uri: Uri = url.parse().map_err(|_| no_url())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(no_url()),
        };
        let authority = uri.authority().ok_or_else(no_url)?;
        if authority.as_str().contains('@') {
            return Err(
                "a URL with a name and password in it stands in logs: give them in a file of headers".into(),
            );
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(no_url());
        }
        Ok(Endpoint {
            is_tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// Whether it is `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host, a name or an address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// As it is dialled.
    #[must_use]
    pub fn target(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The same place with this path, where the URL has none.
    #[must_use]
    pub fn or_path(mut self, path: &str) -> Endpoint {
        if self.path == "/" {
            path.clone_into(&mut self.path);
        }
        self
    }
}

/// The path may hold a secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Poster {
    /// To this place; `tls` is how, and has to be there where the place is `https`.
    #[must_use]
    pub fn new(endpoint: Endpoint, tls: Option<tls::Client>) -> Poster {
        Poster {
            endpoint,
            tls,
            kept: None,
        }
    }

    /// Sends it, and waits for the answer. How long that may take is the caller's to say.
    pub async fn post(&mut self, headers: &HeaderMap, body: Bytes) -> Result<Answer, PostError> {
        // Taken out: where this future is dropped, the connection goes with it.
        if let Some(mut kept) = self.kept.take()
            && kept.requests.ready().await.is_ok()
            && let Ok(answer) = self.ask(&mut kept, headers, body.clone()).await
        {
            self.kept = Some(kept);
            return Ok(answer);
        }
        let mut fresh = self.connect().await?;
        let answer = self.ask(&mut fresh, headers, body).await?;
        self.kept = Some(fresh);
        Ok(answer)
    }

    async fn connect(&self) -> Result<Connection, PostError> {
        let target = self.endpoint.target();
        let stream = dial::connect(&target, dial::DEADLINE)
            .await
            .map_err(|e| PostError(e.to_string()))?;
        if !self.endpoint.is_tls {
            return self.shake_hands(stream).await;
        }
        let Some(tls) = &self.tls else {
            return Err(self.failed("no authority to believe was given"));
        };
        let (stream, _) = tls
            .connect(&self.endpoint.host, stream)
            .await
            .map_err(|e| self.failed(e))?;
        self.shake_hands(stream).await
    }

    async fn shake_hands<IO: crate::h2::Wire + Send + 'static>(
        &self,
        io: IO,
    ) -> Result<Connection, PostError> {
        let (requests, connection) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_buf_size(ANSWER_MAX)
            .handshake(Io(io))
            .await
            .map_err(|e| self.failed(e))?;
        let driver: JoinHandle<()> = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection {
            requests,
            driver: driver.abort_handle(),
        })
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, PostError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.path.parse().map_err(|_| self.failed("the path"))?;
        *request.headers_mut() = headers.clone();
        let host = HeaderValue::from_str(&self.endpoint.authority).map_err(|_| self.failed("the host"))?;
        request.headers_mut().insert(HOST, host);
        let response = connection
            .requests
            .send_request(request)
            .await
            .map_err(|e| self.failed(e))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        Ok(Answer {
            status,
            body: body.map(|body| body.to_bytes()).unwrap_or_default(),
        })
    }

    fn failed(&self, why: impl fmt::Display) -> PostError {
        PostError(format!("{}: {why}", self.endpoint.target()))
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PostError {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn endpoints_are_read_and_their_paths_are_told_to_nobody() {
        let parsed = |url: &str| Endpoint::parse(url).map(|e| (e.target(), e.is_tls()));
        assert_eq!(
            parsed("https://siem.example/a?b=c").unwrap(),
            ("siem.example:443".into(), true)
        );
        assert_eq!(parsed("http://[::1]:4318").unwrap(), ("[::1]:4318".into(), false));
        let endpoint = Endpoint::parse("http://h").unwrap().or_path("/v1/logs");
        assert_eq!(
            (endpoint.path.as_str(), endpoint.authority.as_str()),
            ("/v1/logs", "h")
        );
        assert_eq!(
            Endpoint::parse("http://h/x").unwrap().or_path("/v1/logs").path,
            "/x"
        );
        let secret = Endpoint::parse("https://hooks.example/T0P/S3CRET").unwrap();
        assert_eq!(format!("{secret:?}"), "hooks.example:443");
        for wrong in ["", "h", "ftp://h/", "https:///x", "http://", "https://a b/"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let refused = parsed("https://ada:pw@h/").unwrap_err().to_string();
        assert!(
            refused.contains("a file of headers") && !refused.contains("pw"),
            "{refused}"
        );
    }

    /// Answers each connection with the next of these, and says what was asked.
    async fn server(answers: Vec<Vec<&'static [u8]>>) -> (Endpoint, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}/in", listener.local_addr().unwrap())).unwrap();
        let serving = tokio::spawn(async move {
            let mut asked = Vec::new();
            for connection in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in connection {
                    let mut request = Vec::new();
                    while !request.ends_with(b"end") {
                        let mut chunk = [0; 1024];
                        let got = stream.read(&mut chunk).await.unwrap();
                        assert!(got > 0, "a request is whole");
                        request.extend_from_slice(&chunk[..got]);
                    }
                    asked.push(String::from_utf8(request).unwrap());
                    stream.write_all(answer).await.unwrap();
                }
            }
            asked
        });
        (endpoint, serving)
    }

    #[tokio::test]
    async fn a_connection_is_kept_and_made_again_where_the_server_closed_it() {
        const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        const LATER: &[u8] = b"HTTP/1.1 503 Later\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n";
        let (endpoint, serving) = server(vec![vec![OK, LATER], vec![OK], vec![b""]]).await;
        let mut poster = Poster::new(endpoint, None);
        let mut headers = HeaderMap::new();
        headers.insert("x-key", HeaderValue::from_static("k"));
        let mut statuses = Vec::new();
        for n in 0..3 {
            let body = Bytes::from(format!("{n} end"));
            statuses.push(
                poster
                    .post(&headers, body)
                    .await
                    .map(|a| (a.status, a.body.len()))
                    .unwrap(),
            );
        }
        assert_eq!(statuses, [(200, 2), (503, 2), (200, 2)]);
        let broken = poster
            .post(&headers, Bytes::from("3 end"))
            .await
            .unwrap_err()
            .to_string();
        assert!(!broken.contains("/in"), "{broken}");
        let asked = serving.await.unwrap();
        assert!(asked[0].starts_with("POST /in HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(
            asked[0].contains("x-key: k\r\n") && asked[0].contains("host: 127.0.0.1:"),
            "{}",
            asked[0]
        );
    }
}
