//! M: methods that a path does not allow, and random requests.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{config_map, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour(
        "M1",
        "methods: methods that are not allowed",
        method_not_allowed,
    ),
    behaviour("M2", "methods: random bodies and paths", random_requests),
];

fn method_not_allowed(s: &mut Session) {
    s.post(s.core("pods"), &pod("p"));
    for (method, path) in [
        ("PUT", s.core("configmaps")),
        ("PATCH", s.core("configmaps")),
        ("POST", s.core("configmaps/a")),
        ("POST", s.core("pods/p")),
        ("DELETE", "/api/v1/pods".to_owned()),
        ("POST", "/api/v1/pods".to_owned()),
        ("GET", s.core("pods/p/binding")),
        ("DELETE", s.core("pods/p/binding")),
        ("GET", s.core("pods/p/eviction")),
        ("PUT", s.core("pods/p/eviction")),
        ("POST", s.core("pods/p/status")),
        ("DELETE", s.core("pods/p/status")),
        ("DELETE", s.group("apps/v1", "deployments/d/scale")),
        ("POST", s.group("apps/v1", "deployments/d/scale")),
        ("GET", s.core("bindings")),
        ("DELETE", "/api/v1/namespaces".to_owned()),
        ("GET", "/api/v1/namespaces/m1/finalize".to_owned()),
        ("PUT", s.widgets("")),
        ("POST", s.widgets("/w")),
        (
            "DELETE",
            "/apis/conformance.tidepool.io/v1/widgets".to_owned(),
        ),
        (
            "POST",
            "/apis/conformance.tidepool.io/v1/widgets".to_owned(),
        ),
        ("POST", s.widgets("/w/status")),
        ("POST", "/api".to_owned()),
        ("POST", "/apis".to_owned()),
        ("DELETE", "/version".to_owned()),
        ("POST", "/api/v1".to_owned()),
        ("PUT", "/apis/apps/v1".to_owned()),
        ("TRACE", s.core("pods/p")),
        ("BREW", s.core("pods/p")),
        ("HEAD", s.core("pods/p")),
        ("OPTIONS", s.core("pods/p")),
    ] {
        let request = match method {
            "PATCH" => Request::new(method, path).body(MERGE_PATCH, "{}"),
            "POST" | "PUT" => Request::new(method, path).json(&config_map("a")),
            _ => Request::new(method, path),
        };
        let groups = request.path == "/apis";
        s.send(request);
        // This is answered like a GET, with all groups of the server; D1 compares ours.
        if groups {
            s.keep_of_last(&["/status", "/body/kind"]);
        }
    }
}

/// A small generator: the same nonsense every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Not `%2F`: what the real server says to it depends on the part of it that looks first.
const SEGMENTS: &[&str] = &[
    "api",
    "apis",
    "v1",
    "v2",
    "apps",
    "namespaces",
    "m2",
    "pods",
    "configmaps",
    "widgets",
    "conformance.tidepool.io",
    "deployments",
    "status",
    "scale",
    "binding",
    "x",
    "..",
    "%00",
    "%F0%9F%92%A9",
    "watch",
    "",
];

const QUERIES: &[&str] = &[
    "",
    "?",
    "?limit=-5",
    "?limit=1&continue=x",
    "?labelSelector=%00",
    "?fieldSelector=%3D%3D",
    "?resourceVersion=-7",
    "?timeoutSeconds=-1",
    "?dryRun=All&dryRun=All",
    "?fieldValidation=Strict",
    "?fieldManager=%F0%9F%92%A9",
    "?pretty=true",
    "?a=b&c",
    "?limit=99999999999999999999",
    "?propagationPolicy=x",
    "?force=1",
    "?%zz=1",
];

/// Values of every JSON type, to put where something else belongs.
fn junk(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1e300),
        4 => json!("text"),
        5 => json!([1, "two", null]),
        6 => json!({"deep": {"er": {"still": []}}}),
        _ => json!(""),
    }
}

/// Replaces one value somewhere in the object.
fn mutate(object: &mut Value, random: &mut Random) {
    match object {
        Value::Object(map) if !map.is_empty() && random.below(4) > 0 => {
            let at = random.below(map.len());
            if let Some((_, value)) = map.iter_mut().nth(at) {
                mutate(value, random);
            }
        }
        Value::Array(items) if !items.is_empty() && random.below(4) > 0 => {
            let at = random.below(items.len());
            mutate(&mut items[at], random);
        }
        other => *other = junk(random),
    }
}

fn random_requests(s: &mut Session) {
    let mut random = Random(20_260_101);
    for index in 0..120 {
        let length = 1 + random.below(6);
        let segments: Vec<&str> = (0..length).map(|_| random.pick(SEGMENTS)).collect();
        let path = format!("/{}{}", segments.join("/"), random.pick(QUERIES));
        let answer = s.quietly(&Request::get(&path));
        s.fact(
            &format!("{index}: GET {path}"),
            json!([answer.status, answer.form]),
        );
    }
    for index in 0..240 {
        let (collection, mut object) = match random.below(3) {
            0 => (s.core("configmaps"), config_map("r")),
            1 => (s.core("pods"), pod("r")),
            _ => (s.widgets(""), widget("r")),
        };
        for _ in 0..=random.below(2) {
            mutate(&mut object, &mut random);
        }
        let mut body = object.to_string().into_bytes();
        if random.below(4) == 0 {
            let at = random.below(body.len());
            match random.below(3) {
                0 => body.truncate(at),
                1 => body[at] = 0xff,
                _ => body.insert(at, b'{'),
            }
        }
        let mut content_type = random.pick(&[
            "application/json",
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ]);
        // The real server hangs up on protobuf for a custom kind.
        if content_type.ends_with("protobuf") && collection.contains("widgets") {
            content_type = "application/json";
        }
        let request = match random.below(4) {
            0 => Request::new("PATCH", format!("{collection}/r")).body(
                random.pick(&[
                    "application/json-patch+json",
                    MERGE_PATCH,
                    "application/strategic-merge-patch+json",
                ]),
                body,
            ),
            1 => Request::new("PUT", format!("{collection}/r")).body(content_type, body),
            2 => Request::new("DELETE", format!("{collection}/nobody")).body(content_type, body),
            _ => Request::post(format!("{collection}?dryRun=All")).body(content_type, body),
        };
        let answer = s.quietly(&request);
        let sent = String::from_utf8_lossy(&request.body).into_owned();
        s.record(
            format!(
                "{index}: {} {} as {}",
                request.method,
                request.path,
                request
                    .headers
                    .last()
                    .map_or("", |(_, value)| value.as_str())
            ),
            Value::from(sent),
            json!({"status": answer.status, "form": answer.form}),
        );
    }
    s.get("/readyz");
}
