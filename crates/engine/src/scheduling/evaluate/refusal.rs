//! Rejections in a compact form, because preemption collects thousands of them; messages are made on demand.

use super::scan::{Scan, filter_failed};
use crate::scheduling::framework::{Check, Reason, Rejection, Row, Verdict};

/// The rejection of one node by one filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal(Form);

#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// Position of the filter, and the codes of its reasons as bits.
    Codes {
        filter: u16,
        verdict: Verdict,
        reasons: u64,
    },
    Message {
        plugin: &'static str,
        rejection: Box<Rejection>,
    },
}

impl Refusal {
    /// By a filter that gives codes. `row` is the row that it read, if it reads rows.
    pub(super) fn by_code(scan: &Scan, filter: usize, verdict: Verdict, row: Row) -> Self {
        let (mut reasons, mut all_fit) = (0, true);
        scan.each_code(filter, verdict, row, &mut |code| match code {
            0..64 => reasons |= 1 << code,
            64.. => all_fit = false,
        });
        if all_fit && let Ok(filter) = u16::try_from(filter) {
            return Self(Form::Codes {
                filter,
                verdict,
                reasons,
            });
        }
        let rejection = scan.rejection_of(filter, verdict, row);
        Self::by_message(scan, scan.filters[filter].0, rejection)
    }

    pub(super) fn by_message(scan: &Scan, plugin: usize, rejection: Rejection) -> Self {
        let plugin = scan.profile.plugins()[plugin].name;
        let rejection = if rejection.is_failure() {
            Rejection::error(filter_failed(plugin, &rejection))
        } else {
            rejection
        };
        Self(Form::Message {
            plugin,
            rejection: Box::new(rejection),
        })
    }

    /// The error, if the filter failed.
    pub fn failure(&self) -> Option<String> {
        match &self.0 {
            Form::Message { rejection, .. } if rejection.is_failure() => Some(rejection.message()),
            _ => None,
        }
    }

    /// The plugin and its rejection. The scan must be the one that made the refusal.
    pub fn rejection(&self, scan: &Scan) -> (&'static str, Rejection) {
        match &self.0 {
            Form::Message { plugin, rejection } => (plugin, (**rejection).clone()),
            Form::Codes {
                filter,
                verdict,
                reasons,
            } => {
                let filter = usize::from(*filter);
                let (plugin, _) = scan.filters[filter];
                let codes = (0..64).filter(|code| reasons & (1 << code) != 0);
                let rejection = Rejection {
                    status: verdict.status(),
                    reasons: codes.map(|code| scan.reason(filter, code)).collect(),
                };
                (scan.profile.plugins()[plugin].name, rejection)
            }
        }
    }
}

/// Equal refusals, with the number of each.
#[derive(Default)]
pub(crate) struct Refusals<'r>(Vec<(&'r Refusal, usize)>);

impl<'r> Refusals<'r> {
    pub(crate) fn add(&mut self, refusal: &'r Refusal) {
        // Adjacent nodes are often rejected for the same reason.
        match self.0.iter_mut().rev().find(|(known, _)| *known == refusal) {
            Some((_, nodes)) => *nodes += 1,
            None => self.0.push((refusal, 1)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'r Refusal, usize)> {
        self.0.iter().copied()
    }
}

impl Scan<'_> {
    /// The codes of a filter's reasons. Only filters of rows have more than one.
    pub(super) fn each_code(
        &self,
        filter: usize,
        verdict: Verdict,
        row: Row,
        each: &mut dyn FnMut(u32),
    ) {
        let (plugin, check) = self.filters[filter];
        match &self.plan.plugins[plugin].filters[check] {
            Check::Rows(rows) => rows.reasons(row, each),
            Check::Gate(_) | Check::Places(_) | Check::Zones(_) => each(u32::from(verdict.code())),
            Check::Nodes(_) => {}
        }
    }

    pub(super) fn rejection_of(&self, filter: usize, verdict: Verdict, row: Row) -> Rejection {
        let mut reasons = Vec::new();
        self.each_code(filter, verdict, row, &mut |code| {
            reasons.push(self.reason(filter, code));
        });
        Rejection {
            status: verdict.status(),
            reasons,
        }
    }

    pub(super) fn reason(&self, filter: usize, code: u32) -> Reason {
        let (plugin, check) = self.filters[filter];
        match &self.plan.plugins[plugin].filters[check] {
            Check::Gate(gate) => gate.reason.clone(),
            Check::Rows(rows) => rows.reason(code),
            Check::Places(filter) => filter.reason(u8::try_from(code).unwrap_or(u8::MAX)),
            Check::Zones(filter) => filter.reason(u8::try_from(code).unwrap_or(u8::MAX)),
            // Opaque checks have a message of their own.
            Check::Nodes(_) => Reason::default(),
        }
    }
}
