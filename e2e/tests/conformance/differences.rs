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
        behaviours: &["C1", "G3", "G4", "G6"],
        places: &[
            Place {
                request: "POST /api",
                path: "/headers/warning",
            },
            Place {
                request: "PUT /api",
                path: "/headers/warning",
            },
        ],
        what: "A new object of a kind on which nothing acts here, such as an Ingress or a Role, is answered with a warning.",
        reason: "It would have an effect in a real cluster.",
    },
    Difference {
        behaviours: &["G8"],
        places: &[Place {
            request: "pods/p/log",
            path: "",
        }],
        what: "Logs, exec, attach and port-forward of a pod are answered 501.",
        reason: "No containers run.",
    },
    Difference {
        behaviours: &["T1"],
        places: &[Place {
            request: "daemonsets",
            path: "/body/rows/*/object/metadata/annotations",
        }],
        what: "Tables of DaemonSets have the annotation `deprecated.daemonset.template.generation` in the metadata of a row.",
        reason: "The stored object has it. The real server stores a number and converts it.",
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
