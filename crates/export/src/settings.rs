//! `[[auth.export]]`: what a section may say, read once into a [`Sink`]. A setting that would do nothing is refused, with its
//! line and what to do. Secrets stand in files; no message repeats what is in them.

use crate::progress::Progress;
use crate::{files, syslog, webhook};
use fleetgate_net::dial;
use fleetgate_net::post::{Endpoint, Poster};
use fleetgate_net::tls::{Believe, Client, Credentials};
use fleetgate_policy::toml_mistake::{Fault, Mistake};
use http::HeaderMap;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;

/// The most sinks.
pub const MAX_SINKS: usize = 8;
/// The longest name of one.
const NAME_MAX: usize = 32;
/// Where an OTLP receiver takes logs (OTLP specification, OTLP/HTTP request).
const LOGS: &str = "/v1/logs";

/// How events go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// RFC 5424.
    Syslog,
    /// OpenTelemetry.
    Otlp,
    /// Newline-delimited JSON.
    Webhook,
}

/// A section as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    name: Spanned<String>,
    #[serde(rename = "type")]
    kind: Spanned<Kind>,
    address: Option<Spanned<String>>,
    tls: Option<Spanned<bool>>,
    server_name: Option<Spanned<String>>,
    endpoint: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    ca: Option<Spanned<PathBuf>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    headers_file: Option<Spanned<PathBuf>>,
    signing_key_file: Option<Spanned<PathBuf>>,
}

/// Where events go, and all that is needed for it.
#[derive(Clone)]
pub struct Sink {
    pub(crate) name: String,
    pub(crate) way: Way,
    /// The host is a name, which has to be looked up.
    looks_up: bool,
    progress: Arc<Progress>,
}

#[derive(Clone)]
pub(crate) enum Way {
    Syslog(syslog::Receiver),
    Otlp(Http),
    Webhook(Http, Option<ring::hmac::Key>),
}

/// A receiver of POSTs.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<Client>,
    pub(crate) headers: HeaderMap,
}

impl Http {
    pub(crate) fn poster(&self) -> Poster {
        Poster::new(self.endpoint.clone(), self.tls.clone())
    }
}

impl Sink {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Whether its host is a name: then name look-ups have to work.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        self.looks_up
    }
}

/// The sinks of these sections, which stand in `text`.
pub fn read(text: &str, forms: &[Form]) -> Result<Vec<Sink>, Mistake> {
    let mut names = HashSet::new();
    let mut sinks = Vec::new();
    for form in forms {
        let sink = form
            .sink(&mut names, sinks.len())
            .map_err(|fault| fault.in_section(text, "[[auth.export]]"))?;
        sinks.push(sink);
    }
    Ok(sinks)
}

impl Form {
    fn sink<'a>(&'a self, names: &mut HashSet<&'a str>, before: usize) -> Result<Sink, Fault> {
        let name = self.name.get_ref();
        let is_name = (1..=NAME_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !is_name {
            return Err(Fault::new(
                &self.name,
                format!("`name` has 1 to {NAME_MAX} of the characters a-z, 0-9 and -, as name = \"siem\""),
            ));
        }
        if !names.insert(name) {
            return Err(Fault::new(
                &self.name,
                format!(
                    "another section has the name \"{name}\": how far each is goes by its name; choose another"
                ),
            ));
        }
        if before >= MAX_SINKS {
            return Err(Fault::new(
                &self.name,
                format!("there are more than {MAX_SINKS} sections: remove one"),
            ));
        }
        self.refuse_idle()?;
        let (way, kind, host) = match self.kind.get_ref() {
            Kind::Syslog => {
                let (receiver, host) = self.syslog()?;
                (Way::Syslog(receiver), "syslog", host)
            }
            Kind::Otlp => {
                let http = self.http(
                    "endpoint",
                    self.endpoint.as_ref(),
                    "endpoint = \"https://otel.example:4318\"",
                )?;
                let endpoint = http.endpoint.clone().or_path(LOGS);
                let host = endpoint.host().to_owned();
                (Way::Otlp(Http { endpoint, ..http }), "otlp", host)
            }
            Kind::Webhook => {
                let http = self.http(
                    "url",
                    self.url.as_ref(),
                    "url = \"https://siem.example/fleetgate\"",
                )?;
                let signing = match &self.signing_key_file {
                    Some(path) => Some(
                        files::signing_key(path.get_ref())
                            .map_err(|why| Fault::new(path, format!("`signing_key_file`: {why}")))?,
                    ),
                    None => None,
                };
                let host = http.endpoint.host().to_owned();
                (Way::Webhook(http, signing), webhook::KIND, host)
            }
        };
        Ok(Sink {
            name: name.clone(),
            way,
            looks_up: host.parse::<IpAddr>().is_err(),
            progress: Arc::new(Progress::new(name, kind)),
        })
    }

