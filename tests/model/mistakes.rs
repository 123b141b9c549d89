//! Mistakes of the protocol, put in by hand around the product's functions: the model must find each. They exist in this test alone.

use std::sync::Arc;

use lockkeeper::{
    api::keys::Role,
    handoff::action::{Action, NodeChange, Op},
};

use crate::{decide::Decided, picture::GPU};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Writes are applied whatever has happened to the object since it was read.
    NoPrecondition,
    /// Evictions and deletes name a pod without its UID.
    NoUid,
    /// The loader label goes first, and takes no look at the plugin.
    LoaderFirst,
    /// What the watches show is taken for what is.
    NoSecondLook,
    /// The kubelet takes any unload pod, as if none were bound to a nonce.
    NoNonce,
    /// The new version's loader label comes in the patch that takes the old one's off.
    LoaderAtOnce,
}

impl Mistake {
    /// The decision as the mistaken protocol would have it.
    pub fn bend(self, mut decided: Decided) -> Decided {
        let Op::PatchNode(patch) = &decided.act.action.op else { return decided };
        let label = |role: Role| role.key(&lockkeeper::fleet::build::key(GPU));
        let (loader, plugin, ready) = (label(Role::Loader), label(Role::Plugin), label(Role::Ready));
        let mut patch = patch.clone();
        let moves = patch.changes.iter().any(|change| matches!(change, NodeChange::Label { key, .. } if *key == plugin));
        for change in &mut patch.changes {
            let NodeChange::Label { key, value } = change else { continue };
            match self {
                Self::LoaderFirst if value.is_none() && *key == plugin => *key = loader.clone(),
                Self::LoaderFirst if value.is_none() && *key == loader => *key = plugin.clone(),
                Self::LoaderAtOnce if value.is_none() && *key == loader => *value = Some("2".to_owned()),
                _ => {}
            }
        }
        if self == Self::LoaderFirst && moves {
            patch.changes.retain(|change| !matches!(change, NodeChange::Label { key, .. } if *key == ready));
        }
        let action = Action { op: Op::PatchNode(patch), ..(*decided.act.action).clone() };
        decided.act.text = format!("{:?}", action.op).into();
        decided.act.action = Arc::new(action);
        decided
    }
}
