//! `[auth.recordings]`: what the section may say, read once. A setting that would do nothing is refused, with its line and
//! what to do. No message repeats what is in the file of credentials.

use crate::retention::Retention;
use fleetgate_policy::cluster::Size;
use fleetgate_policy::text;
use fleetgate_policy::toml_mistake::{Fault, Mistake};
use serde::Deserialize;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use zeroize::Zeroizing;

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;
/// Nobody but its owner may read a file of credentials.
const OPEN: u32 = 0o077;
/// A hundred years.
const MAX_DAYS: u64 = 36_500;
/// Less than this cannot hold the recordings of an hour.
const MIN_SIZE: u64 = 64 << 20;
/// Where a store has no regions, this is what its clients say.
const REGION: &str = "us-east-1";

/// The section as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    directory: Option<Spanned<PathBuf>>,
    keep_days: Option<Spanned<u64>>,
    max_size: Option<Spanned<Size>>,
    store: Option<Spanned<String>>,
    endpoint: Option<Spanned<String>>,
    region: Option<Spanned<String>>,
    credentials: Option<Spanned<PathBuf>>,
    ca: Option<Spanned<PathBuf>>,
}

/// What it says.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Where, if not below auth's own directory.
    pub directory: Option<PathBuf>,
    /// For how long, and how many bytes.
    pub retention: Retention,
    /// The object store.
    pub store: Option<Store>,
}

/// An S3-compatible store.
#[derive(Clone)]
pub struct Store {
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: Zeroizing<String>,
    /// PEM; none: those that the machine trusts.
    pub(crate) authorities: Option<Vec<u8>>,
    /// The endpoint is on this machine, and has no TLS.
    pub(crate) allows_http: bool,
}

/// Reads a section, which stands in `text`.
pub fn read(text: &str, form: &Form) -> Result<Section, Mistake> {
    form.section()
        .map_err(|fault| fault.in_section(text, "[auth.recordings]"))
}

impl Form {
    fn section(&self) -> Result<Section, Fault> {
        if let Some(directory) = &self.directory
            && !directory.get_ref().is_absolute()
        {
            return Err(Fault::new(
                directory,
                format!(
                    "`directory` is an absolute path, as \"/srv/recordings\", not {:?}",
                    directory.get_ref()
                ),
            ));
        }
        if let Some(days) = &self.keep_days
            && *days.get_ref() > MAX_DAYS
        {
            return Err(Fault::new(
                days,
                format!(
                    "`keep_days` is at most {MAX_DAYS}, not {}; 0 keeps recordings for ever",
                    days.get_ref()
                ),
            ));
        }
        if let Some(size) = &self.max_size
            && (1..MIN_SIZE).contains(&size.get_ref().0)
        {
            return Err(Fault::new(
                size,
                format!(
                    "`max_size` is at least {} (a number of bytes, or as \"500G\"), not {}; 0 is no bound",
                    Size(MIN_SIZE),
                    size.get_ref()
                ),
            ));
        }
        Ok(Section {
            directory: self.directory.as_ref().map(|at| at.get_ref().clone()),
            retention: Retention {
                keep_days: self.keep_days.as_ref().map_or(0, |days| *days.get_ref()),
                max_size: self.max_size.as_ref().map_or(0, |size| size.get_ref().0),
            },
            store: self
                .store
                .as_ref()
                .map(|store| self.store(store))
                .transpose()?
                .or(self.without_store()?),
        })
    }

    /// Without a store, what is said about one does nothing.
    fn without_store(&self) -> Result<Option<Store>, Fault> {
        if self.store.is_some() {
            return Ok(None);
        }
        let nothing = |name: &str| {
            format!(
                "`{name}` does nothing without `store = \"s3://BUCKET/PREFIX\"`: add it, or remove the line"
            )
        };
        for (name, given) in [("endpoint", &self.endpoint), ("region", &self.region)] {
            if let Some(given) = given {
                return Err(Fault::new(given, nothing(name)));
            }
        }
        for (name, given) in [("credentials", &self.credentials), ("ca", &self.ca)] {
            if let Some(given) = given {
                return Err(Fault::new(given, nothing(name)));
            }
        }
        Ok(None)
    }

