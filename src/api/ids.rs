//! Names and identities as types: parsed at the edge, trusted inside, cheap to clone.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// The text, not copied.
            pub fn shared(&self) -> Arc<str> {
                self.0.clone()
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

id!(/** The name of a Node. A node made again under the same name is another node: compare `Uid` too. */ NodeName);
id!(/** `metadata.uid` of any object: the only identity that survives a name being reused. */ Uid);
id!(/** `status.nodeInfo.bootID`: changes with every boot, and with nothing else. */ BootId);
id!(
    /// A version of a component, as it stands in a label value. `Version::parse` accepts only legal, non-empty label values;
    /// `Version::from` is for values already read from a label, which may name no known version.
    Version
);

impl Version {
    /// Accepts what may be a label value and is not empty: at most 63 characters of `[A-Za-z0-9._-]`, with an alphanumeric at both ends.
    pub fn parse(text: &str) -> Result<Self, NotALabelValue> {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let legal = text.len() <= 63
            && ends(text.chars().next())
            && ends(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if legal { Ok(Self::from(text)) } else { Err(NotALabelValue(text.to_owned())) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a legal label value: want 1 to 63 characters of A-Z a-z 0-9 . _ - with a letter or digit at both ends")]
pub struct NotALabelValue(pub String);

/// Namespace and name of a namespaced object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Namespace and name of a NodeComponent.
pub type ComponentKey = ObjectKey;
