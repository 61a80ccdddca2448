//! Where the embedded cluster is meant to differ, and why. `docs/embedded-cluster.md` has the same
//! table for users; a test keeps the two equal.

use e2e::transcript::Delta;

pub(crate) struct Difference {
    pub(crate) behaviours: &'static [&'static str],
    /// The difference is in answers to requests that contain this text ...
    pub(crate) request: &'static str,
    /// ... at this place of the answer or below it; `*` is any one step.
    pub(crate) place: &'static str,
    pub(crate) what: &'static str,
    pub(crate) reason: &'static str,
}

impl Difference {
    pub(crate) fn covers(&self, delta: &Delta) -> bool {
        let mut steps = delta.path.split('/');
        let mut wanted = self.place.split('/');
        let at_place = wanted.all(|wanted| {
            steps
                .next()
                .is_some_and(|step| wanted == "*" || wanted == step)
        });
        at_place && delta.request.contains(self.request)
    }
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        behaviours: &["A2"],
        request: "as Nobody",
        place: "",
        what: "A request without a token is 401 everywhere; the real server lets anonymous users read `/readyz`, `/livez` and `/version`, and answers 403 elsewhere.",
        reason: "The embedded cluster has no anonymous user: whoever reaches its port must know a token.",
    },
    Difference {
        behaviours: &["K6", "T1"],
        request: "as=Table",
        place: "/body/columnDefinitions/*/description",
        what: "Columns of tables have no descriptions.",
        reason: "Nothing shows them, and they are pages of text.",
    },
];

/// Behaviours in which the embedded cluster still differs where it should not. They are run and
/// compared like the others and printed as open; the list may only become shorter.
pub(crate) const OPEN: &[&str] = &[
    "C12", "C13", "D2", "D6", "E2", "K3", "K5", "K6", "L10", "L7", "L8", "M1", "M2", "O3", "P1",
    "P2", "P3", "P4", "P5", "P9", "T1", "U3", "U7", "W11", "X6", "X9",
];

/// The table as `docs/embedded-cluster.md` has it; differences with the same words are one row.
pub(crate) fn table() -> String {
    let mut rows: Vec<(Vec<&str>, &str, &str)> = Vec::new();
    for difference in DIFFERENCES {
        let row = rows
            .iter_mut()
            .find(|row| (row.1, row.2) == (difference.what, difference.reason));
        let ids = difference.behaviours.iter();
        match row {
            Some((known, _, _)) => ids.for_each(|id| {
                if !known.contains(id) {
                    known.push(id)
                }
            }),
            None => rows.push((ids.copied().collect(), difference.what, difference.reason)),
        }
    }
    let mut table = String::from("| behaviour | what differs | why |\n|---|---|---|\n");
    for (behaviours, what, reason) in rows {
        table.push_str(&format!(
            "| {} | {what} | {reason} |\n",
            behaviours.join(", ")
        ));
    }
    table
}
