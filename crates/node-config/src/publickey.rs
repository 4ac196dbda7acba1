//! Whether a key or certificate lets somebody in: a pure function of what was asked, what is trusted and what the key
//! files say.

use crate::cluster::{Cluster, ClusterLogin};
use crate::trust::Trust;
use fleetgate_policy::cluster::{ContainerLabels, NO_CONTAINERS};
use fleetgate_policy::grant::How;
use fleetgate_policy::{AccountName, Permits, VIEWER, cluster, login_matches};
use fleetgate_ssh::auth::PublicKey;
use fleetgate_ssh::key::{
    Algorithm, AuthorizedKeys, Certificate, CertificateKind, Claimant, KeyOrCertificate, LineMatch,
    Principals, Restrictions, Touch, UserCheck, verify_touched,
};

/// Key files as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// authorized_keys files: name and content.
    pub keys: Vec<(String, Vec<u8>)>,
    /// The principals file.
    pub principals: Option<(String, Vec<u8>)>,
    /// Why others could not be read.
    pub problems: Vec<String>,
}

/// What is decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The key that was asked about would do.
    KeyAcceptable,
    /// It did.
    Proven {
        /// By what.
        how: How,
        /// With what.
        restrictions: Box<Restrictions>,
        /// As whom of the cluster.
        cluster_login: Option<Box<ClusterLogin>>,
    },
    /// It does not, for this reason, which is for the log.
    Refused(String),
    /// The cluster refuses a certificate whose key was proven: its user is told why.
    Denied(Box<ClusterRefusal>),
}

/// A refusal of the cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRefusal {
    /// Whom.
    pub user: Option<String>,
    /// Which rule, and the text.
    pub refusal: cluster::Refusal,
}

impl ClusterRefusal {
    /// Of a login that the roles allow.
    fn of(cluster_login: &ClusterLogin, rule: &str, words: String) -> ClusterRefusal {
        ClusterRefusal {
            user: cluster_login.user().map(ToString::to_string),
            refusal: cluster::Refusal::of_node(rule, words),
        }
    }
}

/// What is known of a key before its signature.
struct KeyMatch {
    restrictions: Restrictions,
    cluster_login: Option<Box<ClusterLogin>>,
}

/// Why it is not taken.
enum KeyRefusal {
    /// For the log.
    Quietly(String),
    /// For its user too, once he has proven that it is his.
    Openly(Box<ClusterRefusal>),
}

/// The SSH session that a signature has to be over.
#[derive(Clone, Copy)]
pub struct SshExchange<'a> {
    /// The monitor's own session id.
    pub id: &'a [u8],
    /// The host key that this session began with.
    pub host_key: &'a [u8],
}

/// Decides whether a key or certificate lets the user in.
pub fn check_key(
    request: &PublicKey<'_>,
    ssh: SshExchange<'_>,
    claimant: &Claimant<'_>,
    files: &Files,
    trust: &Trust,
    cluster: Option<&Cluster>,
) -> Decision {
    let refused = |why: String| Decision::Refused(why);
    let presented = match KeyOrCertificate::parse(request.key) {
        Ok(presented) => presented,
        Err(e) => return refused(e.to_string()),
    };
    if !Algorithm::parse(request.algorithm).is_some_and(|a| presented.fits(&a)) {
        // A stranger's word, which goes into a log.
        let algorithm: String = request.algorithm.chars().take(64).collect();
        return refused(format!("the algorithm {algorithm:?} does not fit the key"));
    }
    // publickey-hostbound: the client signed for the host that it saw; another one here is somebody between us.
    if request.host_key.is_some_and(|k| k != ssh.host_key) {
        return refused("it is bound to another host key than this session's".to_owned());
    }
    let admitted = match trust.revoked(&presented) {
        Some(why) => Err(KeyRefusal::Quietly(why)),
        None => match_key(&presented, claimant, files, trust, cluster),
    };
    let Some(signature) = request.signature else {
        return match admitted {
            // Whoever shows another's certificate shall not read what its user may do: first the proof, then the text.
            Ok(_) | Err(KeyRefusal::Openly(_)) => Decision::KeyAcceptable,
            Err(KeyRefusal::Quietly(why)) => refused(why),
        };
    };
    // Verified also where the key is not known: that it is not shall not be seen by the time.
    let touch = admitted.as_ref().map_or(Touch::NONE, |a| a.restrictions.touch);
    let data = request.signed_data(ssh.id);
    let verified = verify_touched(presented.key(), request.algorithm, &data, signature, touch);
    match (admitted, verified) {
        (Err(KeyRefusal::Quietly(why)), _) => refused(why),
        (_, Err(e)) => refused(e.to_string()),
        (Err(KeyRefusal::Openly(denied)), Ok(_)) => Decision::Denied(denied),
        (Ok(admitted), Ok(_)) => Decision::Proven {
            how: how(&presented),
            restrictions: admitted.restrictions.into(),
            cluster_login: admitted.cluster_login,
        },
    }
}

