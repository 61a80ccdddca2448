//! Authentication by bearer token. There is no authorisation: every known user may do everything.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use uuid::Uuid;

use crate::objects::status::Status;
use crate::protocol::media::header;

/// The group of every known user.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    /// Calls inside the process need no token.
    pub(crate) fn in_process() -> Self {
        Self {
            name: "system:admin".to_owned(),
            groups: vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()],
        }
    }

    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: vec![AUTHENTICATED.to_owned()],
        }
    }
}

/// The bearer tokens of the users.
#[derive(Debug, Clone, Default)]
pub(crate) struct BearerTokens {
    users: HashMap<String, User>,
}

impl BearerTokens {
    /// Generates a random token per name, in the order of the names.
    pub(crate) fn generate<'a>(names: impl IntoIterator<Item = &'a str>) -> (Self, Vec<String>) {
        let mut tokens = Self::default();
        let mut list = Vec::new();
        for name in names {
            let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
            tokens.users.insert(token.clone(), User::named(name));
            list.push(token);
        }
        (tokens, list)
    }

    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<User, Status> {
        let value = header(headers, AUTHORIZATION.as_str());
        let (scheme, token) = value.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Status::unauthorized());
        }
        let user = self.users.get(token.trim());
        user.cloned().ok_or_else(Status::unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exact_bearer_token_names_a_user() {
        let (tokens, list) = BearerTokens::generate(["alice", "bob"]);
        let bob = &list[1];
        for (header, want) in [
            (format!("Bearer {bob}"), Some("bob")),
            (format!("bearer {bob}"), Some("bob")),
            (format!("Bearer {bob}x"), None),
            (format!("Basic {bob}"), None),
            (bob.clone(), None),
            (String::new(), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            let user = tokens.authenticate(&headers).ok().map(|user| user.name);
            assert_eq!(user.as_deref(), want, "{header}");
        }
        assert_eq!(
            tokens.authenticate(&HeaderMap::new()).unwrap_err().code,
            401
        );
    }
}