    fn store(&self, store: &Spanned<String>) -> Result<Store, Fault> {
        let place = store.get_ref().strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if !store.get_ref().starts_with("s3://") {
            return Err(Fault::new(
                store,
                format!(
                    "`store` is s3://BUCKET/PREFIX, where the prefix may be left out, not {:?}",
                    text::shortened(store.get_ref())
                ),
            ));
        }
        let is_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let ends_well = !bucket.starts_with(['-', '.']) && !bucket.ends_with(['-', '.']);
        if !(3..=63).contains(&bucket.len())
            || !bucket.chars().all(is_bucket)
            || !ends_well
            || bucket.contains("..")
        {
            return Err(Fault::new(
                store,
                format!(
                    "the bucket {:?} of `store`: a bucket has 3 to 63 of a-z, 0-9, `-` and `.`, and begins and ends with \
                     a letter or digit",
                    text::shortened(bucket)
                ),
            ));
        }
        let is_prefix = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/');
        if prefix.len() > 512
            || !prefix.chars().all(is_prefix)
            || prefix.split('/').any(|part| part.starts_with('.'))
        {
            return Err(Fault::new(
                store,
                format!(
                    "the prefix {:?} of `store`: a prefix has at most 512 letters, digits, `-`, `.`, `_` and `/`, and no part of \
                     it begins with `.`",
                    text::shortened(prefix)
                ),
            ));
        }
        let allows_http = match &self.endpoint {
            Some(endpoint) => endpoint_of(endpoint)?,
            None => false,
        };
        let region = match (&self.region, &self.endpoint) {
            (Some(region), _) => region_of(region)?,
            (None, Some(_)) => REGION.to_owned(),
            (None, None) => {
                return Err(Fault::new(
                    store,
                    "`region` is missing: `region = \"eu-central-1\"`, or `endpoint` with the store's URL",
                ));
            }
        };
        let Some(file) = &self.credentials else {
            return Err(Fault::new(
                store,
                "`credentials` is missing: the path of a file with the lines `aws_access_key_id = …` and \
                 `aws_secret_access_key = …`, mode 0600",
            ));
        };
        let (access_key, secret_key) = credentials(file.get_ref()).map_err(|why| Fault::new(file, why))?;
        let authorities = match &self.ca {
            Some(ca) => {
                let read = read_file(ca.get_ref(), false).map_err(|why| Fault::new(ca, why))?;
                if !String::from_utf8_lossy(&read).contains("-----BEGIN CERTIFICATE-----") {
                    let path = ca.get_ref().display();
                    return Err(Fault::new(
                        ca,
                        format!("{path}: there is no certificate in it (PEM)"),
                    ));
                }
                Some(read.to_vec())
            }
            None => None,
        };
        Ok(Store {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: self.endpoint.as_ref().map(|at| at.get_ref().clone()),
            region,
            access_key,
            secret_key,
            authorities,
            allows_http,
        })
    }
}

/// A region's name, which becomes part of the store's own.
fn region_of(region: &Spanned<String>) -> Result<String, Fault> {
    let name = region.get_ref();
    let is_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=64).contains(&name.len()) && name.chars().all(is_one) && !name.starts_with('-');
    match fits && !name.ends_with('-') {
        true => Ok(name.clone()),
        false => Err(Fault::new(
            region,
            format!(
                "`region` {:?} is none: a region has a-z, 0-9 and `-`, as \"eu-central-1\"",
                text::shortened(name)
            ),
        )),
    }
}

/// Whether the endpoint is one without TLS, which is on this machine.
fn endpoint_of(endpoint: &Spanned<String>) -> Result<bool, Fault> {
    let url = endpoint.get_ref();
    let parsed = fleetgate_net::post::Endpoint::parse(url).map_err(|why| match url.contains('@') {
        // There may be a password in it.
        true => Fault::new(endpoint, format!("`endpoint`: {why}")),
        false => Fault::new(endpoint, format!("`endpoint` {:?}: {why}", text::shortened(url))),
    })?;
    let is_here = parsed.host().parse().is_ok_and(|at: IpAddr| at.is_loopback());
    match (parsed.is_tls(), is_here) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        (false, false) => Err(Fault::new(
            endpoint,
            format!(
                "`endpoint` {:?}: without TLS everybody on the way reads the recordings: write https://; http:// is for this \
                 machine's own addresses alone",
                text::shortened(url)
            ),
        )),
    }
}

/// The two keys, in the form of AWS's own tools.
fn credentials(path: &Path) -> Result<(String, Zeroizing<String>), String> {
    let at = |why: &str| format!("{}: {why}", path.display());
    let bytes = read_file(path, true)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| at("it is no text"))?;
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim());
        found
            .filter(|value| !value.is_empty())
            .ok_or_else(|| at(&format!("there is no line `{name} = …`")))
    };
    let access = value("aws_access_key_id")?.to_owned();
    let secret = Zeroizing::new(value("aws_secret_access_key")?.to_owned());
    Ok((access, secret))
}