    /// Refuses settings that the section's type has no use for.
    fn refuse_idle(&self) -> Result<(), Fault> {
        let span = |key: &Option<Spanned<PathBuf>>| key.as_ref().map(Spanned::span);
        let text = |key: &Option<Spanned<String>>| key.as_ref().map(Spanned::span);
        let given = [
            ("address", text(&self.address)),
            ("tls", self.tls.as_ref().map(Spanned::span)),
            ("server_name", text(&self.server_name)),
            ("endpoint", text(&self.endpoint)),
            ("url", text(&self.url)),
            ("ca", span(&self.ca)),
            ("certificate", span(&self.certificate)),
            ("key", span(&self.key)),
            ("headers_file", span(&self.headers_file)),
            ("signing_key_file", span(&self.signing_key_file)),
        ];
        let (kind, used): (&str, &[&str]) = match self.kind.get_ref() {
            Kind::Syslog => (
                "syslog",
                &["address", "tls", "server_name", "ca", "certificate", "key"],
            ),
            Kind::Otlp => ("otlp", &["endpoint", "ca", "certificate", "key", "headers_file"]),
            Kind::Webhook => (
                "webhook",
                &[
                    "url",
                    "ca",
                    "certificate",
                    "key",
                    "headers_file",
                    "signing_key_file",
                ],
            ),
        };
        for (key, span) in given {
            if let Some(at) = span
                && !used.contains(&key)
            {
                let why = format!(
                    "`{key}` does nothing where type = \"{kind}\", which has {}: remove the line",
                    used.join(", ")
                );
                return Err(Fault::at(at, why));
            }
        }
        Ok(())
    }

    fn syslog(&self) -> Result<(syslog::Receiver, String), Fault> {
        let Some(address) = &self.address else {
            return Err(Fault::new(
                &self.name,
                "`address` is missing: write address = \"siem.example:6514\"",
            ));
        };
        let text = address.get_ref();
        let parts = text.rsplit_once(':').filter(|(host, port)| {
            let is_host =
                !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
            is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        let Some((host, _)) = parts else {
            return Err(Fault::new(
                address,
                "`address` is a host and its port, as \"siem.example:6514\" or \"[2001:db8::1]:6514\"",
            ));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_plain = self.tls.as_ref().is_some_and(|tls| !tls.get_ref());
        if is_plain {
            self.refuse_tls("tls = false")?;
            if let Some(name) = &self.server_name {
                return Err(Fault::new(
                    name,
                    "`server_name` does nothing where tls = false: remove one of the two lines",
                ));
            }
        }
        let tls = match is_plain {
            true => None,
            false => {
                let name = self.server_name.as_ref().map_or(&host, |name| name.get_ref());
                Some((self.client()?, name.clone()))
            }
        };
        Ok((syslog::Receiver::new(text, tls), host))
    }

    fn http(&self, key: &str, url: Option<&Spanned<String>>, example: &str) -> Result<Http, Fault> {
        let Some(url) = url else {
            return Err(Fault::new(
                &self.name,
                format!("`{key}` is missing: write {example}"),
            ));
        };
        // What it says may hold a secret: the message does not repeat it.
        let endpoint =
            Endpoint::parse(url.get_ref()).map_err(|why| Fault::new(url, format!("`{key}`: {why}")))?;
        let tls = match endpoint.is_tls() {
            true => Some(self.client()?),
            false => {
                self.refuse_tls("the URL begins with http:")?;
                None
            }
        };
        let headers = match &self.headers_file {
            Some(path) => files::headers(path.get_ref())
                .map_err(|why| Fault::new(path, format!("`headers_file`: {why}")))?,
            None => HeaderMap::new(),
        };
        Ok(Http {
            endpoint,
            tls,
            headers,
        })
    }

    fn refuse_tls(&self, because: &str) -> Result<(), Fault> {
        for (name, given) in [
            ("ca", &self.ca),
            ("certificate", &self.certificate),
            ("key", &self.key),
        ] {
            if let Some(path) = given {
                return Err(Fault::new(
                    path,
                    format!("`{name}` does nothing where {because}: remove the line, or use TLS"),
                ));
            }
        }
        Ok(())
    }

    fn client(&self) -> Result<Client, Fault> {
        let Some(ca) = &self.ca else {
            return Err(Fault::new(
                &self.name,
                "`ca` is missing, the file with the authority of the receiver's certificate (PEM): write ca = \
                 \"/etc/ssl/certs/ca-certificates.crt\" for those of the system",
            ));
        };
        let authorities =
            files::public(ca.get_ref()).map_err(|why| Fault::new(ca, format!("`ca`: {why}")))?;
        let credentials = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let chain = files::public(certificate.get_ref())
                    .map_err(|why| Fault::new(certificate, format!("`certificate`: {why}")))?;
                let secret =
                    files::secret(key.get_ref()).map_err(|why| Fault::new(key, format!("`key`: {why}")))?;
                let given = Credentials::given(&chain, &secret);
                Some(
                    given
                        .map_err(|why| Fault::new(certificate, format!("`certificate` and `key`: {why}")))?,
                )
            }
            (Some(one), None) | (None, Some(one)) => {
                return Err(Fault::new(
                    one,
                    "`certificate` and `key` belong together: give both or none",
                ));
            }
        };
        Client::new(&Believe::Given(authorities.into()), credentials.as_ref(), &[])
            .map_err(|why| Fault::new(ca, format!("`ca`, {}: {why}", ca.get_ref().display())))
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How long a connection may take to come about.
pub(crate) const CONNECTING: std::time::Duration = dial::DEADLINE;
