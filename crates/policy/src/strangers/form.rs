//! How an operator writes it: the table `[strangers]` of node.toml and of the proxy's configuration.

use super::{Offence, Settings};
use crate::Invalid;
use crate::address::Network;
use crate::cluster::documents::forms::Span;
use serde::Deserialize;

/// The table as it is written. Which offences are counted differs from service to service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Form {
    penalties: Option<bool>,
    wrong_password: Option<Span>,
    wrong_key: Option<Span>,
    no_login: Option<Span>,
    too_late: Option<Span>,
    garbage: Option<Span>,
    penalty_min: Option<Span>,
    penalty_max: Option<Span>,
    exempt: Option<Vec<String>>,
    ipv4_prefix: Option<u8>,
    ipv6_prefix: Option<u8>,
    known_for: Option<Span>,
    lines: Option<u32>,
}

impl Form {
    /// What it says, for a service that counts these offences. What would do nothing is refused.
    pub fn settings(self, counted: &[Offence]) -> Result<Settings, Invalid> {
        let mut settings = Settings::default();
        let costs = &mut settings.costs;
        let is_off = self.penalties == Some(false);
        let rows = [
            (
                "wrong_password",
                self.wrong_password,
                &mut costs.wrong_password,
                Some(Offence::WrongPassword),
            ),
            (
                "wrong_key",
                self.wrong_key,
                &mut costs.wrong_key,
                Some(Offence::WrongKey),
            ),
            (
                "no_login",
                self.no_login,
                &mut costs.no_login,
                Some(Offence::NoLogin),
            ),
            (
                "too_late",
                self.too_late,
                &mut costs.too_late,
                Some(Offence::TooLate),
            ),
            (
                "garbage",
                self.garbage,
                &mut costs.garbage,
                Some(Offence::Garbage),
            ),
            ("penalty_min", self.penalty_min, &mut settings.least, None),
            ("penalty_max", self.penalty_max, &mut settings.most, None),
        ];
        for (name, span, setting, offence) in rows {
            let Some(Span(span)) = span else { continue };
            if offence.is_some_and(|offence| !counted.contains(&offence)) {
                return Err(Invalid(format!(
                    "{name}: this service does not count such offences"
                )));
            }
            if is_off {
                return Err(Invalid(format!("{name} does nothing beside `penalties = false`")));
            }
            *setting = span;
        }
        let exempt = self.exempt.unwrap_or_default();
        settings.exempt = exempt
            .iter()
            .map(|text| Network::parse(text).map_err(|why| format!("exempt: {why}")))
            .collect::<Result<_, _>>()?;
        settings.penalties = !is_off;
        settings.prefixes.v4 = self.ipv4_prefix.unwrap_or(settings.prefixes.v4);
        settings.prefixes.v6 = self.ipv6_prefix.unwrap_or(settings.prefixes.v6);
        settings.known_for = self.known_for.map_or(settings.known_for, |Span(span)| span);
        settings.lines = self.lines.unwrap_or(settings.lines);
        settings.check()?;
        Ok(settings)
    }
}
