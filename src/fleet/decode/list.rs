//! The outer forms: list pages and watch lines. Items are turned into records one after the other, while the page is being read.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    Context, Slim,
    meta::RawMeta,
    text::{List, Text},
};
use crate::{
    api::{ObjectKey, Uid},
    fleet::{
        event::{ListPage, RecordKey, Undecodable, WatchLine},
        records::Str,
    },
};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawListMeta<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow, rename = "continue")]
    next: Text<'a>,
}

impl RawListMeta<'_> {
    fn next(&self) -> Option<String> {
        (!self.next.is_empty()).then(|| self.next.to_string())
    }
}

fn empty_page() -> ListPage {
    ListPage { records: Vec::new(), undecodable: Vec::new(), resource_version: Str::default(), next: None }
}

pub(super) fn page<S: Slim>(text: &str, context: &mut Context) -> Result<ListPage, String> {
    let mut page = empty_page();
    let visitor = PageVisitor::<S> { page: &mut page, context, kind: PhantomData };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match (&mut deserializer).deserialize_map(visitor).and_then(|()| deserializer.end()) {
        Ok(()) => Ok(page),
        // Something in there is not as it should be: once more, item by item, to find out which.
        Err(_) => page_item_by_item::<S>(text, context),
    }
}

struct PageVisitor<'p, S> {
    page: &'p mut ListPage,
    context: &'p mut Context,
    kind: PhantomData<S>,
}

impl<'de, S: Slim> Visitor<'de> for PageVisitor<'_, S> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut items = false;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key {
                "metadata" => {
                    let meta: RawListMeta<'de> = map.next_value()?;
                    self.page.resource_version = (&*meta.resource_version).into();
                    self.page.next = meta.next();
                }
                "items" => {
                    items = true;
                    map.next_value_seed(ItemsSeed::<S> { page: self.page, context: self.context, kind: PhantomData })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if items { Ok(()) } else { Err(serde::de::Error::missing_field("items")) }
    }
}

struct ItemsSeed<'p, S> {
    page: &'p mut ListPage,
    context: &'p mut Context,
    kind: PhantomData<S>,
}

impl<'de, S: Slim> DeserializeSeed<'de> for ItemsSeed<'_, S> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Slim> Visitor<'de> for ItemsSeed<'_, S> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<S::Raw<'de>>()? {
            // What is wrong inside a well-formed object is found by the slow way, which knows the object's name.
            let record = S::record(raw, self.context).map_err(serde::de::Error::custom)?;
            self.page.records.push(record);
        }
        Ok(())
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

fn page_item_by_item<S: Slim>(text: &str, context: &mut Context) -> Result<ListPage, String> {
    #[derive(Deserialize)]
    struct RawList<'a> {
        #[serde(borrow, default)]
        metadata: RawListMeta<'a>,
        #[serde(borrow)]
        items: List<&'a RawValue>,
    }
    let list: RawList<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut page = ListPage {
        resource_version: (&*list.metadata.resource_version).into(),
        next: list.metadata.next(),
        records: Vec::with_capacity(list.items.len()),
        undecodable: Vec::new(),
    };
    for (at, item) in list.items.iter().enumerate() {
        match super::object::<S>(item.get(), context) {
            Ok(record) => page.records.push(record),
            Err(reason) => page.undecodable.push(undecodable(item.get(), reason, &format!("item {at} of the page")).0),
        }
    }
    Ok(page)
}

/// The object with what can be told of it, and its resourceVersion.
pub(super) fn undecodable(object: &str, why: String, unnamed: &str) -> (Undecodable, Str) {
    let (RecordKey { mut key, .. }, resource_version) = names(object);
    if key.name.is_empty() {
        key.name = unnamed.into();
    }
    (Undecodable { key, why: why.split(" at line ").next().unwrap_or_default().to_owned() }, resource_version)
}

/// Names of an object of which nothing else needs to be right, and its resourceVersion.
fn names(object: &str) -> (RecordKey, Str) {
    #[derive(Deserialize, Default)]
    struct Named<T> {
        #[serde(default)]
        metadata: T,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Names<'a> {
        #[serde(borrow)]
        namespace: Text<'a>,
        #[serde(borrow)]
        name: Text<'a>,
        #[serde(borrow)]
        uid: Text<'a>,
        #[serde(borrow)]
        resource_version: Text<'a>,
    }
    let tell = |namespace: &str, name: &str, uid: &str, resource_version: &str| {
        (RecordKey { key: ObjectKey::new(namespace, name), uid: Uid::from(uid) }, Str::from(resource_version))
    };
    if let Ok(Named { metadata: it }) = serde_json::from_str::<Named<Names<'_>>>(object) {
        return tell(&it.namespace, &it.name, &it.uid, &it.resource_version);
    }
    // Even of these one is not as it should be: take those that are.
    type Any = Option<serde_json::Map<String, serde_json::Value>>;
    let it = serde_json::from_str::<Named<Any>>(object).ok().and_then(|named| named.metadata).unwrap_or_default();
    let text = |field| it.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
    tell(text("namespace"), text("name"), text("uid"), text("resourceVersion"))
}

pub(super) fn watch_line<S: Slim>(text: &str, context: &mut Context) -> Result<WatchLine, String> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        code: Option<u16>,
        reason: Option<String>,
        message: Option<String>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Bookmark<'a> {
        #[serde(borrow)]
        metadata: RawMeta<'a>,
    }
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(match &*line.kind {
        "ADDED" | "MODIFIED" => match super::object::<S>(line.object.get(), context) {
            Ok(record) => WatchLine::Apply { record, added: &*line.kind == "ADDED" },
            Err(why) => {
                let (object, resource_version) = undecodable(line.object.get(), why, "object without a name");
                WatchLine::Undecodable { object, resource_version }
            }
        },
        "DELETED" => {
            let (key, resource_version) = names(line.object.get());
            WatchLine::Delete { key, resource_version }
        }
        "BOOKMARK" => {
            let bookmark: Bookmark<'_> = serde_json::from_str(line.object.get()).map_err(|error| error.to_string())?;
            WatchLine::Bookmark { resource_version: bookmark.metadata.resource_version() }
        }
        "ERROR" => {
            let status: Status = serde_json::from_str(line.object.get()).unwrap_or_default();
            WatchLine::Error {
                code: status.code.unwrap_or(0),
                reason: status.reason.unwrap_or_default(),
                message: status.message.unwrap_or_else(|| line.object.get().chars().take(200).collect()),
            }
        }
        other => return Err(format!("unknown event type {other:?}")),
    })
}
