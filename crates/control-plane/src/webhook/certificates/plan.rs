//! What becomes of the certificates at a moment: nothing, a renewal, or a new CA.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ManagedCertificate;
use super::authority::KeyedCertificate;

/// How long certificates live, and when they are renewed.
#[derive(Debug, Clone)]
pub struct CertificatePeriods {
    pub authority: Duration,
    pub certificate: Duration,
    /// The age at which a certificate is renewed; two thirds of its life without it.
    pub renew_certificate: Option<Duration>,
    /// The age at which the CA is renewed; two thirds of its life without it.
    pub renew_authority: Option<Duration>,
    /// How long a new CA is in the CA bundles before it is used: API servers see changes a moment later.
    pub settle: Duration,
    /// How often the Secret is read.
    pub check: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Default for CertificatePeriods {
    fn default() -> Self {
        Self {
            authority: 365 * DAY,
            certificate: 90 * DAY,
            renew_certificate: None,
            renew_authority: None,
            settle: Duration::from_secs(30),
            check: Duration::from_secs(10),
        }
    }
}

/// Everything that the replicas share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CertificateState {
    pub(super) authority: KeyedCertificate,
    /// The CA that will be used next, once API servers trust it.
    pub(super) next: Option<KeyedCertificate>,
    /// CAs before, whose certificates may still be served.
    pub(super) old: Vec<OldAuthority>,
    pub(super) certificate: KeyedCertificate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OldAuthority {
    certificate: String,
    /// Until when it stays trusted.
    until: Timestamp,
}

/// More than can be in use: renewals that follow each other too fast must not fill the Secret.
const MOST_OLD: usize = 8;

impl CertificateState {
    /// All CAs to trust, in PEM; the newest is the last.
    pub(super) fn bundle(&self) -> Vec<String> {
        let old = self.old.iter().map(|old| &old.certificate);
        let next = self.next.iter().map(|next| &next.certificate);
        let all = old.chain([&self.authority.certificate]).chain(next);
        all.cloned().collect()
    }

