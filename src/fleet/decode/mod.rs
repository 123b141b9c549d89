//! Decoding: from the bytes of a list page, a watch line or one object straight to slim records. Nothing of the rest of an object
//! is kept or even built, and one object that does not decode never hides the others.

mod budget;
mod daemon_set;
mod devices;
mod kmm;
mod list;
mod meta;
mod node;
mod own;
mod pod;
pub mod quantity;
mod small;
mod template;
pub(crate) mod text;
mod volumes;

use std::sync::Arc;

use serde::Deserialize;

pub use self::text::{MIRROR, SELECTED_NODE, is_extended, is_ours};
use super::{
    event::{Kind, ListPage, Record, Undecodable, WatchLine},
    intern::Interner,
    records::Str,
};

/// Decodes one kind. It holds the texts that its records share, so keep one per watch.
#[derive(Debug)]
pub struct Decoder {
    kind: Kind,
    context: Context,
}

/// What decoding needs beside the bytes.
#[derive(Debug, Default)]
pub(super) struct Context {
    interner: Interner,
    empty: Str,
    replica_kind: Str,
}

/// The bytes are no JSON of the expected outer form (a cut response, an HTML page of a proxy).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer for {resource} is no {what}: {reason}")]
pub struct DecodeError {
    pub resource: &'static str,
    /// `list page`, `watch event`.
    pub what: &'static str,
    pub reason: String,
}

impl Decoder {
    pub fn new(kind: Kind) -> Self {
        let replica_kind = if kind == Kind::StatefulSet { "StatefulSet" } else { "ReplicaSet" };
        Self { kind, context: Context { replica_kind: replica_kind.into(), ..Context::default() } }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A page of a list (`GET ...?limit=`).
    ///
    /// # Errors
    /// If the bytes are no list. Single objects that do not decode are in [`ListPage::undecodable`].
    pub fn list(&mut self, bytes: &[u8]) -> Result<ListPage, DecodeError> {
        let text = self.utf8(bytes, "list page")?;
        with_kind!(self.kind, Raw => list::page::<Raw>(text, &mut self.context)).map_err(|reason| self.error("list page", reason))
    }

    /// One line of a watch.
    ///
    /// # Errors
    /// If the bytes are no watch event. An object that does not decode is [`WatchLine::Undecodable`].
    pub fn line(&mut self, bytes: &[u8]) -> Result<WatchLine, DecodeError> {
        let text = self.utf8(bytes, "watch event")?;
        with_kind!(self.kind, Raw => list::watch_line::<Raw>(text, &mut self.context))
            .map_err(|reason| self.error("watch event", reason))
    }

    /// One object, as a GET or a write returns it.
    ///
    /// # Errors
    /// If it does not decode; the reason names the field.
    pub fn object(&mut self, bytes: &[u8]) -> Result<Record, Undecodable> {
        let text = std::str::from_utf8(bytes).map_err(|error| list::undecodable("", error.to_string(), "").0)?;
        with_kind!(self.kind, Raw => object::<Raw>(text, &mut self.context)).map_err(|why| list::undecodable(text, why, "").0)
    }

    fn utf8<'b>(&self, bytes: &'b [u8], what: &'static str) -> Result<&'b str, DecodeError> {
        std::str::from_utf8(bytes).map_err(|error| self.error(what, error.to_string()))
    }

    fn error(&self, what: &'static str, reason: String) -> DecodeError {
        DecodeError { resource: self.kind.resource(), what, reason }
    }
}

/// The fields of a kind that are read, and how they become a record.
trait Slim {
    type Raw<'a>: Deserialize<'a>;
    /// # Errors
    /// What is missing or wrong, naming the field.
    fn record(raw: Self::Raw<'_>, context: &mut Context) -> Result<Record, String>;
}

fn object<S: Slim>(text: &str, context: &mut Context) -> Result<Record, String> {
    let raw = serde_json::from_str::<S::Raw<'_>>(text).map_err(|error| error.to_string())?;
    S::record(raw, context)
}

macro_rules! with_kind {
    ($kind:expr, $raw:ident => $body:expr) => {
        match $kind {
            Kind::Node => {
                type $raw = node::Node;
                $body
            }
            Kind::Pod => {
                type $raw = pod::Pod;
                $body
            }
            Kind::DaemonSet => {
                type $raw = daemon_set::DaemonSet;
                $body
            }
            Kind::ReplicaSet | Kind::StatefulSet => {
                type $raw = small::Scale;
                $body
            }
            Kind::Budget => {
                type $raw = budget::Budget;
                $body
            }
            Kind::Claim => {
                type $raw = devices::Claim;
                $body
            }
            Kind::Slice => {
                type $raw = devices::Slice;
                $body
            }
            Kind::VolumeClaim => {
                type $raw = small::VolumeClaim;
                $body
            }
            Kind::Volume => {
                type $raw = volumes::Volume;
                $body
            }
            Kind::Attachment => {
                type $raw = volumes::Attachment;
                $body
            }
            Kind::CsiNode => {
                type $raw = volumes::CsiNode;
                $body
            }
            Kind::CsiDriver => {
                type $raw = volumes::CsiDriver;
                $body
            }
            Kind::Revision => {
                type $raw = template::Revision;
                $body
            }
            Kind::KmmModule => {
                type $raw = kmm::Module;
                $body
            }
            Kind::KmmConfig => {
                type $raw = kmm::Config;
                $body
            }
            Kind::KmmImages => {
                type $raw = kmm::Images;
                $body
            }
            Kind::NodeLease => {
                type $raw = small::NodeLease;
                $body
            }
            Kind::Component => {
                type $raw = own::Component;
                $body
            }
            Kind::Handoff => {
                type $raw = own::Handoff;
                $body
            }
            Kind::Lease => {
                type $raw = own::OurLease;
                $body
            }
        }
    };
}
use with_kind;

impl Context {
    fn text(&mut self, text: &str) -> Str {
        if text.is_empty() { self.empty.clone() } else { self.interner.text(text) }
    }

    /// A text that no other object repeats.
    fn own(&self, text: &str) -> Str {
        if text.is_empty() { self.empty.clone() } else { Arc::from(text) }
    }
}

#[cfg(test)]
mod tests;
