//! Where the embedded cluster is meant to differ, and why. `docs/embedded-cluster.md` has the same
//! table for users; a test keeps the two equal.

use e2e::transcript::Delta;

pub(crate) struct Difference {
    pub(crate) behaviours: &'static [&'static str],
    pub(crate) places: &'static [Place],
    pub(crate) what: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) struct Place {
    /// The difference is in answers to requests that contain this text ...
    request: &'static str,
    /// ... at this place of the answer or below it; `*` is any one step.
    path: &'static str,
}

impl Difference {
    pub(crate) fn covers(&self, delta: &Delta) -> bool {
        self.places.iter().any(|place| place.covers(delta))
    }
}

impl Place {
    fn covers(&self, delta: &Delta) -> bool {
        let mut steps = delta.path.split('/');
        let mut wanted = self.path.split('/');
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
        places: &[Place {
            request: "as Anonymous",
            path: "",
        }],
        what: "A request without a token is answered 401. The real server answers 403, and answers `/version`, `/readyz` and `/livez` without a token.",
        reason: "The embedded cluster has no anonymous user: a client that finds its port must also have a token.",
    },
    Difference {
        behaviours: &["K6", "T1", "W11"],
        places: &[
            Place {
                request: "as=Table",
                path: "/body/columnDefinitions/*/description",
            },
            Place {
                request: "events of",
                path: "/events/*/object/columnDefinitions/*/description",
            },
        ],
        what: "Columns of tables have no descriptions.",
        reason: "No client shows them, and they are long.",
    },
];

/// The table as `docs/embedded-cluster.md` has it.
pub(crate) fn table() -> String {
    let rows = DIFFERENCES.iter().map(|difference| {
        let ids = difference.behaviours.join(", ");
        format!("| {ids} | {} | {} |\n", difference.what, difference.reason)
    });
    let head = "| behaviour | what differs | why |\n|---|---|---|\n".to_owned();
    std::iter::once(head).chain(rows).collect()
}
