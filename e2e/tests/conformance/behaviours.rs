//! The list of behaviours: one file per area, whose behaviours share a letter.

mod access;
mod apply;
mod binding;
mod create;
mod custom;
mod delete;
mod discovery;
mod eviction;
mod kubectl;
mod limits;
mod list;
mod methods;
mod nodes;
mod patch;
mod plain;
mod pods;
mod tables;
mod update;
mod watch;
mod webhooks;

use crate::session::Session;
use crate::suite::Behaviour;

pub(crate) fn all() -> Vec<Behaviour> {
    [
        discovery::ALL,
        access::ALL,
        create::ALL,
        update::ALL,
        patch::ALL,
        apply::ALL,
        list::ALL,
        watch::ALL,
        delete::ALL,
        binding::ALL,
        eviction::ALL,
        pods::ALL,
        plain::ALL,
        nodes::ALL,
        custom::ALL,
        tables::ALL,
        kubectl::ALL,
        methods::ALL,
        webhooks::ALL,
        limits::ALL,
    ]
    .concat()
}

const fn behaviour(id: &'static str, title: &'static str, run: fn(&mut Session)) -> Behaviour {
    Behaviour { id, title, run }
}
