//! A: who may ask.

use super::behaviour;
use crate::client::{Request, Who};
use crate::objects::config_map;
use crate::session::Session;
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("A1", "a wrong token", a1),
    behaviour("A2", "no token", a2),
];

fn a1(s: &mut Session) {
    for path in [
        "/api/v1/pods",
        "/api",
        "/apis",
        "/readyz",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/nope",
        "/api/v1/foos",
    ] {
        s.send(Request::get(path).who(Who::WrongToken));
    }
    let path = s.core("configmaps");
    s.send(
        Request::post(&path)
            .json(&config_map("refused"))
            .who(Who::WrongToken),
    );
    s.send(Request::get(format!("{path}?watch=true")).who(Who::WrongToken));
    s.send(
        Request::get(&path)
            .header("authorization", "Bearer wrong words")
            .who(Who::Nobody),
    );
    s.get(format!("{path}/refused"));
}

fn a2(s: &mut Session) {
    for path in [
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
        "/api",
        "/nope",
        "/version",
        "/readyz",
        "/livez",
    ] {
        s.send(Request::get(path).who(Who::Nobody));
    }
    let path = s.core("configmaps");
    s.send(
        Request::post(&path)
            .json(&config_map("refused"))
            .who(Who::Nobody),
    );
    s.get(format!("{path}/refused"));
}
