//! A list that took in what is different in a picture is the list built from that picture.

use proptest::prelude::*;

use super::*;
use crate::{
    engine::picture::{LeadershipView, Mode},
    handoff::tests::incremental::{Story, step},
};

fn picture(story: &Story) -> Picture {
    let decisions = Arc::new(story.decisions.clone().unwrap_or_default());
    Picture {
        fleet: story.view.clone(),
        queues: Queues::Decided(decisions.queue.clone()),
        verdicts: Verdicts::Decided(decisions),
        mode: Mode::Engine,
        leadership: LeadershipView::default(),
    }
}

fn items(rows: &Rows) -> Vec<Item> {
    (0..rows.len()).filter_map(|at| rows.get(at)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_list_brought_up_to_date_is_one_built_anew(
        turns in proptest::collection::vec(proptest::collection::vec(step(), 1..3), 1..16),
        filter in prop_oneof![4 => Just(""), 1 => Just("phase:queued"), 1 => Just("!current"), 1 => Just("version:2"), 1 => Just("n1")],
        order in prop_oneof![Just(Order::Upgrade), Just(Order::Name), Just(Order::Version), Just(Order::Age)],
        only in proptest::option::weighted(0.2, Just(ComponentKey::new("ns", "gpu"))),
    ) {
        let mut story = Story::new();
        let make = || Rows { filter: Filter::parse(filter), order, only: only.clone(), ..Rows::default() };
        let mut rows = make();
        for (epoch, steps) in turns.iter().enumerate() {
            steps.iter().for_each(|step| story.apply(step));
            story.decide();
            let picture = picture(&story);
            rows.refresh(&picture, epoch as u64);
            let mut other = make();
            other.refresh(&picture, 0);
            let list = items(&rows);
            prop_assert_eq!(&list, &items(&other));
            prop_assert_eq!(list.len(), rows.len());
            prop_assert_eq!(&list, &rows.items().collect::<Vec<_>>());
            prop_assert_eq!(rows.progress(), other.progress());
            prop_assert_eq!(rows.counts(), other.counts());
            prop_assert_eq!(rows.widest(), other.widest());
            prop_assert_eq!(rows.busy().collect::<Vec<_>>(), other.busy().collect::<Vec<_>>());
            for (at, item) in list.iter().enumerate() {
                prop_assert_eq!(rows.find(item), Some(at));
            }
            let is_row = |item: &Item| matches!(item, Item::Row(_));
            prop_assert_eq!(rows.first(), list.iter().position(is_row));
            prop_assert_eq!(rows.last(), list.iter().rposition(is_row));
        }
    }
}

#[test]
fn one_node_that_is_different_costs_one_node() {
    let mut story = Story::new();
    story.decide();
    let mut rows = Rows::default();
    rows.refresh(&picture(&story), 0);
    let before = rows.seen.clone();
    story.apply(&crate::handoff::tests::incremental::Step::NodeGone(3));
    story.decide();
    rows.refresh(&picture(&story), 1);
    let changed = before.zip(rows.seen.as_ref()).and_then(|(before, now)| changed(&before, now));
    assert_eq!(changed, Some(["n3".into()].into()));
}
