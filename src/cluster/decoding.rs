//! From an answer's bytes to records: the only place where this folder meets the decoders.

use crate::fleet::{
    decode::Decoder,
    event::{Kind, Record, Undecodable},
};

/// One object, as GET, POST, PUT and PATCH return it.
pub fn object(kind: Kind, body: &[u8]) -> Result<Record, Undecodable> {
    Decoder::new(kind).object(body)
}
