//! A: authentication.

use super::behaviour;
use crate::client::{Request, User};
use crate::objects::config_map;
use crate::session::Session;
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("A1", "access: a wrong token", wrong_token),
    behaviour("A2", "access: no token", no_token),
];

fn wrong_token(s: &mut Session) {
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
        s.send(Request::get(path).user(User::WrongToken));
    }
    let path = s.core("configmaps");
    s.send(
        Request::post(&path)
            .json(&config_map("refused"))
            .user(User::WrongToken),
    );
    s.send(Request::get(format!("{path}?watch=true")).user(User::WrongToken));
    s.send(
        Request::get(&path)
            .header("authorization", "Bearer wrong words")
            .user(User::Anonymous),
    );
    s.get(format!("{path}/refused"));
}

fn no_token(s: &mut Session) {
    for path in [
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
        "/api",
        "/nope",
        "/version",
        "/readyz",
        "/livez",
    ] {
        s.send(Request::get(path).user(User::Anonymous));
    }
    let path = s.core("configmaps");
    s.send(
        Request::post(&path)
            .json(&config_map("refused"))
            .user(User::Anonymous),
    );
    s.get(format!("{path}/refused"));
}
