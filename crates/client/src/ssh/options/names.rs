//! What becomes of each option of ssh_config(5), as OpenSSH 9.2 knows them: used, ignored with a warning, or refused
//! where ignoring it would be unsafe.

use fleetgate_policy::pattern::fits;

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It does what ssh_config(5) says.
    Used,
    /// It says nothing that matters here: a warning, but for these values, which say what is so anyway. `*` is any.
    Ignored(&'static [&'static str]),
    /// It would have a say in whom to trust or what to send, and is not served: refused, but for these values.
    Refused(&'static [&'static str], &'static str),
}

const USED: Rule = Rule::Used;
const OFF: Rule = Rule::Ignored(&["no"]);
const IGNORED: Rule = Rule::Ignored(&[]);
const SILENT: Rule = Rule::Ignored(&["*"]);
const KEYS: &str = "fleetgate's own list of algorithms cannot be changed";

/// Every name, in ssh's spelling, and its rule.
pub const NAMES: &[(&str, Rule)] = &[
    ("AddKeysToAgent", OFF),
    ("AddressFamily", Rule::Ignored(&["any"])),
    ("BatchMode", USED),
    ("BindAddress", IGNORED),
    ("BindInterface", IGNORED),
    ("CanonicalDomains", IGNORED),
    ("CanonicalizeFallbackLocal", IGNORED),
    ("CanonicalizeHostname", OFF),
    ("CanonicalizeMaxDots", IGNORED),
    ("CanonicalizePermittedCNAMEs", Rule::Ignored(&["none"])),
    ("CASignatureAlgorithms", Rule::Refused(&[], KEYS)),
    ("CertificateFile", IGNORED),
    ("CheckHostIP", OFF),
    ("Ciphers", USED),
    ("ClearAllForwardings", USED),
    ("Compression", OFF),
    ("ConnectionAttempts", Rule::Ignored(&["1"])),
    ("ConnectTimeout", USED),
    ("ControlMaster", OFF),
    ("ControlPath", USED),
    ("ControlPersist", USED),
    ("DynamicForward", USED),
    ("EnableEscapeCommandline", OFF),
    ("EnableSSHKeysign", OFF),
    ("EscapeChar", USED),
    ("ExitOnForwardFailure", USED),
    ("FingerprintHash", Rule::Ignored(&["sha256"])),
    ("ForkAfterAuthentication", USED),
    ("ForwardAgent", USED),
    ("ForwardX11", USED),
    ("ForwardX11Timeout", IGNORED),
    ("ForwardX11Trusted", USED),
    ("GatewayPorts", OFF),
    ("GlobalKnownHostsFile", USED),
    ("GSSAPIAuthentication", OFF),
    ("GSSAPIClientIdentity", IGNORED),
    ("GSSAPIDelegateCredentials", OFF),
    ("GSSAPIKexAlgorithms", IGNORED),
    ("GSSAPIKeyExchange", OFF),
    ("GSSAPIRenewalForcesRekey", OFF),
    ("GSSAPIServerIdentity", IGNORED),
    ("GSSAPITrustDns", OFF),
    ("HashKnownHosts", OFF),
    ("HostbasedAcceptedAlgorithms", IGNORED),
    ("HostbasedAuthentication", OFF),
    ("HostKeyAlgorithms", USED),
    ("HostKeyAlias", USED),
    ("Hostname", USED),
    ("IdentitiesOnly", USED),
    (
        "IdentityAgent",
        Rule::Refused(
            &["SSH_AUTH_SOCK"],
            "set SSH_AUTH_SOCK in the environment instead, or unset it for none",
        ),
    ),
    ("IdentityFile", USED),
    ("IgnoreUnknown", USED),
    (
        "Include",
        Rule::Refused(
            &[],
            "other files are not read, and they could say whom to trust; name the file with -F",
        ),
    ),
    ("IPQoS", IGNORED),
    ("KbdInteractiveAuthentication", USED),
    ("KbdInteractiveDevices", IGNORED),
    ("KexAlgorithms", USED),
    (
        "KnownHostsCommand",
        Rule::Refused(
            &["none"],
            "no program is asked for host keys; name a file with UserKnownHostsFile",
        ),
    ),
    ("LocalCommand", IGNORED),
    ("LocalForward", USED),
    ("LogLevel", USED),
    ("LogVerbose", Rule::Ignored(&["none"])),
    ("MACs", USED),
    ("NoHostAuthenticationForLocalhost", OFF),
    ("NumberOfPasswordPrompts", USED),
    ("PasswordAuthentication", USED),
    ("PermitLocalCommand", OFF),
    ("PermitRemoteOpen", Rule::Ignored(&["any"])),
    ("PKCS11Provider", Rule::Ignored(&["none"])),
    ("Port", USED),
    ("PreferredAuthentications", USED),
    (
        "ProxyCommand",
        Rule::Refused(
            &["none"],
            "a node is reached by the cluster's proxy (-J says another one); plain ssh runs such commands",
        ),
    ),
    ("ProxyJump", USED),
    ("ProxyUseFdpass", OFF),
    ("PubkeyAcceptedAlgorithms", Rule::Refused(&[], KEYS)),
    ("PubkeyAuthentication", USED),
    (
        "RekeyLimit",
        Rule::Refused(
            &["none", "default", "default none"],
            "keys are replaced every hour and every 64 GB",
        ),
    ),
    ("RemoteCommand", USED),
    ("RemoteForward", USED),
    ("RequestTTY", USED),
    (
        "RequiredRSASize",
        Rule::Refused(&["1024", "2048"], "RSA keys of 2048 bits and more are taken"),
    ),
    (
        "RevokedHostKeys",
        Rule::Refused(
            &["none"],
            "mark the key @revoked in a file that UserKnownHostsFile names",
        ),
    ),
    ("SecurityKeyProvider", Rule::Ignored(&["internal"])),
    ("SendEnv", USED),
    ("ServerAliveCountMax", USED),
    ("ServerAliveInterval", USED),
    ("SessionType", USED),
    ("SetEnv", USED),
    ("StdinNull", USED),
    ("StreamLocalBindMask", Rule::Ignored(&["0177"])),
    ("StreamLocalBindUnlink", OFF),
    ("StrictHostKeyChecking", USED),
    ("SyslogFacility", SILENT),
    ("TCPKeepAlive", SILENT),
    ("Tunnel", OFF),
    ("TunnelDevice", IGNORED),
    ("UpdateHostKeys", OFF),
    ("User", USED),
    ("UserKnownHostsFile", USED),
    ("VerifyHostKeyDNS", OFF),
    ("VisualHostKey", OFF),
    ("XAuthLocation", IGNORED),
    // What OpenSSH itself says of these: deprecated, or not supported by this build.
    ("AFSTokenPassing", IGNORED),
    ("Cipher", IGNORED),
    ("CompressionLevel", IGNORED),
    ("FallBackToRsh", IGNORED),
    ("KerberosAuthentication", IGNORED),
    ("KerberosTgtPassing", IGNORED),
    ("Protocol", Rule::Ignored(&["2"])),
    ("RhostsAuthentication", IGNORED),
    ("RhostsRSAAuthentication", IGNORED),
    ("RSAAuthentication", IGNORED),
    ("SmartcardDevice", IGNORED),
    ("UseBlacklistedKeys", IGNORED),
    ("UsePrivilegedPort", IGNORED),
    ("UseRoaming", IGNORED),
    ("UseRsh", IGNORED),
];

