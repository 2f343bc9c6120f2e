//! Writes the generated part of `ARCHITECTURE.md`: `cargo run -p isolane-tools-tidy --example rooms`, in the repository's root.

use isolane_tools_tidy::diagram;

fn main() -> std::io::Result<()> {
    const PATH: &str = "ARCHITECTURE.md";
    let text = std::fs::read_to_string(PATH)?;
    let (before, rest) = text
        .split_once(diagram::BEGIN)
        .expect("ARCHITECTURE.md has the first marker");
    let (_, after) = rest
        .split_once(diagram::END)
        .expect("ARCHITECTURE.md has the second marker");
    std::fs::write(
        PATH,
        format!(
            "{before}{}{}{}{after}",
            diagram::BEGIN,
            diagram::text(),
            diagram::END
        ),
    )
}
