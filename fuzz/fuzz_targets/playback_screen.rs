//! Any bytes to the terminal model, with sizes in between: never a panic, no cell that acts on a terminal, and what is drawn
//! of it shows the same on another one.
#![no_main]

use fleetgate_playback::export::svg;
use fleetgate_playback::paint::Painter;
use fleetgate_playback::screen::{Cell, MAX_COLUMNS, MAX_ROWS, Screen};
use libfuzzer_sys::fuzz_target;

fn cells(screen: &Screen) -> Vec<Vec<Cell>> {
    let (_, rows) = screen.size();
    (0..rows).map(|row| screen.row(row).collect()).collect()
}

fuzz_target!(|data: &[u8]| {
    let mut screen = Screen::new(20, 6);
    let mut painter = Painter::new(20, 6);
    let mut seen = Screen::new(20, 6);
    // 0xfe begins a new size; it is in no UTF-8.
    for (n, piece) in data.split(|byte| *byte == 0xfe).enumerate() {
        let mut piece = piece;
        if n > 0
            && let Some((&[a, b, c, d], rest)) = piece.split_first_chunk::<4>()
        {
            screen.resize(u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            let (columns, rows) = screen.size();
            assert!(columns <= usize::from(MAX_COLUMNS) && rows <= usize::from(MAX_ROWS));
            painter = Painter::new(columns, rows);
            seen = Screen::new(
                columns.try_into().expect("bounded"),
                rows.try_into().expect("bounded"),
            );
            piece = rest;
        }
        screen.feed(piece);
        let drawn = painter.draw(&screen);
        assert!(drawn.chars().all(|c| c == '\x1b' || !c.is_control()), "{drawn:?}");
        assert!(!drawn.contains("\x1b]") && !drawn.contains("\x1bP"), "{drawn:?}");
        seen.feed(drawn.as_bytes());
        assert_eq!(cells(&screen), cells(&seen));
    }
    let mut picture = Vec::new();
    svg(&screen, &mut picture).expect("memory takes everything");
    assert!(picture.iter().all(|byte| *byte == b'\n' || *byte >= b' '));
});
