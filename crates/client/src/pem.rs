//! Certificates and keys as text (RFC 7468). It writes; reading is the TLS library's.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

/// `-----BEGIN LABEL-----` and so on.
#[must_use]
pub fn write(label: &str, der: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(Base64::encode_string(der));
    // Large enough: a string that grows leaves a copy behind.
    let mut out = Zeroizing::new(String::with_capacity(
        text.len() + text.len() / 64 + 2 * label.len() + 64,
    ));
    out.push_str("-----BEGIN ");
    out.push_str(label);
    out.push_str("-----\n");
    for (at, letter) in text.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            out.push('\n');
        }
        out.push(letter);
    }
    out.push_str("\n-----END ");
    out.push_str(label);
    out.push_str("-----\n");
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_have_64_letters() {
        let text = super::write("CERTIFICATE", &[0; 96]);
        let lines: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lines, [27, 64, 64, 25]);
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
    }
}
