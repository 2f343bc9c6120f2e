//! Numbers as people read them.

use super::significant;

#[test]
fn numbers_have_four_significant_digits() {
    let texts = [1.85, 139.0, 148.818, 0.0184, 1.0, 0.004, 12_345.6, 0.0].map(significant);
    assert_eq!(
        texts,
        ["1.85", "139", "148.8", "0.0184", "1", "0.004", "12346", "0"]
    );
}