/// Older spellings that ssh still takes.
const ALIASES: [(&str, &str); 13] = [
    ("ChallengeResponseAuthentication", "KbdInteractiveAuthentication"),
    ("DSAAuthentication", "PubkeyAuthentication"),
    ("GlobalKnownHostsFile2", "GlobalKnownHostsFile"),
    ("HostbasedKeyTypes", "HostbasedAcceptedAlgorithms"),
    ("IdentityFile2", "IdentityFile"),
    ("KeepAlive", "TCPKeepAlive"),
    ("PubkeyAcceptedKeyTypes", "PubkeyAcceptedAlgorithms"),
    ("SKeyAuthentication", "KbdInteractiveAuthentication"),
    ("TISAuthentication", "KbdInteractiveAuthentication"),
    ("UserKnownHostsFile2", "UserKnownHostsFile"),
    ("HostbasedAcceptedKeyTypes", "HostbasedAcceptedAlgorithms"),
    ("CertificateFile2", "CertificateFile"),
    ("SkeyAuthentication", "KbdInteractiveAuthentication"),
];

/// The name as it stands in the table, and its rule.
pub fn find(name: &str) -> Option<(&'static str, Rule)> {
    let alias = ALIASES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name));
    let name = alias.map_or(name, |(_, new)| new);
    NAMES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .copied()
}

/// Whether a value is among those that say what is so anyway.
pub fn is_so_anyway(values: &[&str], value: &str) -> bool {
    values.iter().any(|v| {
        *v == "*" || v.eq_ignore_ascii_case(value) || (*v == "no" && value.eq_ignore_ascii_case("false"))
    })
}

/// Whether IgnoreUnknown names it: patterns with commas between them (ssh_config(5)).
pub fn is_ignored(patterns: &[String], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let each = patterns.iter().flat_map(|list| list.split(','));
    each.map(str::to_ascii_lowercase)
        .any(|pattern| fits(pattern.trim().as_bytes(), name.as_bytes()))
}
