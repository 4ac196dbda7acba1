//! Why there is no connection, in sentences: the certificate, what is wrong with it, and the remedy. They say nothing of
//! keys.

use crate::x509::instant;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error as TlsError, PeerIncompatible};
use std::fmt;
use std::io;

/// What kind of reason it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The other side's certificate is not valid yet, or no longer: renew it, or set a clock.
    Time,
    /// It is by an authority that is not believed.
    Authority,
    /// It is for something else.
    Usage,
    /// It is for another name.
    Name,
    /// There is none.
    Missing,
    /// It cannot be read, or its signature is wrong.
    Certificate,
    /// The other side refused ours.
    Refused,
    /// The two have no version, group or protocol in common.
    Incompatible,
    /// The other side does not speak TLS, or broke off.
    Broken,
    /// It took too long.
    Deadline,
    /// What we were given to work with does not fit.
    Setting,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    words: String,
}

impl Error {
    /// The kind of reason.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the server said of our certificate, out of the error of the first read after [`super::Client::connect`]; None:
    /// that error has another cause.
    #[must_use]
    pub fn told(error: &io::Error) -> Option<Error> {
        match tls_error(error)? {
            TlsError::AlertReceived(alert) => refused(*alert),
            _ => None,
        }
    }

    pub(super) fn of_client(error: io::Error) -> Error {
        of("the client's certificate", "the client", None, &error)
    }

    pub(super) fn of_server(error: io::Error, name: &str) -> Error {
        of("the server's certificate", "the server", Some(name), &error)
    }

    /// Whether the other side took too long.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self.kind, Kind::Deadline)
    }

    pub(super) fn deadline() -> Error {
        Error {
            kind: Kind::Deadline,
            words: format!(
                "the TLS handshake took longer than {} s",
                super::HANDSHAKE.as_secs()
            ),
        }
    }

    pub(super) fn setting(why: impl fmt::Display) -> Error {
        Error {
            kind: Kind::Setting,
            words: why.to_string(),
        }
    }

    pub(super) fn unreadable(why: impl fmt::Display) -> Error {
        Error {
            kind: Kind::Certificate,
            words: why.to_string(),
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

fn of(whose: &str, who: &str, name: Option<&str>, error: &io::Error) -> Error {
    let (kind, words) = match tls_error(error) {
        Some(TlsError::InvalidCertificate(why)) => certificate(whose, name, why),
        Some(TlsError::NoCertificatesPresented) => (Kind::Missing, format!("{who} has shown no certificate")),
        Some(TlsError::AlertReceived(alert)) => match refused(*alert) {
            Some(error) => return error,
            None => (
                Kind::Refused,
                format!("{who} refused the TLS handshake ({alert:?})"),
            ),
        },
        Some(TlsError::PeerIncompatible(why)) => (Kind::Incompatible, incompatible(who, why)),
        Some(TlsError::InvalidMessage(_)) => (
            Kind::Broken,
            format!("{who} does not speak TLS here: is it the right address and port?"),
        ),
        Some(TlsError::NoApplicationProtocol) => (
            Kind::Incompatible,
            format!(
                "{who} and this side have no protocol in common: is one of them another program, or much older?"
            ),
        ),
        Some(other) => (Kind::Broken, format!("{who} broke the TLS handshake: {other}")),
        None if error.kind() == io::ErrorKind::UnexpectedEof => (
            Kind::Broken,
            format!("{who} closed the connection during the TLS handshake"),
        ),
        None => (
            Kind::Broken,
            format!("the connection broke during the TLS handshake: {error}"),
        ),
    };
    Error { kind, words }
}

fn certificate(whose: &str, name: Option<&str>, why: &CertificateError) -> (Kind, String) {
    let at = |time: &UnixTime| instant(time.as_secs());
    match why {
        CertificateError::ExpiredContext { time, not_after } => (
            Kind::Time,
            format!(
                "{whose} expired at {}, and this machine's clock says {}: renew it, or set the clock right",
                at(not_after),
                at(time)
            ),
        ),
        CertificateError::NotValidYetContext { time, not_before } => (
            Kind::Time,
            format!(
                "{whose} is valid from {}, and this machine's clock says {}: one of the two clocks is wrong; set it right",
                at(not_before),
                at(time)
            ),
        ),
        CertificateError::UnknownIssuer => (
            Kind::Authority,
            format!(
                "{whose} is by an authority that is not believed here: is it another cluster, or was its authority replaced?"
            ),
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            Kind::Usage,
            format!("{whose} is for something else: it may not be shown in this place"),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            Kind::Name,
            match name {
                Some(name) => format!("{whose} is not for the name {name}: is it the right address?"),
                None => format!("{whose} is for another name"),
            },
        ),
        other => (Kind::Certificate, format!("{whose} cannot be used: {other}")),
    }
}

fn incompatible(who: &str, why: &PeerIncompatible) -> String {
    match why {
        PeerIncompatible::NoKxGroupsInCommon | PeerIncompatible::NamedGroupsExtensionRequired => {
            format!("{who} knows none of the groups X25519MLKEM768, X25519 and secp256r1")
        }
        PeerIncompatible::NoCipherSuitesInCommon => format!("{who} knows no cipher of TLS 1.3"),
        PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::Tls13RequiredForQuic => format!("{who} does not speak TLS 1.3"),
        other => format!("{who} and this side have too little of TLS in common ({other:?})"),
    }
}

/// What an alert says of our certificate.
fn refused(alert: AlertDescription) -> Option<Error> {
    let now = UnixTime::now().as_secs();
    let words = match alert {
        AlertDescription::CertificateExpired => format!(
            "the other side says that our certificate is not valid now; this machine's clock says {}: renew the certificate (log in again), or set the clock right",
            instant(now)
        ),
        AlertDescription::UnknownCA => {
            "the other side does not believe the authority of our certificate: log in again, or is it another cluster?".to_owned()
        }
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "the other side wants a certificate, and there is none: log in first".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            "the other side refuses our certificate: it is not made for this; log in or join again".to_owned()
        }
        _ => return None,
    };
    Some(Error {
        kind: Kind::Refused,
        words,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Error {}
