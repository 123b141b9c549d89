//! Dispatch of one parsed request, under the server's lock, to the file that knows the verb.

use bytes::Bytes;

use super::call::{Call, Verb};
use super::read::{self, ReadFault};
use super::refusal::Refusal;
use super::state::State;
use super::store::Stored;
use super::watch::Stream;
use super::{delete, eviction, review, scale, write};

/// What a request is answered with.
pub enum Reply {
    Json {
        code: u16,
        body: Bytes,
        warnings: Vec<String>,
    },
    /// A watch that is over at once.
    Lines(Vec<Bytes>),
    Watch {
        first: Vec<Bytes>,
        stream: Box<Stream>,
        id: u64,
        table: usize,
    },
}

impl Reply {
    pub fn json(code: u16, body: Bytes) -> Self {
        Self::Json { code, body, warnings: Vec::new() }
    }
    pub fn value(code: u16, value: &serde_json::Value) -> Self {
        Self::json(code, Bytes::from(value.to_string()))
    }
    pub fn stored(code: u16, call: &Call, stored: &Stored) -> Self {
        Self::json(code, call.form.json(stored))
    }
    pub fn code(&self) -> u16 {
        match self {
            Self::Json { code, .. } => *code,
            _ => 200,
        }
    }
}

/// Everything but evictions, which take time between their steps.
pub fn process(state: &mut State, call: &Call, fault: &ReadFault) -> Result<Reply, Refusal> {
    state.rbac_check(call)?;
    if call.resource.has.create_only {
        return review::create(state, call);
    }
    match (call.verb, call.sub.as_str()) {
        (_, "scale") => scale::handle(state, call),
        (Verb::Get, _) => read::get(state, call, fault),
        (Verb::List, _) => read::list(state, call, fault),
        (Verb::Watch, _) => read::watch(state, call, fault),
        (Verb::Create, "binding") => eviction::bind(state, call),
        (Verb::Create, _) => write::create(state, call),
        (Verb::Update, _) => write::update(state, call),
        (Verb::Patch, _) => write::patch(state, call),
        (Verb::Delete, _) => delete::delete(state, call),
        (Verb::DeleteCollection, _) => delete::delete_collection(state, call),
    }
}
