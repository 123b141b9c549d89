//! A table of which only the window is built: columns that give way by rank, rows painted one at a time.

use std::ops::Range;

use super::pen::Pen;

/// A column: its title, its least and its most cells, and how early it gives way (0 never does).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<Id> {
    pub id: Id,
    pub title: &'static str,
    pub least: u16,
    pub most: u16,
    pub rank: u8,
}

/// Where a column came to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<Id> {
    pub id: Id,
    pub title: &'static str,
    pub x: u16,
    pub width: u16,
}

/// Places columns in `width` cells with one blank between them. The highest rank gives way first; what is left over goes
/// to columns that may grow, from the left.
pub fn place<Id: Copy>(columns: &[Column<Id>], width: u16) -> Vec<Placed<Id>> {
    let mut kept: Vec<&Column<Id>> = columns.iter().collect();
    let need = |kept: &[&Column<Id>]| kept.iter().map(|column| column.least + 1).sum::<u16>().saturating_sub(1);
    while need(&kept) > width {
        let Some(at) = kept.iter().enumerate().filter(|(_, c)| c.rank > 0).max_by_key(|(at, c)| (c.rank, *at)).map(|(at, _)| at)
        else {
            break;
        };
        kept.remove(at);
    }
    let mut spare = width.saturating_sub(need(&kept));
    let mut x = 0;
    kept.iter()
        .map(|column| {
            let more = spare.min(column.most.saturating_sub(column.least));
            spare -= more;
            let placed = Placed { id: column.id, title: column.title, x, width: column.least + more };
            x += placed.width + 1;
            placed
        })
        .collect()
}

/// Paints the rows of `window`, one line each.
pub fn rows(pen: &mut Pen<'_>, window: Range<usize>, mut paint: impl FnMut(usize, &mut Pen<'_>)) {
    for (y, at) in window.enumerate() {
        let Ok(y) = u16::try_from(y) else { break };
        if y >= pen.height() {
            break;
        }
        paint(at, &mut pen.line(y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<u8>; 4] = [
        Column { id: 0, title: "NODE", least: 10, most: 20, rank: 0 },
        Column { id: 1, title: "VERSION", least: 8, most: 8, rank: 2 },
        Column { id: 2, title: "PHASE", least: 10, most: 10, rank: 0 },
        Column { id: 3, title: "AGE", least: 6, most: 6, rank: 1 },
    ];

    fn placed(width: u16) -> Vec<(u8, u16, u16)> {
        place(&COLUMNS, width).iter().map(|p| (p.id, p.x, p.width)).collect()
    }

    #[test]
    fn columns_give_way_by_rank_and_grow_into_what_is_left() {
        assert_eq!(placed(37), [(0, 0, 10), (1, 11, 8), (2, 20, 10), (3, 31, 6)]);
        assert_eq!(placed(42), [(0, 0, 15), (1, 16, 8), (2, 25, 10), (3, 36, 6)]);
        assert_eq!(placed(30), [(0, 0, 12), (2, 13, 10), (3, 24, 6)]);
        assert_eq!(placed(5), [(0, 0, 10), (2, 11, 10)], "what never gives way is cut by the pen");
    }
}