/// Why nobody comes in as this account.
pub enum ClosedAccount {
    /// It is not there.
    Missing,
    /// It is locked or its time is over: a sentence.
    NotInUse(String),
}

/// What is said where the account is not there, or not in use. Who has proven a certificate whose roles allow that login
/// reads why, and nobody else: whether a key would do is answered as of an account that is there.
pub fn without_account(
    decision: Decision,
    login: &str,
    closed: &ClosedAccount,
    trust: &Trust,
    cluster: Option<&Cluster>,
) -> Decision {
    let (cluster_login, cluster) = match (decision, cluster) {
        (
            Decision::Proven {
                cluster_login: Some(cluster_login),
                ..
            },
            Some(cluster),
        ) => (cluster_login, cluster),
        (Decision::Proven { .. }, _) => {
            return Decision::Refused(match closed {
                ClosedAccount::Missing => "there is no such account".to_owned(),
                ClosedAccount::NotInUse(why) => why.clone(),
            });
        }
        (other, _) => return other,
    };
    let node = cluster.node();
    let (rule, words) = match closed {
        ClosedAccount::Missing if trust.enters_no_container(login) => (
            "containers",
            format!("there is no account {login} on {node}, and {NO_CONTAINERS}"),
        ),
        ClosedAccount::Missing => (
            cluster::NO_ACCOUNT,
            format!(
                "there is no account {login} on {node}: an administrator of that machine makes one, or name another login"
            ),
        ),
        ClosedAccount::NotInUse(why) => (
            "account",
            format!("{login} on {node}: {why}; an administrator of that machine can change that"),
        ),
    };
    Decision::Denied(Box::new(ClusterRefusal::of(&cluster_login, rule, words)))
}

/// As it is noted in the grant and the log.
fn how(presented: &KeyOrCertificate) -> How {
    match presented {
        KeyOrCertificate::Key(key) => How::Key {
            fingerprint: key.fingerprint(),
        },
        KeyOrCertificate::Certificate(certificate) => How::Certificate {
            key_id: certificate.key_id().to_owned(),
            serial: certificate.serial(),
            fingerprint: certificate.key().fingerprint(),
            ca: certificate.ca().fingerprint(),
        },
    }
}

/// Whether this key is one that lets in, and with what. The signature is another question.
fn match_key(
    presented: &KeyOrCertificate,
    claimant: &Claimant<'_>,
    files: &Files,
    trust: &Trust,
    cluster: Option<&Cluster>,
) -> Result<KeyMatch, KeyRefusal> {
    let login = trust.login(claimant.login.as_bytes());
    let account = login.as_ref().map_or(claimant.login, AccountName::account);
    // Of a CA of the cluster's: what the cluster says goes, whoever else may trust that CA.
    if let (KeyOrCertificate::Certificate(certificate), Some(cluster)) = (presented, cluster)
        && cluster.is_user_ca(certificate.ca())
    {
        let container = login
            .as_ref()
            .map_or(ContainerLabels::NoContainers, ContainerLabels::before_looking);
        return by_cluster(certificate, claimant, account, container, cluster);
    }
    let alone = |restrictions| KeyMatch {
        restrictions,
        cluster_login: None,
    };
    // Whether its container may be entered is asked later.
    let of_account = Claimant {
        login: account,
        ..*claimant
    };
    by_node(presented, &of_account, files, trust)
        .map(alone)
        .map_err(KeyRefusal::Quietly)
}

