//! Objects of Kernel Module Management, by the decoders of `kmm`. Nothing is known of them here.

use serde_json::value::RawValue;

use super::{Context, Slim};
use crate::{
    fleet::event::Record,
    kmm::{
        decode::Decoded,
        records::{ImagesRecord, ModuleRecord, NmcRecord},
    },
};

pub(super) struct Module;
pub(super) struct Config;
pub(super) struct Images;

impl Slim for Module {
    type Raw<'a> = &'a RawValue;

    fn record(raw: &RawValue, _: &mut Context) -> Result<Record, String> {
        ModuleRecord::decoded(raw.get()).map(Record::KmmModule)
    }
}

impl Slim for Config {
    type Raw<'a> = &'a RawValue;

    fn record(raw: &RawValue, _: &mut Context) -> Result<Record, String> {
        NmcRecord::decoded(raw.get()).map(Record::KmmConfig)
    }
}

impl Slim for Images {
    type Raw<'a> = &'a RawValue;

    fn record(raw: &RawValue, _: &mut Context) -> Result<Record, String> {
        ImagesRecord::decoded(raw.get()).map(Record::KmmImages)
    }
}