    pub(super) fn describe(&self) -> String {
        let next = match &self.next {
            Some(next) => format!(", and CA {} comes next", next.name),
            None => String::new(),
        };
        format!(
            "wrote certificate until {} of CA {}{next}",
            self.certificate.ends, self.authority.name
        )
    }
}

/// The state that should be written now; none if the present one stays. `is_trusted`: all its CAs are in the CA bundles.
pub(super) fn advance(
    state: Option<&CertificateState>,
    now: Timestamp,
    is_trusted: bool,
    managed: &ManagedCertificate,
) -> Result<Option<CertificateState>, rcgen::Error> {
    let periods = &managed.periods;
    let after = |life: Duration| now.checked_add(life).unwrap_or(Timestamp::MAX);
    let new_authority = || KeyedCertificate::authority(now, after(periods.authority));
    let sign = |authority: &KeyedCertificate| {
        authority.sign(&managed.hosts, now, after(periods.certificate))
    };
    let Some(state) =
        state.filter(|state| state.authority.has_begun(now) && state.authority.ends > now)
    else {
        let authority = new_authority()?;
        return Ok(Some(CertificateState {
            certificate: sign(&authority)?,
            authority,
            next: None,
            old: Vec::new(),
        }));
    };
    let mut new = state.clone();
    new.old.retain(|old| old.until > now);
    let is_due = |made: Timestamp, life: Duration, renew: Option<Duration>| {
        let age = renew.unwrap_or_else(|| life * 2 / 3);
        made.checked_add(age).unwrap_or(Timestamp::MAX) <= now
    };
    match &state.next {
        Some(next) if !next.has_begun(now) => new.next = Some(new_authority()?),
        Some(next) if is_trusted && is_due(next.made, Duration::MAX, Some(periods.settle)) => {
            new.old.push(OldAuthority {
                certificate: state.authority.certificate.clone(),
                until: after(periods.certificate).min(state.authority.ends),
            });
            let excess = new.old.len().saturating_sub(MOST_OLD);
            new.old.drain(..excess);
            new.certificate = sign(next)?;
            new.authority = next.clone();
            new.next = None;
        }
        Some(_) => {}
        None if is_due(
            state.authority.made,
            periods.authority,
            periods.renew_authority,
        ) =>
        {
            new.next = Some(new_authority()?);
        }
        None => {}
    }
    let leaf = &new.certificate;
    let is_useless = leaf.hosts != managed.hosts || !leaf.has_begun(now);
    if is_useless || is_due(leaf.made, periods.certificate, periods.renew_certificate) {
        new.certificate = sign(&new.authority)?;
    }
    Ok((new != *state).then_some(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed() -> ManagedCertificate {
        ManagedCertificate {
            namespace: "n".to_owned(),
            name: "w".to_owned(),
            configurations: &[],
            hosts: vec!["w.n.svc".to_owned(), "127.0.0.1".to_owned()],
            periods: CertificatePeriods::default(),
        }
    }

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 24 * 3600).unwrap()
    }

    fn step(
        state: Option<&CertificateState>,
        now: Timestamp,
        trusted: bool,
    ) -> Option<CertificateState> {
        advance(state, now, trusted, &managed()).unwrap()
    }

    #[test]
    fn a_year_of_renewals() {
        let first = step(None, day(0), false).unwrap();
        assert_eq!(first.bundle().len(), 1);
        assert_eq!(first.certificate.ends, day(90));
        assert_eq!(step(Some(&first), day(59), true), None, "not due");
        let renewed = step(Some(&first), day(60), true).unwrap();
        assert_eq!(renewed.authority, first.authority);
        assert_ne!(renewed.certificate, first.certificate);
        // The CA is due at two thirds of its year. It is first trusted, then used.
        let mut state = renewed;
        state.certificate.made = day(243);
        let announced = step(Some(&state), day(244), true).unwrap();
        assert_eq!(
            (announced.bundle().len(), &announced.certificate),
            (2, &state.certificate)
        );
        assert_eq!(
            step(Some(&announced), day(245), false),
            None,
            "an API server does not trust it yet"
        );
        let used = step(Some(&announced), day(245), true).unwrap();
        assert_eq!(Some(&used.authority), announced.next.as_ref());
        assert_eq!(used.bundle().len(), 2, "the CA before is still trusted");
        let mut later = used.clone();
        later.certificate.made = day(330);
        let later = step(Some(&later), day(336), true).unwrap();
        assert_eq!(
            later.bundle().len(),
            1,
            "a certificate's life later it is not"
        );
    }

    #[test]
    fn what_cannot_be_used_is_made_anew() {
        let first = step(None, day(0), false).unwrap();
        let late = step(Some(&first), day(400), true).unwrap();
        assert_ne!(late.authority, first.authority, "the CA expired");
        let mut renamed = managed();
        renamed.hosts = vec!["other".to_owned()];
        let other = advance(Some(&first), day(1), true, &renamed)
            .unwrap()
            .unwrap();
        assert_eq!(other.certificate.hosts, ["other"]);
    }

    /// A clock was a year ahead, and then it was right again.
    #[test]
    fn what_begins_in_the_future_is_made_anew_at_once() {
        let good = step(None, day(0), false).unwrap();
        let future = step(None, day(365), false).unwrap();
        let hour_ahead = CertificateState {
            certificate: good
                .authority
                .sign(&managed().hosts, day(1), day(91))
                .unwrap(),
            ..good.clone()
        };
        let now = Timestamp::from_second(day(1).as_second() - 3600).unwrap();
        assert_eq!(
            step(Some(&hour_ahead), now, true),
            None,
            "API servers accept a certificate from an hour before it was made"
        );
        let healed = step(Some(&future), day(1), true).unwrap();
        assert!(healed.authority.has_begun(day(1)) && healed.certificate.has_begun(day(1)));

        let late = CertificateState {
            certificate: future.certificate.clone(),
            ..good.clone()
        };
        let healed = step(Some(&late), day(1), true).unwrap();
        assert_eq!(healed.authority, good.authority, "the CA is good");
        assert!(healed.certificate.has_begun(day(1)));

        let late = CertificateState {
            next: Some(future.authority.clone()),
            ..good.clone()
        };
        let healed = step(Some(&late), day(1), true).unwrap();
        assert_eq!(healed.certificate, good.certificate);
        assert!(healed.next.as_ref().unwrap().has_begun(day(1)));
        assert_eq!(step(Some(&healed), day(1), true), None, "it settles first");
    }

    #[test]
    fn old_authorities_are_bounded() {
        let mut managed = managed();
        managed.periods.renew_authority = Some(Duration::from_secs(1));
        let mut state = step(None, day(0), false).unwrap();
        for i in 1..60 {
            let now = Timestamp::from_second(day(0).as_second() + i * 60).unwrap();
            if let Some(next) = advance(Some(&state), now, true, &managed).unwrap() {
                state = next;
            }
        }
        assert!(
            state.bundle().len() <= MOST_OLD + 2,
            "{}",
            state.bundle().len()
        );
        assert_eq!(state.old.len(), MOST_OLD);
    }
}