/// A certificate of the cluster's. It has to name the account, or a login of this container: which of them counts for the
/// container, the roles decide.
fn by_cluster(
    certificate: &Certificate,
    claimant: &Claimant<'_>,
    account: &str,
    container: ContainerLabels<'_>,
    cluster: &Cluster,
) -> Result<KeyMatch, KeyRefusal> {
    let quietly = |why: String| Err(KeyRefusal::Quietly(why));
    let mut names = certificate.principals().iter();
    let name = match claimant.login {
        // No role lists it: by any name that the certificate has, since the roles decide alone.
        VIEWER => names.next(),
        _ => names.find(|name| login_matches(name, claimant.login) || *name == account),
    };
    let named = name.map_or(claimant.login, String::as_str);
    let checked = certificate.check_user(&UserCheck {
        trusted: &|key| cluster.is_user_ca(key),
        principals: &[named],
        now: claimant.now,
        skew: claimant.skew,
        source: claimant.source,
    });
    // What is wrong with its time or its names the cluster says in words that help; of what it does not say itself,
    // nothing is read out.
    if checked.is_err()
        && (certificate.kind() != CertificateKind::User || certificate.signature_holds().is_err())
    {
        return quietly(checked.map_or_else(|e| e.to_string(), |_| String::new()));
    }
    let decided = ClusterLogin::decide(
        certificate,
        cluster,
        claimant.login,
        container,
        claimant.now,
        claimant.skew,
    );
    match (checked, decided) {
        (_, Err(why)) => quietly(why.into()),
        (_, Ok(Err(refusal))) => Err(KeyRefusal::Openly(Box::new(ClusterRefusal {
            user: ClusterLogin::identity(certificate)
                .ok()
                .and_then(|identity| identity.user().map(ToString::to_string)),
            refusal,
        }))),
        // The roles were changed since.
        (Err(_), Ok(Ok(allowed))) if name.is_none() => {
            let words = format!(
                "your login is older than the roles that allow {} on {}: run fleetgate login",
                claimant.login,
                cluster.node()
            );
            let refusal = ClusterRefusal::of(&allowed, "the certificate", words);
            Err(KeyRefusal::Openly(Box::new(refusal)))
        }
        (Err(e), Ok(Ok(_))) => quietly(e.to_string()),
        (Ok(restrictions), Ok(Ok(cluster_login))) => Ok(KeyMatch {
            restrictions,
            cluster_login: Some(Box::new(cluster_login)),
        }),
    }
}

/// So many bad lines of a key file stand in a refusal's line of the log.
const MAX_UNREAD: usize = 3;

/// What the node trusts by itself.
fn by_node(
    presented: &KeyOrCertificate,
    claimant: &Claimant<'_>,
    files: &Files,
    trust: &Trust,
) -> Result<Restrictions, String> {
    let mut reasons = Vec::new();
    let mut unread = Vec::new();
    if let KeyOrCertificate::Certificate(certificate) = presented
        && trust.is_ca(certificate.ca())
    {
        match by_ca(certificate, claimant, files, trust) {
            Ok(restrictions) => return Ok(restrictions),
            Err(why) => reasons.push(why),
        }
    }
    for (name, content) in &files.keys {
        match AuthorizedKeys::parse(content, name) {
            Ok(keys) => {
                let bad = keys.bad().iter().take(MAX_UNREAD);
                unread.extend(
                    bad.map(|bad| format!("{name} line {} cannot be read: {}", bad.number, bad.reason)),
                );
                match taken(keys.find(presented, claimant), name) {
                    Ok(restrictions) => return Ok(restrictions),
                    Err(mut why) => reasons.append(&mut why),
                }
            }
            Err(e) => reasons.push(format!("{name}: {e}")),
        }
    }
    reasons.extend(files.problems.iter().cloned());
    if reasons.is_empty() {
        reasons.push(match presented {
            KeyOrCertificate::Key(key) => format!("nothing lets the key {} in", key.fingerprint()),
            KeyOrCertificate::Certificate(c) => format!("the CA {} is not trusted", c.ca().fingerprint()),
        });
    }
    // Where it goes well without them, they are nobody's concern.
    reasons.append(&mut unread);
    Err(reasons.join("; "))
}

fn by_ca(
    certificate: &Certificate,
    claimant: &Claimant<'_>,
    files: &Files,
    trust: &Trust,
) -> Result<Restrictions, String> {
    let trusted = |key: &_| trust.is_ca(key);
    if trust.principals_file.is_none() {
        return certificate
            .check_user(&UserCheck {
                trusted: &trusted,
                principals: &[claimant.login],
                now: claimant.now,
                skew: claimant.skew,
                source: claimant.source,
            })
            .map_err(|e| e.to_string());
    }
    let Some((name, content)) = &files.principals else {
        return Err("the account has no principals file".to_owned());
    };
    let principals = Principals::parse(content, name).map_err(|e| format!("{name}: {e}"))?;
    taken(principals.find(certificate, &trusted, claimant), name).map_err(|why| match why.is_empty() {
        true => format!("{name} has none of the certificate's names"),
        false => why.join("; "),
    })
}

fn taken(found: LineMatch, name: &str) -> Result<Restrictions, Vec<String>> {
    match found.line {
        Some((_, restrictions)) => Ok(restrictions),
        None => Err(found
            .refusals
            .into_iter()
            .map(|(line, why)| format!("{name} line {line}: {why}"))
            .collect()),
    }
}

/// What goes with a login by password or PAM's questions: nothing is taken away.
pub fn unrestricted() -> Restrictions {
    Restrictions {
        permits: Permits::all(),
        touch: Touch::NONE,
        expires: None,
    }
}

/// Whether these bind to a forced command or a list of commands, as the root rule asks.
pub fn is_forced(restrictions: &Restrictions) -> bool {
    restrictions.permits.forced().is_some() || restrictions.permits.only_named()
}

#[cfg(test)]
mod tests;