fn read_file(path: &Path, is_secret: bool) -> Result<Zeroizing<Vec<u8>>, String> {
    let at = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|e| at(&e))?;
    let facts = file.metadata().map_err(|e| at(&e))?;
    if !facts.is_file() {
        return Err(at(&"it is no file"));
    }
    if is_secret && facts.mode() & OPEN != 0 {
        return Err(at(&format!(
            "others may read or change it: chmod 600 {}",
            path.display()
        )));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(|e| at(&e))?;
    Ok(bytes)
}

/// Without the keys.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn parse(text: &str) -> Result<Section, String> {
        #[derive(Deserialize)]
        struct Sections {
            recordings: Form,
        }
        let text = format!("[recordings]\n{text}");
        let sections: Sections = toml::from_str(&text).map_err(|e| e.to_string())?;
        read(&text, &sections.recordings).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn settings_are_read_and_mistakes_have_lines_and_remedies() {
        let keys = std::env::temp_dir().join(format!("fleetgate-s3-keys-{}", std::process::id()));
        std::fs::write(
            &keys,
            "[default]\naws_access_key_id = AK\naws_secret_access_key = sec/ret\n",
        )
        .unwrap();
        let mode = |mode| std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        let keys_line = format!("credentials = {:?}\n", keys.display().to_string());
        let s3 = format!("store = \"s3://rec-1/a/b\"\nendpoint = \"https://minio.example\"\n{keys_line}");
        let section = parse(&s3).unwrap().store.unwrap();
        assert_eq!(
            (
                &*section.bucket,
                &*section.prefix,
                &*section.region,
                &*section.access_key,
                section.secret_key.as_str()
            ),
            ("rec-1", "a/b", REGION, "AK", "sec/ret")
        );
        assert!(!format!("{section:?}").contains("sec"));
        let sized = parse("max_size = \"500G\"\n").unwrap();
        assert_eq!(sized.retention.max_size, 500 << 30);
        let plain = parse("directory = \"/srv/r\"\nkeep_days = 90\nmax_size = 100000000\n").unwrap();
        assert_eq!(
            (plain.retention.keep_days, plain.retention.max_size),
            (90, 100_000_000)
        );
        assert!(plain.store.is_none() && parse("").unwrap().directory.is_none());
        for (text, words) in [
            (
                "directory = \"srv\"\n",
                "line 2: [auth.recordings]: `directory` is an absolute path",
            ),
            (
                "keep_days = 100000\n",
                "line 2: [auth.recordings]: `keep_days` is at most",
            ),
            (
                "keep_days = 1\nmax_size = 100\n",
                "line 3: [auth.recordings]: `max_size` is at least 64M (a number of bytes, or as \"500G\"), not 100",
            ),
            (
                "max_size = \"500GB\"\n",
                "string \"500GB\", expected a number of bytes such as 4096",
            ),
            ("region = \"x\"\n", "`region` does nothing without `store"),
            ("ca = \"/x\"\n", "`ca` does nothing without `store"),
            (
                "store = \"/srv\"\n",
                "`store` is s3://BUCKET/PREFIX, where the prefix may be left out, not \"/srv\"",
            ),
            ("store = \"s3://Bucket\"\n", "the bucket \"Bucket\" of `store`"),
            ("store = \"s3://bucket/../x\"\n", "the prefix \"../x\" of `store`"),
            ("store = \"s3://bucket\"\n", "`region` is missing"),
            (
                "store = \"s3://bucket\"\nregion = \"r\"\n",
                "`credentials` is missing",
            ),
            (
                "store = \"s3://bucket\"\nendpoint = \"http://192.0.2.1\"\n",
                "line 3: [auth.recordings]: `endpoint` \"http://192.0.2.1\": without TLS",
            ),
            (
                "store = \"s3://bucket\"\nendpoint = \"minio\"\n",
                "`endpoint` \"minio\": it is no URL",
            ),
            (
                "store = \"s3://bucket\"\nendpoint = \"https://me:word@minio\"\n",
                "`endpoint`: a URL with a name and password",
            ),
            (
                "store = \"s3://bucket\"\nregion = \"r\"\ncredentials = \"/nowhere\"\n",
                "/nowhere: No such file",
            ),
            ("keepdays = 1\n", "unknown field `keepdays`"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(words), "{text}: {refused}");
        }
        mode(0o640);
        let refused = parse(&s3).unwrap_err();
        assert!(
            refused.contains("line 4") && refused.contains("chmod 600"),
            "{refused}"
        );
        mode(0o600);
        std::fs::write(&keys, "aws_access_key_id = AK\n").unwrap();
        let refused = parse(&s3).unwrap_err();
        assert!(refused.contains("`aws_secret_access_key = …`"), "{refused}");
        std::fs::remove_file(&keys).unwrap();
    }
}
